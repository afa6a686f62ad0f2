"""The information matrix of realised questions, its inverse and the criterion's value, through small changes.

A question with options x_1..x_K adds the covariance C = (1/K) sum_q (x_q - xbar)(x_q - xbar)' (F0, p = 1/K). Seen from
one option, with m the mean of the other K - 1,

    C = ((K - 1)/K) Cov(others) + c (x_q - m)(x_q - m)',        c = (K - 1)/K^2,

so replacing an option takes one square out and puts one in. Sums of squares change the inverse by the formula of
Woodbury, and with it the three criteria: with A = I^-1, B = A V A and rows W with signs s,

    M = diag(s)^-1 + W A W',   A' = A - A W' M^-1 W A,
    log det I' = log det I + log |det(M)|,    tr V A' = tr V A - tr(M^-1 W B W').
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.criteria import ACriterion, Criterion, DCriterion, VCriterion, cholesky
from edpbrl_gym.design.information import realised_information

__all__ = ["Change", "InverseState", "least_gain", "option_weight"]


_GAIN = 1e-9  # relative to the size of the value: smaller gains are rounding
_REFACTOR_AFTER = 400  # changes; rounding grows by about 1e-16 times the condition number with each


class Change(NamedTuple):
    """What a change did to the inverse: A' = A - half' solved, B' = B - S'C - C'S + S' middle S (S solved, C cross)."""

    half: Floats
    solved: Floats
    cross: Floats | None
    middle: Floats


def option_weight(num_options: int) -> float:
    """Weight c = (K - 1) / K^2 of the square (x_q - m)(x_q - m)' in the information of a question."""
    return (num_options - 1) / num_options**2


def least_gain(value: float) -> float:
    """Gain that counts: smaller ones may be rounding, and an exchange that goes after them need not end."""
    return _GAIN * max(1.0, abs(value))


class InverseState:
    """Information I, A = I^-1 and, for A and V, B = A V A, kept through changes of small rank.

    Args:
        criterion: D, A or V.
        prior: Prior precision, shape (d, d).

    Attributes:
        value: s(I), from the last factorisation and the changes since.

    Raises:
        TypeError: If the criterion is of another kind.
    """

    def __init__(self, criterion: Criterion, prior: Floats) -> None:
        if not isinstance(criterion, (DCriterion, ACriterion, VCriterion)):
            raise TypeError(
                f"Expected the criterion A, V or D for an exchange, got {type(criterion).__name__}; "
                "its change by one option has to be known in closed form."
            )
        self._prior = prior
        dimension = len(prior)
        self._target = None if isinstance(criterion, DCriterion) else criterion.target_factor(dimension)
        self.information: Floats = prior.copy()
        self.inverse: Floats = np.empty_like(prior)
        self.target: Floats | None = None
        self.value = 0.0
        self._changes = 0

    def reset(self, options: Floats) -> float:
        """Begin from questions (n, K, d); returns the value.

        Raises:
            SingularInformationError: If their information with the prior is singular.
        """
        return self.factorise(realised_information(options) + self._prior)

    def factorise(self, information: Floats) -> float:
        """Take an information matrix (prior included) as it is and compute everything anew; returns the value."""
        self.information = information.copy()
        self.inverse = DCriterion().gradient(information)  # the inverse, from the Cholesky factor
        if self._target is None:
            self.value = 2.0 * float(np.log(np.diag(cholesky(information))).sum())
        else:
            solved = self.inverse @ self._target
            self.target = solved @ solved.T
            self.value = -float(np.vdot(self._target, solved))
        self._changes = 0
        return self.value

    @property
    def worn(self) -> bool:
        """Whether so many changes have been made that the inverse should be computed anew."""
        return self._changes >= _REFACTOR_AFTER

    def refresh(self) -> float:
        """Factorise the information as it stands."""
        return self.factorise((self.information + self.information.T) / 2)

    @property
    def curvature(self) -> Floats:
        """G = ds/dI: A for D, B for A and V."""
        return self.inverse if self.target is None else self.target

    def gain(self, rows: Floats, signs: Floats) -> float:
        """Change of the value by sum_i s_i w_i w_i'; -inf if the information would be singular.

        Args:
            rows: w, shape (r, d).
            signs: s, not zero (any weight), shape (r,).
        """
        return float(self.gains(rows[None], signs)[0])

    def gains(self, rows: Floats, signs: Floats) -> Floats:
        """`gain` of n changes (n, r, d) with the same signs (r,), each by itself: shape (n,)."""
        columns = rows.transpose(0, 2, 1)
        middle = np.diag(1.0 / signs) + (rows @ self.inverse) @ columns
        # det(I') / det(I) = det(diag(s)) det(M)
        parity, log = np.linalg.slogdet(middle)
        regular = parity * np.prod(np.sign(signs)) > 0
        if self.target is None:
            return np.where(regular, log + np.log(np.abs(signs)).sum(), -np.inf)
        middle[~regular] = np.eye(len(signs))
        traces = np.trace(np.linalg.solve(middle, (rows @ self.target) @ columns), axis1=1, axis2=2)
        return np.where(regular, traces, -np.inf)

    def without(self, rows: Floats, signs: Floats) -> tuple[Floats, Floats | None]:
        """A' and B' (None for D) after a change, which is not made; arguments as in `gain`."""
        change = self._update(rows, signs)
        inverse = self.inverse - change.half.T @ change.solved
        if self.target is None or change.cross is None:
            return inverse, None
        mixed = change.solved.T @ change.cross
        return inverse, self.target - mixed - mixed.T + change.solved.T @ (change.middle @ change.solved)

    def change(self, rows: Floats, signs: Floats) -> Change:
        """Add sum_i s_i w_i w_i' to the information; arguments as in `gain`."""
        self.value += self.gain(rows, signs)
        change = self._update(rows, signs)
        if self.target is not None and change.cross is not None:
            mixed = change.solved.T @ change.cross
            self.target -= mixed + mixed.T - change.solved.T @ (change.middle @ change.solved)
        self.inverse -= change.half.T @ change.solved
        self.information += (rows.T * signs) @ rows
        self._changes += 1
        return change

    def _update(self, rows: Floats, signs: Floats) -> Change:
        half = rows @ self.inverse
        solved = np.asarray(np.linalg.solve(np.diag(1.0 / signs) + half @ rows.T, half), dtype=np.float64)  # M^-1 W A
        if self.target is None:
            return Change(half, solved, None, np.empty((0, 0)))
        cross = rows @ self.target  # with it B' = (1 - A W' M^-1 W) B (1 - A W' M^-1 W)'
        return Change(half, solved, cross, cross @ rows.T)
