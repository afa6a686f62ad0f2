"""The three ways of asking that the demo compares, two threads wide: adaptive questions beside all others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import for_each, one_blas_thread, one_torch_thread
from edpbrl_gym.agents.registry import AGENTS, make_agent
from edpbrl_gym.collection.collect import collect, make_prompt_lanes
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.design import describe_design
from edpbrl_gym.estimation import Estimate, GaussianPrior, estimate
from edpbrl_gym.estimation.metrics import cosine_error
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.features.memo import MemoEncoder

if TYPE_CHECKING:
    from edpbrl_gym.agents.base import Agent
    from edpbrl_gym.experiments.demo_settings import DemoSettings
    from edpbrl_gym.oracles import SyntheticUser

__all__ = ["DESIGNED", "Asking", "AskingResult"]

_AGENTS = {AGENTS[name].title: name for name in ("adaptive", "newton", "random")}
ADAPTIVE, DESIGNED, RANDOM = _AGENTS
_CHECKPOINTS = 5  # checkpoints of a curve
_PAPER_REGULARIZATION = 100.0  # lambda of the ridge in the paper's experiments

Say = Callable[[str, dict[str, Any]], object]
Prior = VocabularyPrior | GaussianPrior


@dataclass(frozen=True)
class AskingResult:
    """Result of one way of asking.

    Attributes:
        theta: The estimate from all answers, (d,).
        rows: The errors after some of the episodes, as rows of the results.
        steps: The steps for ``say``, in their order.
        design: Facts about the design; empty without one.
    """

    theta: NDArray[np.float64]
    rows: list[dict[str, Any]]
    steps: list[tuple[str, dict[str, Any]]]
    design: dict[str, Any]


class Asking:
    """Asks a simulated user in three ways.

    Args:
        settings: Settings of the demo.
        make_user: Makes a new user, always the same.
        make_encoder: Makes a new encoder with a memo of the same texts. Each way of asking has its own, so that the
            batches, and with them the last bits of the embeddings, don't depend on which is faster.
    """

    def __init__(
        self,
        settings: DemoSettings,
        make_user: Callable[[], SyntheticUser],
        make_encoder: Callable[[], MemoEncoder],
    ) -> None:
        self.settings, self._make_user, self._make_encoder = settings, make_user, make_encoder

    def run(self, beside: Callable[[], object], say: Say) -> dict[str, AskingResult]:
        """Ask and estimate.

        Adaptive questions wait for each other's answers and keep one core busy; the other one does the rest.

        Args:
            beside: More work for the other core.
            say: Called after every step, see `run_demo`.

        Returns:
            The result of each way of asking by its name, adaptive first.
        """
        env = self._lanes(1)
        prior = self._prior(env.unwrapped.features)
        agent = self._agent(ADAPTIVE, env, prior)
        agent.learn()  # encodes with all cores
        with one_blas_thread(), one_torch_thread(), ThreadPoolExecutor(1) as pool:
            try:
                static = {label: pool.submit(self._static, label, prior, say) for label in (DESIGNED, RANDOM)}
                extra = pool.submit(beside)
                adaptive = self._ask(ADAPTIVE, env, agent, prior)
                results = {ADAPTIVE: adaptive} | {label: future.result() for label, future in static.items()}
                extra.result()
            except BaseException:  # Ctrl-C too: cancel the work that has not started
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for step in adaptive.steps:
            say(*step)
        return results

    def _static(self, label: str, prior: Prior, say: Say) -> AskingResult:
        """A way of asking whose questions don't depend on the answers: all episodes side by side."""
        env = self._lanes(self.settings.episodes)
        agent = self._agent(label, env, prior)
        agent.learn()
        result = self._ask(label, env, agent, prior)
        for step in result.steps:
            say(*step)
        return result

    def _ask(self, label: str, env: Any, agent: Agent, prior: Prior) -> AskingResult:
        steps: list[tuple[str, dict[str, Any]]] = []
        design: dict[str, Any] = {}
        if agent.design is not None:
            if agent.design.status == "interrupted":
                raise KeyboardInterrupt  # Ctrl-C ends the demo, but the solver has handled it
            design = describe_design(agent.design)
            steps.append(("design", design))
        user = self._make_user()
        answered = collect(env, agent, user, episodes=self.settings.episodes, observe=label == ADAPTIVE)
        example = answered.texts[-1] if answered.texts else []
        steps.append(
            (
                "questions",
                {"agent": label, "questions": len(answered), "example": example, "choice": int(answered.choice[-1])},
            )
        )
        rows, fit = _curve("curve", label, answered, user, prior)
        if label == RANDOM:
            paper = GaussianPrior.isotropic(len(user.theta), _PAPER_REGULARIZATION)
            rows += _curve("plain curve", label, answered, user, paper)[0]
        error = cosine_error(fit.theta, user.theta)
        steps.append(("estimate", {"agent": label, "cosine_error": error, "converged": fit.converged}))
        return AskingResult(fit.theta, rows, steps, design)

    def _lanes(self, groups: int) -> Any:
        """A vector environment with K lanes for each of the groups."""
        env: Any = make_prompt_lanes(
            groups * self.settings.num_options,
            vocabulary=self.settings.vocabulary,
            encoder=self.settings.encoder,
            split="train",
            split_seed=self.settings.seed,
        )
        env.unwrapped.model.use_encoder(self._make_encoder())
        return env

    def _agent(self, label: str, env: Any, prior: Prior) -> Agent:
        options: dict[str, Any] = {}
        if label == DESIGNED:
            scale = 1.0 / self.settings.regularization
            base = prior.base.scaled(scale) if isinstance(prior, VocabularyPrior) else prior
            options = {"max_iterations": self.settings.iterations, "prior_precision": base.precision}
        elif label == ADAPTIVE and not isinstance(prior, VocabularyPrior):  # the agent's default
            options = {"prior": prior}
        return make_agent(
            _AGENTS[label],
            env,
            num_options=self.settings.num_options,
            episodes=self.settings.episodes,
            criterion=self.settings.criterion,
            seed=derive_seed(self.settings.seed, "queries", label),
            **options,
        )

    def _prior(self, features: NDArray[np.float32]) -> Prior:
        if self.settings.prior == "words":
            return VocabularyPrior(features)
        if self.settings.prior == "ridge":
            return GaussianPrior.isotropic(features.shape[1], self.settings.regularization)
        return GaussianPrior.from_embeddings(features, scale=1.0 / self.settings.regularization)


def _curve(
    part: str, label: str, answered: Comparisons, user: SyntheticUser, prior: Prior
) -> tuple[list[dict[str, Any]], Estimate]:
    """Rows with the cosine error after some of the episodes, and the estimate from all."""
    last = int(answered.episode.max()) + 1
    checkpoints = sorted({max(1, round(last * share)) for share in np.linspace(0, 1, _CHECKPOINTS + 1)[1:]})
    fits: dict[int, Estimate] = {}

    def fit(episodes: int) -> None:
        fits[episodes] = _estimate(answered.select(answered.episode < episodes), prior)

    for_each(fit, reversed(checkpoints))  # the longest first
    rows = [
        {
            "part": part,
            "agent": label,
            "episodes": episodes,
            "cosine_error": cosine_error(fits[episodes].theta, user.theta),
        }
        for episodes in checkpoints
    ]
    return rows, fits[checkpoints[-1]]


def _estimate(answered: Comparisons, prior: Prior) -> Estimate:
    if isinstance(prior, VocabularyPrior):
        return prior.fit(answered).estimate
    return estimate(answered, prior=prior)
