"""Held-out and training episodes of each fold.

The paper fixes the test windows: with 60 episodes, fold 0 tests on episodes 50-59, fold 1 on 40-49, fold 2 on 30-39,
and all others train. It doesn't say which of the 50 train at smaller sizes. Here the training episodes of a fold are
taken in cyclic order from the one after its test window: 10 episodes are 0-9 in fold 0, 50-59 in fold 1, 40-49 in fold
2. So a smaller training set is always the beginning of a larger one, and at small sizes the folds differ in their
training episodes, not only in their test windows. All of them are the paper's at 50. (The episodes of a static design
are independent draws, so their order is irrelevant.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_count

__all__ = ["Fold", "make_folds"]


@dataclass(frozen=True)
class Fold:
    """One split of the episodes.

    Attributes:
        number: Number of the fold, from 0.
        test: Held-out episodes, ascending.
        train: All others, in the order in which they join the training set.
    """

    number: int
    test: tuple[int, ...]
    train: tuple[int, ...]

    def training(self, size: int) -> tuple[int, ...]:
        """The training episodes at a size.

        Raises:
            ValueError: If there are fewer.
        """
        check_count(size, "train size")
        if size > len(self.train):
            raise ValueError(f"Expected a train size of at most {len(self.train)} episodes, got {size}")
        return self.train[:size]

    def masks(self, episode: NDArray[np.int64], size: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which questions train and which test, given the episode of each, two (n,) arrays."""
        return np.isin(episode, self.training(size)), np.isin(episode, self.test)


def make_folds(episodes: int, test_episodes: int, folds: int) -> tuple[Fold, ...]:
    """Return the folds: windows of ``test_episodes`` from the end of the ``episodes`` backwards.

    Raises:
        ValueError: If the windows don't fit, or no episode remains for training.
    """
    check_count(episodes, "episodes (T)", minimum=2)
    check_count(test_episodes, "test_episodes")
    check_count(folds, "folds")
    if folds * test_episodes > episodes or test_episodes == episodes:
        raise ValueError(
            f"Expected {folds} test windows of {test_episodes} episodes within T = {episodes} episodes and at least "
            "one episode besides each window; use more episodes, fewer folds or smaller windows"
        )
    result = []
    for number in range(folds):
        end = episodes - number * test_episodes
        start = end - test_episodes
        train = [(end + place) % episodes for place in range(episodes - test_episodes)]
        result.append(Fold(number, tuple(range(start, end)), tuple(train)))
    return tuple(result)
