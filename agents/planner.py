"""The agent that asks through a planner, one planner for all groups of lanes."""

from __future__ import annotations

import json
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._feedback import Feedback, check_feedback
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.agents.asking import AskingAgent
from edpbrl_gym.agents.base import EpisodeStart, State
from edpbrl_gym.agents.tabular import TabularAgent, require
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import Population
from edpbrl_gym.planners import Planner
from edpbrl_gym.planners.option_features import option_features
from edpbrl_gym.planners.registry import make_planner, merged_options, planner_class, planner_options
from edpbrl_gym.planners.tracking import TastePrior

__all__ = ["PlannerAgent"]


class PlannerAgent(AskingAgent, TabularAgent):
    """Plays a planner through the standard API, one planner for all groups of K lanes.

    ``observe`` learns from all answers so far; call it whenever answers arrive, ideally after every step (with a
    `PreferenceQuery`: ``agent.observe(venv.comparisons)``). Groups that play side by side ask different questions
    from the same answers; with one group and ``observe`` after every step, each question of an episode uses all answers
    before it. ``planner.think()`` while the person looks at the options spares them long waits.

    Args:
        env: A prompt environment (with ``.vocabulary``, ``.features`` and, for partial prompts, ``.encoder``).
        planner: A name of ``edpbrl_gym.planners.PLANNERS``, an import string, or a `Planner`; an agent made with a
            `Planner` can't be saved.
        feedback: What is compared: "truncated" (partial prompts), "state" (the last token) or "prompt" (complete
            prompts, once an episode; the planner still chooses them token by token).
        prior: A proper prior of theta, taken as it is, or a `Population` of other people; None: see ``posterior``.
        posterior: "vocabulary": `VocabularyPrior` of the environment's tokens, with its scale from the answers;
            "ridge": N(0, I / lambda) with lambda the ``regularization``; None: "ridge" for the rules of the literature,
            "vocabulary" for other planners.
        **arguments: Options of the planner, such as ``score`` of "adaptive" or ``draws`` of "bald": names, numbers and
            arrays; and those of ``Agent``. ``criterion`` is not used.

    Attributes:
        planner: What asks and estimates, after ``learn``: its ``estimate`` and ``posterior``.
        static: Whether its questions are independent of the answers.

    Raises:
        TypeError: If the environment has no vocabulary, or in ``learn`` no features or encoder; if the planner has no
            such option, or one that can't be saved.
        ValueError: If the planner or an option is unknown, or in ``learn`` lambda is 0 where it is needed.
    """

    def __init__(
        self,
        env: Any,
        *,
        planner: str | Planner = "adaptive",
        feedback: Feedback = "truncated",
        prior: GaussianPrior | Population | None = None,
        posterior: Literal["ridge", "vocabulary"] | None = None,
        **arguments: Any,
    ) -> None:
        instance = planner if isinstance(planner, Planner) else None
        self.name = planner.name if isinstance(planner, Planner) else planner
        known = [] if instance else planner_options(self.name)
        options = _plain({name: arguments.pop(name) for name in known if name in arguments})
        super().__init__(env, **arguments)
        require(self.base, "vocabulary", who=self.name)
        self.feedback = check_feedback(feedback)
        self.posterior = posterior
        if posterior is not None:
            check_choice_of(posterior, "posterior", ("ridge", "vocabulary"))
        if not isinstance(prior, GaussianPrior | Population | None):
            raise TypeError(f"Expected prior to be a GaussianPrior, a Population or None, got {type(prior).__name__}")
        self.prior = prior
        self.planner_options = options
        if instance is None:
            cls, merged = planner_class(self.name), merged_options(self.name, options)
            cls.check_options(num_options=self.num_options, **merged)
            self.static = not cls.is_adaptive(**merged)
        else:
            if instance.num_options != self.num_options:
                raise ValueError(
                    f"Expected a planner of K = {self.num_options} options, got one of {instance.num_options}"
                )
            self.static = not instance.adaptive
        self._instance = instance

    @classmethod
    def needed_packages(cls, *, planner: str = "adaptive", **fixed: Any) -> tuple[str, ...]:
        """See the base class."""
        return planner_class(planner).needs

    @classmethod
    def option_names(cls, *, planner: str = "adaptive", **fixed: Any) -> list[str]:
        """See the base class; the planner's options are among them."""
        return sorted({*super().option_names(planner=planner, **fixed), *planner_options(planner)})

    def learn(self) -> Self:
        """Embed the vocabulary and set up the planner; forgets all answers."""
        self.planner = self._new_planner() if self._instance is None else self._instance
        if self._instance is not None and self._instance.can_reset:
            self._instance.reset()
        self._answers, self._num_answers = None, 0
        return self

    def _new_planner(self) -> Planner:
        require(self.base, "features", who=self.name)
        vocabulary, rows = self.base.vocabulary, self.base.features
        if self.feedback != "state":
            require(self.base, "encoder", who=self.name)
        features = option_features(self.feedback, vocabulary, rows, getattr(self.base, "encoder", None))
        return make_planner(
            self.name,
            vocabulary,
            features,
            prior=self._prior(rows),
            num_options=self.num_options,
            seed=self.seed,
            episodes=self.episodes,
            **self.planner_options,
        )

    def _prior(self, rows: NDArray[np.floating]) -> TastePrior:
        if self.prior is not None:
            return self.prior
        if self.posterior == "vocabulary":
            return VocabularyPrior(rows)
        if self.posterior is None:
            prior = planner_class(self.name).default_prior(rows)
            if not isinstance(prior, GaussianPrior):
                return prior
        return self._isotropic(rows.shape[1])

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """The planner's tokens; finished lanes get action 0. See the base class.

        Raises:
            ValueError: If the lanes are no whole number of groups of K, or the lanes of a group are not in step.
        """
        planner = self._ready()
        observations, single = self._batch(observation)
        groups = self._groups(observations, single)
        steps = self._steps(observations, state, episode_start)
        actions = np.zeros(len(observations), dtype=np.int64)
        for group in groups:
            step = int(steps[group.start])
            if (steps[group] != step).any():
                raise ValueError(f"Expected the lanes of a group in step, got {steps[group].tolist()}.")
            if step < self.mdp.horizon:
                actions[group] = planner.ask(observations[group, :step].astype(np.int64))
        return actions, (steps + 1,)

    def _arguments(self) -> dict[str, Any]:
        if self._instance is not None:
            raise TypeError(f"Expected a planner given by name, so that the agent can be saved; got {self._instance!r}")
        arguments = {"planner": self.name, "feedback": self.feedback, "posterior": self.posterior}
        return {**super()._arguments(), **arguments, **self.planner_options}


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """The options as values that JSON can hold, since agents are saved with them."""
    plain = {name: _listed(value) for name, value in options.items()}
    for name, value in plain.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise TypeError(
                f"Expected {name} of names, numbers and arrays, got {value!r}: the agent is saved with it, and a rule "
                "is given by its name"
            ) from None
    return plain


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(inner) for key, inner in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
