"""The agent that learns while it asks: every next token is chosen by what the answers so far leave open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.agents.base import EpisodeStart, State
from edpbrl_gym.agents.tabular import TabularAgent, require
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.selection import AdaptivePlanner, ComposedFeatures, TokenFeatures
from edpbrl_gym.selection.planner import SCORES, Score

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons

__all__ = ["AdaptiveAgent"]


class AdaptiveAgent(TabularAgent):
    """Plays `AdaptivePlanner` through the standard API, one planner for all groups of K lanes.

    ``observe`` takes in all answers so far; call it as often as answers come, after every step at best (with a
    `PreferenceQuery`: ``agent.observe(venv.comparisons)``). Groups that play side by side ask different questions
    from the same knowledge; with one group and ``observe`` after every step the questions of an episode use all answers
    that came before it. ``planner.think()`` while the person looks at the options spares them long waits.

    A saved agent keeps its answers and the number of its questions, and estimates afresh when it is loaded.

    Args:
        env: A prompt environment (with ``.vocabulary``, ``.features`` and, for partial prompts, ``.encoder``).
        feedback: What is compared: "truncated" (partial prompts) or "state" (the last token).
        mode: "learn" the taste, or find the "best" prompt.
        score: See `AdaptivePlanner`.
        draws: See `AdaptivePlanner`.
        memory: See `AdaptivePlanner`.
        prior: A proper prior of theta, taken as it is; None: `VocabularyPrior` of the environment's tokens, with its
            scale from the answers.
        **arguments: See ``Agent``. ``regularization`` and ``criterion`` are not used.

    Attributes:
        planner: What asks and estimates, after ``learn``: its ``estimate`` and ``posterior``.

    Raises:
        TypeError: If the environment has no vocabulary, or in ``learn`` no features or encoder.
        ValueError: If an option is unknown.
    """

    name = "adaptive"

    def __init__(
        self,
        env: Any,
        *,
        feedback: Literal["truncated", "state"] = "truncated",
        mode: Literal["learn", "best"] = "learn",
        score: Score = "information",
        draws: int = 16,
        memory: int | None = None,
        prior: GaussianPrior | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(env, **arguments)
        require(self.base, "vocabulary", who=self.name)
        for value, option, known in (
            (feedback, "feedback", ("truncated", "state")),
            (mode, "mode", ("learn", "best")),
            (score, "score", SCORES),
        ):
            check_choice_of(value, option, known)
        self.feedback, self.mode, self.score = feedback, mode, score
        self.draws = check_count(draws, "draws", minimum=0)
        self.memory = None if memory is None else check_count(memory, "memory (answers)")
        if not isinstance(prior, GaussianPrior | None):
            raise TypeError(f"Expected prior to be a GaussianPrior or None, got {type(prior).__name__}")
        self.prior = prior
        self.planner: AdaptivePlanner | None = None
        self._answers: Comparisons | None = None
        self._told = 0

    def learn(self) -> Self:
        """Embed the vocabulary and set up the planner; forgets all answers."""
        require(self.base, "features", who=self.name)
        vocabulary, rows = self.base.vocabulary, self.base.features
        options: ComposedFeatures | TokenFeatures = TokenFeatures(vocabulary, rows)
        if self.feedback == "truncated":
            require(self.base, "encoder", who=self.name)
            options = ComposedFeatures(vocabulary, rows, self.base.encoder)
        self.planner = AdaptivePlanner(
            vocabulary,
            options=options,
            prior=VocabularyPrior(rows) if self.prior is None else self.prior,
            num_options=self.num_policies,
            seed=self.seed,
            mode=self.mode,
            score=self.score,
            draws=self.draws,
            memory=self.memory,
        )
        self._answers, self._told = None, 0
        return self

    def observe(self, comparisons: Comparisons) -> None:
        """Take in all answers so far; those that it knows already come first, in the same order."""
        planner = self._ready()
        if len(comparisons) < self._told:
            planner.reset()
            self._told = 0
        new = comparisons.features[self._told :]
        if len(new):
            planner.tell(new, [int(choice) for choice in comparisons.choice[self._told :]])
        self._answers, self._told = comparisons, len(comparisons)

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
        options = self.num_policies
        if single or len(observations) % options:
            raise ValueError(
                f"Expected observations of a multiple of num_policies = {options} lanes, got "
                f"{'a single one' if single else len(observations)}; the options of a question are chosen together."
            )
        steps = self._steps(observations, state, episode_start)
        actions = np.zeros(len(observations), dtype=np.int64)
        for first in range(0, len(observations), options):
            group = slice(first, first + options)
            step = int(steps[first])
            if (steps[group] != step).any():
                raise ValueError(f"Expected the lanes of a group in step, got {steps[group].tolist()}.")
            if step < self.mdp.horizon:
                actions[group] = planner.ask(observations[group, :step].astype(np.int64))
        return actions, (steps + 1,)

    def _ready(self) -> AdaptivePlanner:
        if self.planner is None:
            raise RuntimeError(f"The agent {self.name!r} has no planner yet; call learn() first.")
        return self.planner

    def _arguments(self) -> dict[str, Any]:
        own = {"feedback": self.feedback, "mode": self.mode, "score": self.score, "draws": self.draws}
        return {**super()._arguments(), **own, "memory": self.memory}

    def _save(self, folder: Path) -> None:
        answers, asked, prior = folder / "answers.parquet", folder / "asked.json", folder / "prior.npz"
        for old in (answers, asked, prior):  # of an agent saved here before
            old.unlink(missing_ok=True)
        if self.prior is not None:
            np.savez(prior, precision=self.prior.precision, mean=self.prior.mean)
        if self._answers is not None:
            self._answers.to_parquet(answers)
        if self.planner is not None:
            asked.write_text(json.dumps(self.planner.asked), encoding="utf-8")

    def _load(self, folder: Path) -> None:
        from edpbrl_gym.comparisons import Comparisons

        if (folder / "prior.npz").is_file():
            with np.load(folder / "prior.npz") as stored:
                self.prior = GaussianPrior.from_precision(stored["precision"], stored["mean"])
        if not (folder / "asked.json").is_file():
            return  # it had not learned
        planner = self.learn()._ready()
        if (folder / "answers.parquet").is_file():
            self.observe(Comparisons.from_parquet(folder / "answers.parquet"))
        planner.asked = int(json.loads((folder / "asked.json").read_text(encoding="utf-8")))
