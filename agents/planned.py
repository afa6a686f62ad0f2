"""Agents that ask through a planner: one planner for all groups of lanes, told what was answered."""

from __future__ import annotations

import json
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.agents.base import EpisodeStart, State
from edpbrl_gym.agents.tabular import TabularAgent, require
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners import ComposedFeatures, Planner, TokenFeatures

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons

__all__ = ["PlannerAgent"]


PlannerT = TypeVar("PlannerT", bound=Planner)


class PlannerAgent(TabularAgent, Generic[PlannerT]):
    """Plays a planner through the standard API, one planner for all groups of K lanes.

    ``observe`` takes in all answers so far; call it as often as answers come, after every step at best (with a
    `PreferenceQuery`: ``agent.observe(venv.comparisons)``). Groups that play side by side ask different questions
    from the same knowledge; with one group and ``observe`` after every step the questions of an episode use all answers
    that came before it.

    A saved agent keeps its answers and the number of its questions, and estimates afresh when it is loaded. A subclass
    makes the planner (``_make_planner``).

    Args:
        env: A prompt environment (with ``.vocabulary``, ``.features`` and, for partial prompts, ``.encoder``).
        feedback: What is compared: "truncated" (partial prompts) or "state" (the last token).
        prior: A proper prior of theta, taken as it is; None: the agent's own.
        **arguments: See ``Agent``.

    Attributes:
        planner: What asks and estimates, after ``learn``: its ``estimate`` and ``posterior``.

    Raises:
        TypeError: If the environment has no vocabulary, or in ``learn`` no features or encoder.
        ValueError: If an option is unknown.
    """

    def __init__(
        self,
        env: Any,
        *,
        feedback: Literal["truncated", "state"] = "truncated",
        prior: GaussianPrior | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(env, **arguments)
        require(self.base, "vocabulary", who=self.name)
        check_choice_of(feedback, "feedback", ("truncated", "state"))
        self.feedback = feedback
        if not isinstance(prior, GaussianPrior | None):
            raise TypeError(f"Expected prior to be a GaussianPrior or None, got {type(prior).__name__}")
        self.prior = prior
        self.planner: PlannerT | None = None
        self._answers: Comparisons | None = None
        self._told = 0

    @abstractmethod
    def _make_planner(self, options: ComposedFeatures | TokenFeatures, rows: NDArray[Any]) -> PlannerT:
        """A new planner.

        Args:
            options: Features of options, as ``feedback`` wants them.
            rows: Embeddings of the tokens, (N, d).
        """

    def learn(self) -> Self:
        """Embed the vocabulary and set up the planner; forgets all answers."""
        require(self.base, "features", who=self.name)
        vocabulary, rows = self.base.vocabulary, self.base.features
        options: ComposedFeatures | TokenFeatures = TokenFeatures(vocabulary, rows)
        if self.feedback == "truncated":
            require(self.base, "encoder", who=self.name)
            options = ComposedFeatures(vocabulary, rows, self.base.encoder)
        self.planner = self._make_planner(options, rows)
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
            planner.tell(new, [Response.best(int(choice)) for choice in comparisons.choice[self._told :]])
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
        options = self.num_options
        if single or len(observations) % options:
            raise ValueError(
                f"Expected observations of a multiple of num_options = {options} lanes, got "
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

    def _ready(self) -> PlannerT:
        if self.planner is None:
            raise RuntimeError(f"The agent {self.name!r} has no planner yet; call learn() first.")
        return self.planner

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "feedback": self.feedback}

    def _save(self, folder: Path) -> None:
        answers, asked, prior = folder / "answers.parquet", folder / "asked.json", folder / "prior.npz"
        for old in (answers, asked, prior):  # of an agent saved here before
            old.unlink(missing_ok=True)
        if self.prior is not None:
            with replacing(prior) as part, open(part, "wb") as file:
                np.savez(file, precision=self.prior.precision, mean=self.prior.mean)
        if self._answers is not None:
            self._answers.to_parquet(answers)
        if self.planner is not None:
            with replacing(asked) as part:
                part.write_text(json.dumps(self.planner.asked), encoding="utf-8")

    def _load(self, folder: Path) -> None:
        from edpbrl_gym.comparisons import Comparisons

        if (folder / "prior.npz").is_file():
            with np.load(folder / "prior.npz") as stored:
                self.prior = GaussianPrior.from_precision(stored["precision"], stored["mean"])
        if not (folder / "asked.json").is_file():
            return  # it had not learned
        planner = self.learn()._ready()
        self._load_questions(folder)
        if (folder / "answers.parquet").is_file():
            self.observe(Comparisons.from_parquet(folder / "answers.parquet"))
        planner.asked = int(json.loads((folder / "asked.json").read_text(encoding="utf-8")))

    def _load_questions(self, folder: Path) -> None:  # noqa: B027  (optional for subclasses)
        """Read what the planner needs to know of its questions, before the answers are told."""
