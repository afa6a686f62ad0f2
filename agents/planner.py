"""The agent that asks through a planner, one planner for all groups of lanes, and what it shares with others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._files import reading
from edpbrl_gym._validation import Feedback, check_choice_of, check_feedback
from edpbrl_gym.agents.base import Agent, EpisodeStart, State, jsonable, write_arrays
from edpbrl_gym.agents.tabular import TabularAgent, require
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.priors import PRIOR_FILES, PRIORS, load_prior
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.planners import Planner
from edpbrl_gym.planners.option_features import option_features
from edpbrl_gym.planners.registry import make_planner, merged_options, planner_class, planner_options

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons

__all__ = ["POSTERIORS", "AskingAgent", "PlannerAgent", "checked_prior"]

POSTERIORS = ("vocabulary", *PRIORS)
"""Priors by name; "vocabulary" is "words" in `PRIORS`."""


class AskingAgent(Agent):
    """An agent whose questions are a planner's; ``learn`` of a subclass makes it.

    A saved agent keeps its answers and what was asked and planned, and estimates afresh when it is loaded.

    Attributes:
        planner: What asks and estimates, after ``learn``: its ``estimate`` and ``posterior``.
        prior: The proper prior of theta or the population that was given, or None.
    """

    planner: Planner | None = None
    prior: TastePrior | None = None
    _answers: Comparisons | None = None
    _num_answers: int = 0

    def observe(self, comparisons: Comparisons) -> None:
        """Learn from all answers so far; those it knows already come first, in the same order.

        Raises:
            ValueError: Questions with another number of options than the agent's.
        """
        planner = self._made(self.planner, "planner")
        if not comparisons.even:
            raise ValueError(
                f"Expected questions of num_options = {self.num_options} options each, as the agent asks, got "
                f"{comparisons.sizes.min()} to {comparisons.num_options}; estimate from them instead, or leave them out"
            )
        if len(comparisons) < self._num_answers:
            planner.reset()
            self._num_answers = 0
        new = comparisons.features[self._num_answers :]
        if len(new):
            planner.tell(new, comparisons.responses[self._num_answers :])
        self._answers, self._num_answers = comparisons, len(comparisons)

    def _groups(self, observations: NDArray[Any], single: bool) -> list[slice]:
        """The K lanes of each question.

        Raises:
            ValueError: If the lanes are no whole number of groups of K.
        """
        options = self.num_options
        if single or len(observations) % options:
            raise ValueError(
                f"Expected observations of a multiple of num_options = {options} lanes, got "
                f"{'a single one' if single else len(observations)}; the options of a question are chosen together."
            )
        return [slice(first, first + options) for first in range(0, len(observations), options)]

    def _named(self, posterior: str, dimension: int) -> TastePrior | str:
        """What `make_prior` takes for a name among `POSTERIORS`: the ridge has this agent's lambda."""
        if posterior == "ridge":
            return self._isotropic(dimension)
        return "words" if posterior == "vocabulary" else posterior

    def _isotropic(self, dimension: int) -> GaussianPrior:
        """N(0, I / lambda)."""
        if not self.regularization > 0:
            raise ValueError("Expected regularization (lambda) > 0, got 0; planners need a proper posterior")
        return GaussianPrior.isotropic(dimension, self.regularization)

    def _save(self, folder: Path) -> None:
        answers, questions = folder / "answers.parquet", folder / "questions.npz"
        for old in (answers, questions, *(folder / name for name in PRIOR_FILES)):  # of an agent saved here before
            old.unlink(missing_ok=True)
        if self.prior is not None:
            self.prior.save(folder / self.prior.file)
        if self._answers is not None:
            self._answers.to_parquet(answers)
        # an agent that has not learned has no questions; the empty file says so
        write_arrays(questions, {} if self.planner is None else self.planner.questions())

    def _load(self, folder: Path) -> None:
        from edpbrl_gym.comparisons import Comparisons

        for file in (folder / name for name in PRIOR_FILES):
            self.prior = load_prior(file) if file.is_file() else self.prior
        path = folder / "questions.npz"
        if not path.is_file():
            raise ValueError(f"Expected the questions of a saved agent in {path}, could not find them; save it again")
        with reading("the questions of a saved agent", path), np.load(path, allow_pickle=False) as arrays:
            questions = dict(arrays)
        if not questions:
            return  # it had not learned
        self.learn()
        planner = self._made(self.planner, "planner")
        with reading("the questions of a saved agent", path):
            planner.restore_questions(questions)
        if (folder / "answers.parquet").is_file():
            self.observe(Comparisons.from_parquet(folder / "answers.parquet"))


