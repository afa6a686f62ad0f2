"""The best and the worst of the K options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood.choice import check_options, log_softmax
from edpbrl_gym.likelihood.formats import AnswerFormat, Input, Texts, Words
from edpbrl_gym.likelihood.logits import (
    best_terms,
    checked_responses,
    checked_uniforms,
    checked_utilities,
    checked_values,
    choice_weights,
    pick,
)
from edpbrl_gym.likelihood.plackett_luce import without_chosen
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["BestWorst"]


@dataclass(frozen=True)
class BestWorst(AnswerFormat):
    """The best and the worst option: the sequential best-worst logit.

    The best of all by the multinomial logit, then the worst of the rest by one in the negative utilities,

        P(b, w) = exp(v_b) / sum_j exp(v_j) * exp(-v_w) / sum_{j != b} exp(-v_j)

    (Lancsar et al., 2013, after Marley & Louviere, 2005). For K = 3 it is the Plackett-Luce model of the ranking. For
    K > 3 it is close to the first and last place of a Plackett-Luce ranking, but not equal: here the worst is chosen as
    precisely as the best, while the last place of a ranking is merely what remains. The model also accepts "best"
    answers, with one term each. K = 2 is allowed; the worst then adds no information.
    """

    name: ClassVar[str] = "best_worst"
    kinds: ClassVar[tuple[Kind, ...]] = ("best_worst",)
    asked: ClassVar[int] = 3  # of two, the best says it all
    texts: ClassVar[Texts] = Texts(
        "question_best_worst", "question_attention_best", "choose_two", "keys_best_worst", "the best and the worst"
    )
    columns: ClassVar[tuple[str, ...]] = ("choice", "worst")

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """The K (K - 1) pairs in lexicographic order."""
        count = check_count(num_options, "num_options", minimum=2)
        return tuple(Response.best_worst(best, worst) for best, worst in permutations(range(count), 2))

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability of each pair (best, worst), (n, K (K - 1))."""
        _, values = checked_values(options, theta)
        best, worst = np.array([outcome.order for outcome in self.outcomes(values.shape[1])]).T
        return np.exp(log_softmax(values)[:, best] + _worst_given_best(values)[:, best, worst])

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """Two terms for each answer, the second with the negatives of the K - 1 other options, padded to K."""
        features = check_options(options)
        by_kind = checked_responses(responses, features, ("best_worst", "best"), self.name)
        indices, orders = by_kind["best_worst"]
        terms = [best_terms(features, by_kind["best"][0], by_kind["best"][1][:, 0])]
        if len(indices):
            terms.append(best_terms(features, indices, orders[:, 0]))
            offsets = without_chosen(np.zeros((len(indices), features.shape[1])), orders[:, 0])
            terms.append(Terms(-features[indices], offsets, orders[:, 1]))
        return Terms.concatenate(terms)

    def weights(self, values: ArrayLike) -> Floats:
        """Weights of the best, plus the sum over b of P(best = b) times those of the worst of the others, (n, K, K)."""
        checked = checked_utilities(values)
        best = np.exp(log_softmax(checked))
        worst = np.exp(_worst_given_best(checked))
        weights = choice_weights(best)
        for option in range(checked.shape[1]):
            weights += best[:, option, None, None] * choice_weights(worst[:, option])
        return weights

    def picks(self, num_options: int) -> tuple[int, ...]:
        """The best, and the worst of the others."""
        return (1, -1)

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question. With ``uniforms=None``: largest and smallest utility, ties by the lowest index.

        If all utilities are equal, these are options 0 and 1.
        """
        _, values = checked_values(options, theta)
        draws = checked_uniforms(uniforms, len(values))
        best, draws = pick(values, draws)
        worst, _ = pick(without_chosen(-values, best), draws)
        return [Response.best_worst(int(b), int(w)) for b, w in zip(best, worst, strict=True)]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Two options."""
        return (Input("option", "best"), Input("option", "worst"))

    def words(self, num_options: int) -> Words:
        """What the terminal says."""
        return Words(
            task="choose the one whose picture you would like best, then the one you would like least",
            question="which is best, which is worst?",
            expected=f"two numbers from 1 to {num_options}, first the best option and then the worst",
            keys=f"1-{num_options} best, then worst",
            example="best and worst (2 5)",
        )

    def seconds(self, num_options: int) -> float:
        """A little less than two answers take."""
        return 5.0

    def response(self, given: Sequence[int], num_options: int) -> Response:
        """The best and the worst option."""
        return Response("best_worst", tuple(given)).checked(num_options)


def _worst_given_best(values: Floats) -> Floats:
    """Logarithm of P(worst = w | best = b), (n, b, w), -inf on the diagonal."""
    count = values.shape[1]
    remaining = np.repeat(-values[:, None, :], count, axis=1)
    remaining[:, np.arange(count), np.arange(count)] = -np.inf
    return log_softmax(remaining)
