"""Answers in several stages: what the formats of rankings (Plackett-Luce) share.

They start with the best of the K options and continue with those that remain. The likelihood is therefore a product of
multinomial logits, and the expected information a sum over the sets that may remain, weighted by their probabilities.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.likelihood.choice import check_options, log_softmax
from edpbrl_gym.likelihood.formats import AnswerFormat
from edpbrl_gym.likelihood.logits import best_terms, checked_responses, checked_utilities, choice_weights, pick
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["PlackettLuce", "chosen_in_turn", "without_chosen"]

_MAX_SETS = 4_096  # sets that may remain, which the information sums over: all of 12 options, 3 taps of up to 28


def without_chosen(values: Floats, chosen: NDArray[np.int64]) -> Floats:
    """The utilities with the chosen option of each row at -inf."""
    remaining = values.copy()
    remaining[np.arange(len(values)), chosen] = -np.inf
    return remaining


def _staged_terms(ordered: Floats, stages: NDArray[np.int64]) -> list[Terms]:
    """The first choices of Plackett-Luce rankings as multinomial logits, stage by stage.

    Args:
        ordered: Features of the K options of m questions, the first choice first, (m, K, d).
        stages: Number of choices of each question that the answer tells, (m,), in 0..K-1.
    """
    terms = []
    for stage in range(int(stages.max(initial=0))):
        told = ordered if (stages > stage).all() else ordered[stages > stage]
        offsets = np.zeros(told.shape[:2])
        offsets[:, :stage] = -np.inf
        terms.append(Terms(told, offsets, np.full(len(told), stage)))
    return terms


def _staged_weights(values: Floats, stages: int) -> Floats:
    """Information of the first ``stages`` choices of a Plackett-Luce ranking, (n, K, K), from utilities (n, K).

    The sum over the sets R that may remain before one of these choices of P(R) (diag(p_R) - p_R p_R'), with p_R the
    choice probabilities among R. The recursion starts at P(all) = 1; each set R adds P(R) p_R(i) to P(R without i).
    """
    num_questions, count = values.shape
    weights = np.zeros((num_questions, count, count))
    set_probabilities = {tuple(range(count)): np.ones(num_questions)}
    for size in range(count, count - stages, -1):
        next_probabilities = {members: np.zeros(num_questions) for members in combinations(range(count), size - 1)}
        for members, probability in set_probabilities.items():
            chances = np.exp(log_softmax(values[:, list(members)]))
            rows, columns = np.ix_(members, members)
            weights[:, rows, columns] += probability[:, None, None] * choice_weights(chances)
            for place in range(size):
                next_probabilities[members[:place] + members[place + 1 :]] += probability * chances[:, place]
        set_probabilities = next_probabilities
    return weights


def chosen_in_turn(values: Floats, uniforms: Floats | None, stages: int) -> NDArray[np.int64]:
    """The first ``stages`` choices of Plackett-Luce rankings, (n, stages); without draws by descending utility."""
    order = np.empty((len(values), stages), dtype=np.int64)
    remaining = values
    for stage in range(stages):
        order[:, stage], uniforms = pick(remaining, uniforms)
        if stage < stages - 1:
            remaining = without_chosen(remaining, order[:, stage])
    return order


class PlackettLuce(AnswerFormat):
    """The first choices of a Plackett-Luce ranking: what its whole and its top have in common.

    Attributes:
        name: Name of the format.
        told: Kinds of answers that it takes.
    """

    name: ClassVar[str]
    told: ClassVar[tuple[Kind, ...]]

    @abstractmethod
    def _stages(self, num_options: int) -> int:
        """Number of choices that the information is about."""

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """One term for each choice among two or more options, stage by stage, padded to K alternatives."""
        features = check_options(options)
        answers = list(responses)
        by_kind = checked_responses(answers, features, self.told, self.name)
        last = features.shape[1] - 1
        indices, orders = by_kind.pop("best")
        terms = [best_terms(features, indices, orders[:, 0])]
        for indices, orders in by_kind.values():
            if len(indices):
                stages = np.array([min(len(answers[index].order), last) for index in indices])
                terms += _staged_terms(features[indices[:, None], orders], stages)
        return Terms.concatenate(terms)

    def weights(self, values: ArrayLike) -> Floats:
        """Sum over the remaining sets R of P(R) (diag(p_R) - p_R p_R'), (n, K, K), from the utilities (n, K).

        For K > 3 the weights of a whole ranking need not exceed those of :class:`BestWorst` in the Loewner order, since
        its worst is not the last of a Plackett-Luce ranking; at theta = 0 they do.

        Raises:
            ValueError: There are more than 4,096 sets that may remain.
        """
        checked = checked_utilities(values)
        count = checked.shape[1]
        stages = self._stages(count)
        sets = sum(math.comb(count, stage) for stage in range(stages))
        if sets > _MAX_SETS:
            raise ValueError(
                f"Expected at most {_MAX_SETS:,} sets of options that may remain, got {sets:,} before {stages} taps "
                f"among K = {count} options; take fewer taps"
            )
        return _staged_weights(checked, stages)

    def picks(self, num_options: int) -> tuple[int, ...]:
        """The best of those that are left, again and again."""
        return (1,) * self._stages(num_options)

    def mistaken(self, answer: Response, num_options: int, draw: float) -> Response:
        """A uniformly drawn other order of as many options, by its number: the orders are not listed."""
        length = len(answer.order)
        number = 1 + int(draw * (math.perm(num_options, length) - 1))
        options = (*answer.order, *(option for option in range(num_options) if option not in answer.order))
        return Response(answer.kind, tuple(options[i] for i in _permutation(number, num_options, length)))


def _permutation(number: int, size: int, length: int) -> list[int]:
    """The ``length`` of 0..size-1 in order with this number in lexicographic order; number 0 is 0, 1, ..., length-1."""
    remaining, permutation = list(range(size)), []
    for place in range(1, length + 1):
        index, number = divmod(number, math.perm(size - place, length - place))
        permutation.append(remaining.pop(index))
    return permutation
