"""What agents that ask through a planner share: answers, and saving them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._files import reading, replacing
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.population import Population
from edpbrl_gym.planners import Planner

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons

__all__ = ["AskingAgent"]

_POPULATION = "population.safetensors"


class AskingAgent(Agent):
    """An agent whose questions are a planner's; ``learn`` of a subclass makes it.

    A saved agent keeps its answers and what was asked and planned, and estimates afresh when it is loaded.

    Attributes:
        planner: What asks and estimates, after ``learn``: its ``estimate`` and ``posterior``.
        prior: The proper prior of theta or the population that was given, or None.
    """

    planner: Planner | None = None
    prior: GaussianPrior | Population | None = None
    _answers: Comparisons | None = None
    _num_answers: int = 0

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

    def _isotropic(self, dimension: int) -> GaussianPrior:
        """N(0, I / lambda)."""
        if not self.regularization > 0:
            raise ValueError("Expected regularization (lambda) > 0, got 0; planners need a proper posterior")
        return GaussianPrior.isotropic(dimension, self.regularization)

    def _ready(self) -> Planner:
        if self.planner is None:
            raise RuntimeError(f"The agent {self.name!r} has no planner yet; call learn() first.")
        return self.planner

    def _save(self, folder: Path) -> None:
        answers, questions, prior = folder / "answers.parquet", folder / "questions.npz", folder / "prior.npz"
        for old in (answers, questions, prior, folder / _POPULATION):  # of an agent saved here before
            old.unlink(missing_ok=True)
        if isinstance(self.prior, Population):
            self.prior.save(folder / _POPULATION)
        elif self.prior is not None:
            with replacing(prior) as part, open(part, "wb") as file:
                np.savez(file, precision=self.prior.precision, mean=self.prior.mean)
        if self._answers is not None:
            self._answers.to_parquet(answers)
        # an agent that has not learned has no questions; the empty file says so
        with replacing(questions) as part, open(part, "wb") as file:
            np.savez_compressed(file, **({} if self.planner is None else self.planner.questions()))

    def _load(self, folder: Path) -> None:
        from edpbrl_gym.comparisons import Comparisons

        if (folder / _POPULATION).is_file():
            self.prior = Population.load(folder / _POPULATION)
        elif (folder / "prior.npz").is_file():
            with np.load(folder / "prior.npz", allow_pickle=False) as arrays:
                self.prior = GaussianPrior.from_precision(arrays["precision"], arrays["mean"])
        path = folder / "questions.npz"
        if not path.is_file():
            raise ValueError(f"Expected the questions of a saved agent in {path}, could not find them; save it again")
        with reading("the questions of a saved agent", path), np.load(path, allow_pickle=False) as arrays:
            questions = dict(arrays)
        if not questions:
            return  # it had not learned
        self.learn()
        planner = self._ready()
        with reading("the questions of a saved agent", path):
            planner.restore_questions(questions)
        if (folder / "answers.parquet").is_file():
            self.observe(Comparisons.from_parquet(folder / "answers.parquet"))
