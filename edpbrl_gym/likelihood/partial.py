"""The best options in order, as many as the person names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from math import perm
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood.formats import Input, Keys, Texts, Words
from edpbrl_gym.likelihood.logits import checked_uniforms, checked_values
from edpbrl_gym.likelihood.plackett_luce import PlackettLuce, chosen_in_turn
from edpbrl_gym.likelihood.response import Kind, Response

__all__ = ["PartialRanking"]

_MAX_OUTCOMES = 40_320  # orders that are listed: 8!, and 12 options with 4 taps


@dataclass(frozen=True)
class PartialRanking(PlackettLuce):
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
    told: ClassVar[tuple[Kind, ...]] = kinds
    texts: ClassVar[Texts] = Texts(
        "question_partial", "question_attention_first", "choose_some", "keys_order", "the best few, in order"
    )
    columns: ClassVar[tuple[str, ...]] = ("choice",)

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
        """Probability of each order of ``taps`` taps, (n, K! / (K - taps)!), at most 40,320."""
        _, values = checked_values(options, theta)
        orders = np.array([outcome.order for outcome in self.outcomes(values.shape[1])])
        count, stages = values.shape[1], orders.shape[1]
        logs = np.zeros((len(values), len(orders)))
        for stage in range(stages):
            tapped = list(combinations(range(count), stage))
            log_sums = np.stack(
                [np.logaddexp.reduce(np.delete(values, list(members), axis=1), axis=-1) for members in tapped], axis=1
            )
            place = {sum(1 << option for option in members): index for index, members in enumerate(tapped)}
            masks = (1 << orders[:, :stage]).sum(axis=1).tolist()
            logs += values[:, orders[:, stage]] - log_sums[:, [place[mask] for mask in masks]]
        return np.exp(logs)

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer of ``taps`` taps per question.

        With ``uniforms=None``: by descending utility, ties by the lowest index.
        """
        _, values = checked_values(options, theta)
        order = chosen_in_turn(values, checked_uniforms(uniforms, len(values)), self._stages(values.shape[1]))
        return [Response.partial([int(option) for option in row]) for row in order]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Some options in order."""
        return (Input("order", "place", complete=False),)

    def words(self, num_options: int) -> Words:
        """Of one tap: the best, or more where R was pressed; of several: an order that Enter ends."""
        if self.taps == 1:
            return Words(
                task="choose the one whose picture you would like best",
                question="which do you like best?",
                expected=f"the number of the best option, 1 to {num_options}, or several numbers, best first",
                keys=f"1-{num_options} best   R rank",
                example=f"1-{num_options}",
            )
        return Words(
            task="choose the one whose picture you would like best, then the next best, and so on",
            question="which do you like best, and then?",
            expected=f"numbers from 1 to {num_options}, best first, as many as you like",
            keys=f"1-{num_options} in order, Enter ends",
            example="in order (3 1 4)",
        )

    def keys(self, num_options: int) -> Keys:
        """Of one tap: the best, or an order; of several: an order."""
        return Keys(num_options, 1 if self.taps == 1 else 0, num_options - 1)

    def seconds(self, num_options: int) -> float:
        """As of two answers."""
        return 6.0

    def response(self, given: Sequence[int], num_options: int) -> Response:
        """The options that were named."""
        return Response.partial(given).checked(num_options)

    def from_cells(self, given: Sequence[int], num_options: int) -> Response:
        """The best option alone, or several."""
        return (Response.partial(given) if len(given) != 1 else Response.best(given[0])).checked(num_options)

    def said(self, given: Sequence[int], num_options: int) -> Response:
        """The same; an order that leaves out the last option only is complete."""
        response = self.from_cells(given, num_options)
        if response.kind == "best" or len(response.order) < num_options - 1:
            return response
        return Response.ranking((*response.order, *sorted(set(range(num_options)) - set(response.order))))

    def typed(self, text: str, num_options: int) -> Response:
        """Numbers, which "r" or "rank" may precede."""
        return super().typed(re.sub("^r(ank)?\\b", "", text), num_options)
