"""The best of the K options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym.likelihood.choice import check_options, choice_probabilities, fisher_information, log_softmax
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
from edpbrl_gym.likelihood.partial import PartialRanking
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["BestOf"]


@dataclass(frozen=True)
class BestOf(AnswerFormat):
    """The best of the K options: the multinomial logit (McFadden, 1974), the paper's model.

    P(best = k) = exp(v_k) / sum_j exp(v_j).
    """

    name: ClassVar[str] = "best"
    kinds: ClassVar[tuple[Kind, ...]] = ("best",)
    texts: ClassVar[Texts] = Texts("question_best", "question_attention", "choose_first", "keys_best", "the best")

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """Responses best 0, ..., best K-1."""
        return tuple(Response.best(option) for option in range(num_options))

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability that each option is best, (n, K)."""
        return choice_probabilities(options, theta)

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """One term for each answer."""
        features = check_options(options)
        by_kind = checked_responses(
            responses, features, ("best",), self.name, "; use the response model of that format"
        )
        indices, orders = by_kind["best"]
        return best_terms(features, indices, orders[:, 0])

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Fisher information, (d, d); see ``choice.fisher_information``."""
        return fisher_information(options, theta)

    def weights(self, values: ArrayLike) -> Floats:
        """diag(p) - p p', (n, K, K), of the utilities (n, K)."""
        return choice_weights(np.exp(log_softmax(checked_utilities(values))))

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question. With ``uniforms=None``: the largest utility, ties by the lowest index."""
        _, values = checked_values(options, theta)
        chosen, _ = pick(values, checked_uniforms(uniforms, len(values)))
        return [Response.best(int(option)) for option in chosen]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """One option."""
        return (Input("option", "best"),)

    def words(self, num_options: int) -> Words:
        """As of the richer format, without several numbers."""
        more = PartialRanking(1).words(num_options)
        return replace(
            more, expected=f"the number of the best option, 1 to {num_options}", keys=f"1-{num_options} best"
        )

    def seconds(self, num_options: int) -> float:
        """An assumption, as are those of the other formats."""
        return 3.0

    def response(self, given: Sequence[int], num_options: int) -> Response:
        """The best option."""
        return Response("best", tuple(given)).checked(num_options)

    def spoken(self, num_options: int) -> AnswerFormat:
        """Who types may also rank some options or all."""
        return PartialRanking(1).spoken(num_options)
