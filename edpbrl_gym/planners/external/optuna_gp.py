"""The preferential sampler of optuna's dashboard as a planner."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.planners.external.pool import (
    answered_pairs,
    check_items,
    check_pair,
    check_prefixes,
    load,
    private_randomness,
)

__all__ = ["OptunaGPPlanner"]


_MAX_FEATURES = 10  # in more dimensions the nearest item is far from the suggestion
_SAME = 1e-5  # relative distance below which features are those of an item: rounding to float32
_PURPOSE = "optuna's preferential sampler"


class OptunaGPPlanner(Planner):
    """optuna-dashboard's `PreferentialGPSampler` on the bounding box of the items.

    The sampler looks for the best point, not for the taste: it takes a sample of a Gaussian process (Matern 3/2, probit
    choices, hyperparameters fitted) given the preferences, and suggests the point of the box with the largest expected
    improvement (S. Takeno et al., "Towards Practical Preferential Bayesian Optimization with Skew Gaussian Processes",
    2023). A question shows the best item so far, which is the choice of the last answer, and the item nearest to the
    suggestion that is neither this one nor in the last question; before the first answer both are drawn at random. What
    the sampler learns is about the items shown, not about its suggestions.

    It estimates no theta; its result is `best_item`. The same arguments and the same calls give the same questions.

    Args:
        items: The pool, (n, d), d <= 10; of equal items only the first is shown.
        num_options: K, 2.
        seed: Seed of the sampler.

    Attributes:
        name: "optuna".
        asked: Number of questions asked.

    Raises:
        ModuleNotFoundError: optuna, its dashboard or BoTorch is not installed.
        ValueError: Arguments out of range.
    """

    name = "optuna"
    needs = ("optuna_dashboard", "botorch")

    def __init__(self, items: ArrayLike, *, num_options: int = 2, seed: int = 0) -> None:
        self.items, self._distinct = check_items(items)
        if self.items.shape[1] > _MAX_FEATURES:
            raise ValueError(f"Expected items of at most {_MAX_FEATURES} features, got {self.items.shape[1]}")
        check_pair(num_options)
        self.num_options = num_options
        self.seed = check_count(seed, "seed", minimum=0)
        self._optuna = load("optuna", _PURPOSE)
        self._samplers = load("optuna_dashboard.preferential.samplers.gp", _PURPOSE)
        self._studies = load("optuna_dashboard.preferential", _PURPOSE)
        low, high = self.items.min(axis=0), self.items.max(axis=0)
        self._columns = np.flatnonzero(low < high)
        real = self._optuna.distributions.FloatDistribution
        self._space = {f"x{i}": real(float(low[i]), float(high[i])) for i in self._columns}
        self.reset()

    def reset(self) -> None:
        """Forget all questions and answers."""
        self.asked = 0
        with self._quiet():
            sampler = self._samplers.PreferentialGPSampler(
                seed=int(np.random.SeedSequence(self.seed).generate_state(1)[0])
            )
            self._study = self._studies.create_study(n_generate=2, sampler=sampler)
        self._trials: dict[int, int] = {}  # item -> number of its trial
        self._best: int | None = None
        self._last: tuple[int, ...] = ()

    def ask(self, prefixes: ArrayLike) -> Indices:
        """The best item so far and a new one, (2,), for prompts without tokens, (2, 0).

        Raises:
            ValueError: Other prefixes.
        """
        check_prefixes(prefixes)
        with self._quiet(), private_randomness(self.seed, self.asked):
            first = self._nearest(self._suggestion(), ()) if self._best is None else self._best
            second = self._nearest(self._suggestion(), (first, *self._last))
        self.asked += 1
        self._last = (first, second)
        return np.array([first, second], dtype=np.int64)

    def tell(self, options: ArrayLike, responses: Sequence[Response | int]) -> None:
        """Learn from n answered pairs.

        Args:
            options: Features of the compared items of the pool, (n, 2, d).
            responses: The answers, (n,); an integer is the better option.

        Raises:
            ValueError: Shapes that don't fit, features of no item, or answers other than the best option.
        """
        pairs = answered_pairs(options, responses, self.items.shape[1])
        preferences = [(self._item(better), self._item(worse)) for better, worse in pairs]
        with self._quiet():
            for better, worse in preferences:
                self._study.report_preference(self._trial(better), self._trial(worse))
                self._best = better

    def best_item(self) -> int:
        """The item that the sampler would recommend: the choice of the last answer.

        Raises:
            ValueError: No answers yet.
        """
        if self._best is None:
            raise ValueError("Expected at least one answer, got none; there is no best item yet")
        return self._best

    @property
    def estimate(self) -> NoReturn:
        """Not available.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError("optuna's preferential sampler estimates no taste (theta); best_item() is its answer")

    @property
    def posterior(self) -> NoReturn:
        """Not available.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError("optuna's preferential sampler has no posterior of a taste; best_item() is its answer")

    def _suggestion(self) -> Floats:
        """A point of the box, (varying features,)."""
        trial = self._study.ask(self._space)
        # the suggestion itself is not shown: the trial of the nearest item replaces it
        self._study._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return np.array([trial.params[name] for name in self._space])

    def _nearest(self, point: Floats, without: tuple[int, ...]) -> int:
        """The nearest item not in ``without``; where that leaves none, the nearest one that is not ``without[0]``."""
        distances = np.linalg.norm(self.items[self._distinct][:, self._columns] - point, axis=1)
        order = self._distinct[np.argsort(distances, kind="stable")]
        fresh = order[~np.isin(order, without)]
        return int(fresh[0] if len(fresh) else order[order != without[0]][0])

    def _item(self, features: Floats) -> int:
        distances = np.abs(self.items[self._distinct] - features).max(axis=1)
        nearest = int(distances.argmin())
        if distances[nearest] > _SAME * max(1.0, float(np.abs(features).max())):
            raise ValueError(
                f"Expected options that are items of the pool, got one that is {distances[nearest]:.2g} away from the "
                "nearest of them"
            )
        return int(self._distinct[nearest])

    def _trial(self, item: int) -> Any:
        """The trial of an item, created with the first answer about it."""
        if item not in self._trials:
            values = self.items[item, self._columns].tolist()
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    state=self._optuna.trial.TrialState.COMPLETE,
                    value=0.0,  # a study of preferences has none, but a complete trial must
                    params=dict(zip(self._space, values, strict=True)),
                    distributions=self._space,
                )
            )
            self._trials[item] = self._study.get_trials(deepcopy=False)[-1].number
        return self._study.get_trials(deepcopy=False)[self._trials[item]]

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Without optuna's log lines for each study and its warning that the first points are random."""
        logging = self._optuna.logging
        before = logging.get_verbosity()
        logging.set_verbosity(logging.WARNING)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Dynamic search space detected")
                yield
        finally:
            logging.set_verbosity(before)
