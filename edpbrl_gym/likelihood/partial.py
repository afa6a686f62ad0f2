"""Partial rankings: the person names the best options in order, as far as they care to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import comb, perm
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood.choice import check_options
from edpbrl_gym.likelihood.models import (
    best_terms,
    checked_responses,
    checked_uniforms,
    checked_utilities,
    checked_values,
    information_from_weights,
)
from edpbrl_gym.likelihood.rankings import chosen_in_turn, staged_terms, staged_weights
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["PartialRanking"]


_MAX_OUTCOMES = 40_320  # orders that are listed: 8!, and 12 options with 4 taps
_MAX_SETS = 4_096  # sets that may remain, which the information sums over: all of 12 options, 3 taps of up to 28


@dataclass(frozen=True)
class PartialRanking:
    """The best options in order, as many as the person names: the Plackett-Luce model of the top of a ranking.

    On a grid of pictures the person taps the best, then the best of the rest, and stops when they like. An answer of m
    taps has the probability of these m choices, each among the options not tapped before,

        P(o_1, ..., o_m) = prod_{s=1..m} exp(v_{o_s}) / sum_{j not in o_1..o_{s-1}} exp(v_j)

    (Plackett, 1975; Luce, 1959). One tap is best-of-K; K - 1 taps, or K, are the whole ranking. When a person stops is
    no part of the likelihood: it is taken to tell nothing about the taste beyond the taps themselves (ignorable, Rubin,
    1976). A simulated user makes ``taps`` of them, and the information is that of an answer of so many taps.

    The model accepts answers of any number of taps, and "best" and "ranking" alike.

    Attributes:
        taps: Number of taps of simulated answers and of the information; with K - 1 or fewer options left to tell apart
            (K <= taps) it is K - 1.

    Raises:
        TypeError: taps is not an integer.
        ValueError: taps < 1.
    """

    taps: int = 3

    name: ClassVar[str] = "partial"
    kinds: ClassVar[tuple[Kind, ...]] = ("partial", "best", "ranking")

    def __post_init__(self) -> None:
        object.__setattr__(self, "taps", check_count(self.taps, "taps"))

    def _stages(self, num_options: int) -> int:
        return min(self.taps, check_count(num_options, "num_options", minimum=2) - 1)

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """The K! / (K - taps)! orders of so many taps, in lexicographic order.

        Raises:
            ValueError: There are more than 40,320.
        """
        stages = self._stages(num_options)
        if perm(num_options, stages) > _MAX_OUTCOMES:
            raise ValueError(
                f"Expected at most {_MAX_OUTCOMES:,} orders to list, got {perm(num_options, stages):,} of {stages} "
                f"taps among K = {num_options} options; take fewer taps"
            )
        return tuple(Response.partial(order) for order in permutations(range(num_options), stages))

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability of each order of ``taps`` taps, (n, K! / (K - taps)!).

        Raises:
            ValueError: There are more than 40,320 orders.
        """
        _, values = checked_values(options, theta)
        orders = np.array([outcome.order for outcome in self.outcomes(values.shape[1])])
        count, stages = values.shape[1], orders.shape[1]
        logs = np.zeros((len(values), len(orders)))
        for stage in range(stages):
            tapped = list(combinations(range(count), stage))
            log_sums = np.stack([_log_sum(np.delete(values, list(members), axis=1)) for members in tapped], axis=1)
            place = {sum(1 << option for option in members): index for index, members in enumerate(tapped)}
            masks = (1 << orders[:, :stage]).sum(axis=1).tolist()
            logs += values[:, orders[:, stage]] - log_sums[:, [place[mask] for mask in masks]]
        return np.exp(logs)

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """One term for each tap among two or more options, padded to K alternatives.

        Raises:
            ValueError: An answer other than "partial", "best", "ranking" or "skip", or one that does not match the
                options.
        """
        features = check_options(options)
        answers = list(responses)
        by_kind = checked_responses(answers, features, self.kinds, self.name)
        last = features.shape[1] - 1
        terms = [best_terms(features, by_kind["best"][0], by_kind["best"][1][:, 0])]
        for kind in ("partial", "ranking"):
            indices, orders = by_kind[kind]
            if len(indices):
                taps = np.array([min(len(answers[index].order), last) for index in indices])
                terms += staged_terms(features[indices[:, None], orders], taps)
        return Terms.concatenate(terms)

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Expected Fisher information of ``taps`` taps, (d, d): exact, over the sets that may remain.

        Raises:
            ValueError: There are more than 4,096 such sets.
        """
        features, values = checked_values(options, theta)
        return information_from_weights(features, self.weights(values))

    def weights(self, values: ArrayLike) -> Floats:
        """Sum over the remaining sets R of P(R) (diag(p_R) - p_R p_R'), (n, K, K), from the utilities (n, K).

        Raises:
            ValueError: There are more than 4,096 sets that may remain.
        """
        checked = checked_utilities(values)
        count = checked.shape[1]
        stages = self._stages(count)
        sets = sum(comb(count, stage) for stage in range(stages))
        if sets > _MAX_SETS:
            raise ValueError(
                f"Expected at most {_MAX_SETS:,} sets of options that may remain, got {sets:,} before {stages} taps "
                f"among K = {count} options; take fewer taps"
            )
        return staged_weights(checked, stages)

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer of ``taps`` taps per question.

        With ``uniforms=None``: by descending utility, ties by the lowest index.
        """
        _, values = checked_values(options, theta)
        order = chosen_in_turn(values, checked_uniforms(uniforms, len(values)), self._stages(values.shape[1]))
        return [Response.partial([int(option) for option in row]) for row in order]


def _log_sum(values: Floats) -> Floats:
    """Log sum_j exp(v_j) over the last axis."""
    return np.asarray(np.logaddexp.reduce(values, axis=-1))