def checked_prior(prior: TastePrior | None) -> TastePrior | None:
    """The prior as it is; TypeError for anything that can't be saved."""
    if prior is not None and not getattr(prior, "file", ""):
        raise TypeError(f"Expected prior to be a GaussianPrior, a Population or None, got {type(prior).__name__}")
    return prior


class PlannerAgent(AskingAgent, TabularAgent):
    """Plays a planner through the standard API, one planner for all groups of K lanes.

    ``observe`` learns from all answers so far; call it whenever answers arrive, ideally after every step (with a
    `PreferenceQuery`: ``agent.observe(venv.comparisons)``). Groups that play side by side ask different questions
    from the same answers; with one group and ``observe`` after every step, each question of an episode uses all answers
    before it. ``planner.think()`` while the person looks at the options spares them long waits.

    Args:
        env: A prompt environment (with ``.vocabulary``, ``.features`` and, for partial prompts, ``.encoder``).
        planner: A name of ``edpbrl_gym.planners.PLANNERS``, or an import string.
        feedback: What is compared: "truncated" (partial prompts), "state" (the last token) or "prompt" (complete
            prompts, once an episode; the planner still chooses them token by token).
        prior: A proper prior of theta, taken as it is, or a `Population` of other people; None: see ``posterior``.
        posterior: "vocabulary": `VocabularyPrior` of the environment's tokens, and of other texts where they are few,
            with its scale from the answers; "ridge": N(0, I / lambda) with lambda the ``regularization``; or another
            name of `PRIORS`. None: "ridge" for the rules of the literature, the planner's default for others.
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
        planner: str = "adaptive",
        feedback: Feedback = "truncated",
        prior: TastePrior | None = None,
        posterior: str | None = None,
        **arguments: Any,
    ) -> None:
        self.name = planner
        self.planner_options = jsonable(
            {name: arguments.pop(name) for name in planner_options(planner) if name in arguments}
        )
        super().__init__(env, **arguments)
        require(self.base, "vocabulary", who=self.name)
        self.feedback = check_feedback(feedback)
        self.posterior = posterior
        if posterior is not None:
            check_choice_of(posterior, "posterior", POSTERIORS)
        self.prior = checked_prior(prior)
        cls, merged = planner_class(planner), merged_options(planner, self.planner_options)
        cls.check_options(num_options=self.num_options, **merged)
        self.static = not cls.is_adaptive(**merged)

    @classmethod
    def needed_packages(cls, *, planner: str = "adaptive", **fixed: Any) -> tuple[str, ...]:
        """Those of the planner."""
        return planner_class(planner).needs

    @classmethod
    def option_names(cls, *, planner: str = "adaptive", **fixed: Any) -> list[str]:
        """Those of the class and of the planner."""
        return sorted({*super().option_names(planner=planner, **fixed), *planner_options(planner)})

    def learn(self) -> Self:
        """Embed the vocabulary and set up the planner; forgets all answers."""
        require(self.base, "features", who=self.name)
        vocabulary, rows = self.base.vocabulary, self.base.features
        if self.feedback != "state":
            require(self.base, "encoder", who=self.name)
        features = option_features(self.feedback, vocabulary, rows, getattr(self.base, "encoder", None))
        self.planner = make_planner(
            self.name,
            vocabulary,
            features,
            prior=self._prior(rows),
            num_options=self.num_options,
            seed=self.seed,
            episodes=self.episodes,
            **self.planner_options,
        )
        self._answers, self._num_answers = None, 0
        return self

    def _prior(self, rows: NDArray[np.floating]) -> TastePrior | str | None:
        """What `make_planner` takes; None: its default."""
        if self.prior is not None:
            return self.prior
        if self.posterior is not None:
            return self._named(self.posterior, rows.shape[1])
        return self._isotropic(rows.shape[1]) if planner_class(self.name).default_prior(rows).is_fixed else None

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """The planner's tokens; finished lanes get action 0.

        Raises:
            ValueError: If the lanes are no whole number of groups of K, or the lanes of a group are not in step.
        """
        planner = self._made(self.planner, "planner")
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
        arguments = {"planner": self.name, "feedback": self.feedback, "posterior": self.posterior}
        return {**super()._arguments(), **arguments, **self.planner_options}
