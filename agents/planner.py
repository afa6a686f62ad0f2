"""The agent that asks through a planner, one planner for all groups of lanes."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.agents.base import EpisodeStart, State
from edpbrl_gym.agents.tabular import TabularAgent, require
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.planners import ComposedFeatures, Planner, TokenFeatures
from edpbrl_gym.planners.registry import make_planner, merged_options, planner_class, planner_options

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons

__all__ = ["PlannerAgent"]


class PlannerAgent(TabularAgent):
    """Plays a planner through the standard API, one planner for all groups of K lanes.

    ``observe`` learns from all answers so far; call it whenever answers arrive, ideally after every step (with a
    `PreferenceQuery`: ``agent.observe(venv.comparisons)``). Groups that play side by side ask different questions
    from the same answers; with one group and ``observe`` after every step, each question of an episode uses all answers
    before it. ``planner.think()`` while the person looks at the options spares them long waits.

    A saved agent keeps its answers and what was asked and planned, and estimates afresh when it is loaded.

    Args:
        env: A prompt environment (with ``.vocabulary``, ``.features`` and, for partial prompts, ``.encoder``).
        planner: A name of ``edpbrl_gym.planners.PLANNERS``, an import string, or a `Planner`; an agent made with a
            `Planner` can't be saved.
        feedback: What is compared: "truncated" (partial prompts) or "state" (the last token).
        prior: A proper prior of theta, taken as it is; None: see ``posterior``.
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
        feedback: Literal["truncated", "state"] = "truncated",
        prior: GaussianPrior | None = None,
        posterior: Literal["ridge", "vocabulary"] | None = None,
        **arguments: Any,
    ) -> None:
        instance = planner if isinstance(planner, Planner) else None
        self.name = planner.name if isinstance(planner, Planner) else planner
        known = [] if instance else planner_options(self.name)
        options = _plain({name: arguments.pop(name) for name in known if name in arguments})
        super().__init__(env, **arguments)
        require(self.base, "vocabulary", who=self.name)
        self.feedback = check_choice_of(feedback, "feedback", ("truncated", "state"))
        self.posterior = posterior
        if posterior is not None:
            check_choice_of(posterior, "posterior", ("ridge", "vocabulary"))
        if not isinstance(prior, GaussianPrior | None):
            raise TypeError(f"Expected prior to be a GaussianPrior or None, got {type(prior).__name__}")
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
        self.planner: Planner | None = None
        self._instance = instance
        self._answers: Comparisons | None = None
        self._num_answers = 0

    @classmethod
    def needed_packages(cls, *, planner: str = "adaptive", **fixed: Any) -> tuple[tuple[str, str], ...]:
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
        features: ComposedFeatures | TokenFeatures = TokenFeatures(vocabulary, rows)
        if self.feedback == "truncated":
            require(self.base, "encoder", who=self.name)
            features = ComposedFeatures(vocabulary, rows, self.base.encoder)
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

    def _prior(self, rows: NDArray[np.floating]) -> VocabularyPrior | GaussianPrior:
        if self.prior is not None:
            return self.prior
        if self.posterior == "vocabulary":
            return VocabularyPrior(rows)
        if self.posterior is None:
            prior = planner_class(self.name).default_prior(rows)
            if not isinstance(prior, GaussianPrior):
                return prior
        if not self.regularization > 0:
            raise ValueError("Expected regularization (lambda) > 0, got 0; rules need a proper posterior")
        return GaussianPrior.isotropic(rows.shape[1], self.regularization)

    def observe(self, comparisons: Comparisons) -> None:
        """Learn from all answers so far; those it knows already come first, in the same order."""
        planner = self._ready()
        if len(comparisons) < self._num_answers:
            planner.reset()
            self._num_answers = 0
        new = comparisons.features[self._num_answers :]
        if len(new):
            planner.tell(new, comparisons.responses[self._num_answers :])
        self._answers, self._num_answers = comparisons, len(comparisons)

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

    def _ready(self) -> Planner:
        if self.planner is None:
            raise RuntimeError(f"The agent {self.name!r} has no planner yet; call learn() first.")
        return self.planner

    def _arguments(self) -> dict[str, Any]:
        if self._instance is not None:
            raise TypeError(f"Expected a planner given by name, so that the agent can be saved; got {self._instance!r}")
        arguments = {"planner": self.name, "feedback": self.feedback, "posterior": self.posterior}
        return {**super()._arguments(), **arguments, **self.planner_options}

    def _save(self, folder: Path) -> None:
        answers, questions, prior = folder / "answers.parquet", folder / "questions.npz", folder / "prior.npz"
        for old in (answers, questions, prior):  # of an agent saved here before
            old.unlink(missing_ok=True)
        if self.prior is not None:
            with replacing(prior) as part, open(part, "wb") as file:
                np.savez(file, precision=self.prior.precision, mean=self.prior.mean)
        if self._answers is not None:
            self._answers.to_parquet(answers)
        # an agent that has not learned has no questions; the empty file says so
        with replacing(questions) as part, open(part, "wb") as file:
            np.savez_compressed(file, **({} if self.planner is None else self.planner.questions()))

    def _load(self, folder: Path) -> None:
        from edpbrl_gym.comparisons import Comparisons

        if (folder / "prior.npz").is_file():
            with np.load(folder / "prior.npz") as arrays:
                self.prior = GaussianPrior.from_precision(arrays["precision"], arrays["mean"])
        with _reading(folder / "questions.npz") as path, np.load(path, allow_pickle=False) as arrays:
            questions = dict(arrays)
        if not questions:
            return  # it had not learned
        planner = self.learn()._ready()
        with _reading(folder / "questions.npz"):
            planner.restore_questions(questions)
        if (folder / "answers.parquet").is_file():
            self.observe(Comparisons.from_parquet(folder / "answers.parquet"))


@contextmanager
def _reading(path: Path) -> Iterator[Path]:
    try:
        yield path
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"Expected the questions of a saved agent in {path}, got {error}; save it again.") from error


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
