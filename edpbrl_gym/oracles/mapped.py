"""Users whose taste is not linear in the features that the questions show."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_number
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.features.maps import map_rows
from edpbrl_gym.oracles.base import Answers, Oracle, check_oracle

if TYPE_CHECKING:
    from edpbrl_gym.features import FeatureMap

__all__ = ["MappedUser", "TwoStyles"]


class TwoStyles:
    """The utility of a person who likes two styles, but not their mixture; a feature map with one feature.

        u(x) = max(a . x, b . x) - dislike * min(a . x, b . x)
             = (1 - dislike) / 2 (a + b) . x + (1 + dislike) / 2 |(a - b) . x|

    The second line splits it into a linear taste and an even function of (a - b) . x, of which no linear taste knows
    anything.

    Args:
        first: Direction a of the first style, (d,).
        second: Direction b of the second, (d,).
        dislike: How much of the weaker style is held against an option, >= 0; 0 likes mixtures.

    Raises:
        ValueError: Directions of different lengths, NaN, or a negative dislike.
    """

    dimension = 1

    def __init__(self, first: ArrayLike, second: ArrayLike, dislike: float = 0.5) -> None:
        self.first: Floats = check_array(first, "first", shape=("d",))
        self.second: Floats = check_array(second, "second", shape=self.first.shape, hint="one space for both styles")
        self.dislike = check_number(dislike, "dislike", minimum=0.0)
        self.inputs = len(self.first)

    @property
    def name(self) -> str:
        """The utility and its parameters; the directions by their sha256."""
        digest = hashlib.sha256(np.stack([self.first, self.second]).astype("<f8").tobytes()).hexdigest()
        return f"two styles({digest[:16]}, dislike {self.dislike!r})"

    def __call__(self, rows: ArrayLike) -> Floats:
        """Utilities (..., 1) of rows (..., d)."""
        array = np.asarray(rows, dtype=np.float64)
        left, right = array @ self.first, array @ self.second
        return np.asarray(np.maximum(left, right) - self.dislike * np.minimum(left, right))[..., None]


class MappedUser:
    """A user who judges the options by features of their own, a map of those that are shown.

    ``MappedUser(SyntheticUser([1.0], mode="sampled", scale=20), TwoStyles(a, b))`` ranks options by u(x); with a map to
    many features it has a taste that is linear in them.

    Args:
        oracle: Answers about mapped features.
        feature_map: The map; one from d features to one is a utility.

    Raises:
        TypeError: An object that is no oracle.
    """

    def __init__(self, oracle: Oracle, feature_map: FeatureMap) -> None:
        check_oracle(oracle)
        self.oracle, self.feature_map = oracle, feature_map
        self.name = oracle.name

    def answer(self, queries: Queries) -> Answers:
        """Answer every question, in order.

        Raises:
            ValueError: Questions with another number of features than the map takes.
        """
        mapped = map_rows(self.feature_map, queries.features)
        answers = self.oracle.answer(replace(queries, features=mapped.astype(np.float32)))
        return replace(answers, details={**answers.details, "utility": self.feature_map.name})

    def describe(self) -> dict[str, Any]:
        """All settings of the oracle, and the map."""
        describe = getattr(self.oracle, "describe", None)
        described = describe() if callable(describe) else {"oracle": self.name}
        return {**described, "utility": self.feature_map.name}
