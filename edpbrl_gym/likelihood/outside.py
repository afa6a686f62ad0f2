"""The best option, or none of them: skips of people who pass over questions that show nothing they like."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym._validation import check_array, check_number
from edpbrl_gym.likelihood.choice import check_options, log_softmax
from edpbrl_gym.likelihood.models import (
    BestOf,
    checked_responses,
    checked_uniforms,
    checked_utilities,
    checked_values,
    choice_weights,
    information_from_weights,
    pick,
)
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["WithOutside"]


@dataclass(frozen=True, eq=False)
class WithOutside:
    """The best of the K options, or a skip because none is good enough: the multinomial logit with an outside option.

    With utilities in level about a reference row r, v_k = theta . (x_k - r),

        P(best = k) = exp(v_k) / (sum_j exp(v_j) + exp(c)),    P(skip) = exp(c) / (sum_j exp(v_j) + exp(c)),

    the classical choice between goods and not buying (McFadden, 1974): one more row, r, with the offset c. So a skip
    says that the best options are below c. Comparisons alone depend on differences; here the level counts, and r says
    what has level 0: take the mean of the vocabulary's embeddings, so that a question of average options has v near 0.
    For c -> -inf it is best-of-K. A person who skips for another reason (in a hurry, no picture loaded) does not skip
    by this model: leave those skips out.

    Attributes:
        offset: c, the utility of choosing none, in the units of v (a taste of inverse temperature s has s times the
            threshold); ``edpbrl_gym.estimation.learn_outside`` learns it.
        reference: r, (d,).

    Raises:
        ValueError: c is not finite, or NaN in the reference.
    """

    offset: float
    reference: Floats

    name: ClassVar[str] = "outside"
    kinds: ClassVar[tuple[Kind, ...]] = ("best", "skip")

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", check_number(self.offset, "offset"))
        object.__setattr__(self, "reference", read_only(check_array(self.reference, "reference", shape=("d",))))

    def __repr__(self) -> str:
        """With the SHA-256 of the reference, so that files can say which model it was."""
        digest = hashlib.sha256(np.ascontiguousarray(self.reference, dtype="<f8").tobytes()).hexdigest()[:16]
        return f"WithOutside(offset={self.offset!r}, reference=sha256:{digest})"

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """Responses best 0, ..., best K-1, skip."""
        return (*BestOf().outcomes(num_options), Response.skip())

    def _levels(self, options: ArrayLike, theta: ArrayLike | None) -> tuple[Floats, Floats]:
        """Options about the reference (n, K, d) and their utilities (n, K)."""
        return checked_values(self._about_reference(options), theta)

    def _about_reference(self, options: ArrayLike) -> Floats:
        features = check_options(options)
        hint = f"the options have {features.shape[2]} features"
        return np.asarray(features - check_array(self.reference, "reference", shape=features.shape[2:], hint=hint))

    def _extended(self, values: Floats) -> Floats:
        """Utilities of the options and of the skip, (n, K + 1)."""
        return np.concatenate([values, np.full((len(values), 1), self.offset)], axis=1)

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probabilities that each option is best, and of a skip (last), (n, K + 1)."""
        return np.exp(log_softmax(self._extended(self._levels(options, theta)[1])))

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """One term for each answer, skips included, with K + 1 rows: the options about the reference, and zeros.

        Raises:
            ValueError: An answer other than "best" or "skip", or one that does not match the options.
        """
        rows = self._about_reference(options)
        answers = list(responses)
        by_kind = checked_responses(answers, rows, ("best",), self.name)
        chosen = np.full(len(rows), rows.shape[1])
        chosen[by_kind["best"][0]] = by_kind["best"][1][:, 0]
        rows = np.concatenate([rows, np.zeros((len(rows), 1, rows.shape[2]))], axis=1)
        return Terms(rows, np.tile([*[0.0] * (rows.shape[1] - 1), self.offset], (len(rows), 1)), chosen)

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Fisher information, (d, d); it does not depend on the answers."""
        features, values = self._levels(options, theta)
        probabilities = np.exp(log_softmax(self._extended(values)))
        with_outside = np.concatenate([features, np.zeros((len(features), 1, features.shape[2]))], axis=1)
        return information_from_weights(with_outside, choice_weights(probabilities))

    def weights(self, values: ArrayLike) -> Floats:
        """diag(p) - p p' of the K options, (n, K, K), from their levels v (n, K).

        Unlike those of the other models its rows do not sum to 0 (but to p_k P(skip)), as a common shift of the options
        matters: the information is sum_n (X_n - r)' W_n (X_n - r).
        """
        probabilities = np.exp(log_softmax(self._extended(checked_utilities(values))))
        return choice_weights(probabilities)[:, :-1, :-1]

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question. With ``uniforms=None``: the most probable, ties by the lowest index, a skip last."""
        _, values = self._levels(options, theta)
        chosen, _ = pick(self._extended(values), checked_uniforms(uniforms, len(values)))
        skip = values.shape[1]
        return [Response.skip() if option == skip else Response.best(int(option)) for option in chosen]
