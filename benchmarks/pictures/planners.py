"""The planners of the replay, by name: random questions, and all of the library's."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.pictures.replay import Asked, MakePlanner
from edpbrl_gym._arrays import Indices
from edpbrl_gym.planners import PLANNERS as LIBRARY
from edpbrl_gym.planners import make_planner
from edpbrl_gym.planners.option_features import TokenFeatures
from edpbrl_gym.vocabulary import Vocabulary


class RandomQuestions:
    """Different askable items, each question drawn anew."""

    def __init__(self, asked: Asked, estimator: Any, rng: np.random.Generator) -> None:
        self.rng = rng

    def ask(self, asked: Asked) -> Indices:
        """See ``Planner``."""
        return self.rng.choice(asked.rater.askable, asked.form.options, replace=False)


class LibraryPlanner:
    """A planner of the library on the pool of a person's askable items, with the prior of a ``FeatureEstimator``."""

    def __init__(self, name: str, asked: Asked, estimator: Any, rng: np.random.Generator) -> None:
        rows = estimator.rows(asked)[asked.rater.askable].astype(np.float32)
        vocabulary = Vocabulary(("picture",), (tuple(f"item {place}" for place in asked.rater.askable.tolist()),))
        model = None if asked.form.model.name == "best" else asked.form.model
        self.planner = make_planner(
            name,
            vocabulary,
            TokenFeatures(vocabulary, rows),
            prior=estimator.prior,
            num_options=asked.form.options,
            seed=int(rng.integers(2**31)),
            model=model,
        )
        self.told, self.rows = 0, rows

    def ask(self, asked: Asked) -> Indices:
        """See ``Planner``."""
        askable = asked.rater.askable
        for question, response in zip(asked.questions[self.told :], asked.responses[self.told :], strict=True):
            self.planner.tell(self.rows[np.searchsorted(askable, question)][None], [response])
        self.told = len(asked.questions)
        return askable[self.planner.ask(np.empty((asked.form.options, 0), dtype=np.int64))]


def _library(name: str) -> MakePlanner:
    return lambda asked, estimator, rng: LibraryPlanner(name, asked, estimator, rng)


# a planner of one's own is a class with ``ask`` and a line here
PLANNERS: dict[str, MakePlanner] = {**{name: _library(name) for name in LIBRARY}, "random": RandomQuestions}
