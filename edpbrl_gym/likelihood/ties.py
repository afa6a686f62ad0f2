"""The best of the K options, or a tie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_number
from edpbrl_gym.likelihood.best import BestOf
from edpbrl_gym.likelihood.choice import check_options, log_softmax
from edpbrl_gym.likelihood.formats import AnswerFormat
from edpbrl_gym.likelihood.logits import (
    checked_responses,
    checked_uniforms,
    checked_utilities,
    checked_values,
    choice_weights,
    pick,
)
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["WithTies"]


@dataclass(frozen=True)
class WithTies(BestOf):
    """The best of the K options, or "can't tell": Davidson's model of ties (1970), for K options.

    P(best = k) is proportional to exp(v_k), P(tie) to nu * (prod_k exp(v_k))^(1/K) = nu * exp(mean of v). This is a
    multinomial logit with one more row, the mean of the options, and the offset log nu. For K = 2 it is Davidson's
    model with a tie proportional to nu * sqrt(pi_1 pi_2); for nu -> 0 it becomes best-of-K. At theta = 0 the share of
    ties is nu / (K + nu).

    Attributes:
        nu: The person's inclination to call a tie, > 0.

    Raises:
        ValueError: nu <= 0 or not finite.
    """

    nu: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "nu", check_number(self.nu, "nu", minimum=0.0, exclusive=True))

    name: ClassVar[str] = "ties"
    kinds: ClassVar[tuple[Kind, ...]] = ("best", "tie")
    unsure: ClassVar[Kind] = "tie"

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """Responses best 0, ..., best K-1, tie."""
        return (*super().outcomes(num_options), Response.tie())

    def _extended(self, values: Floats) -> Floats:
        """Utilities of the options and of the tie, (n, K + 1)."""
        return np.concatenate([values, values.mean(axis=1, keepdims=True) + np.log(self.nu)], axis=1)

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probabilities that each option is best, and of a tie (last), (n, K + 1)."""
        return np.exp(log_softmax(self._extended(checked_values(options, theta)[1])))

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """One term for each answer, with K + 1 rows."""
        features = check_options(options)
        num_options = features.shape[1]
        by_kind = checked_responses(responses, features, ("best", "tie"), self.name)
        chosen = np.full(len(features), -1)
        chosen[by_kind["best"][0]] = by_kind["best"][1][:, 0]
        chosen[by_kind["tie"][0]] = num_options
        answered = np.flatnonzero(chosen >= 0)
        rows = features[answered]
        rows = np.concatenate([rows, rows.mean(axis=1, keepdims=True)], axis=1)
        offsets = np.zeros(rows.shape[:2])
        offsets[:, num_options] = np.log(self.nu)
        return Terms(rows, offsets, chosen[answered])

    def weights(self, values: ArrayLike) -> Floats:
        """M' (diag(p) - p p') M, (n, K, K), from the utilities (n, K); M has the options and their mean as rows."""
        checked = checked_utilities(values)
        num_options = checked.shape[1]
        rows = np.concatenate([np.eye(num_options), np.full((1, num_options), 1.0 / num_options)])
        inner = choice_weights(np.exp(log_softmax(self._extended(checked))))
        return np.asarray(rows.T @ inner @ rows)

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question. With ``uniforms=None``: the most probable, ties by the lowest index, "tie" last."""
        _, values = checked_values(options, theta)
        chosen, _ = pick(self._extended(values), checked_uniforms(uniforms, len(values)))
        tie = values.shape[1]
        return [Response.tie() if option == tie else Response.best(int(option)) for option in chosen]

    information = AnswerFormat.information

    def spoken(self, num_options: int) -> AnswerFormat:
        """This one, as rankings can't stand beside ties."""
        return AnswerFormat.spoken(self, num_options)
