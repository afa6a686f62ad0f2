"""The information matrix of realised questions, its inverse and the criterion's value, through small changes.

A question with options x_1..x_K adds the covariance C = (1/K) sum_q (x_q - xbar)(x_q - xbar)' (F0, p = 1/K). Seen from
one option, with m the mean of the other K - 1,

    C = ((K - 1)/K) Cov(others) + c (x_q - m)(x_q - m)',        c = (K - 1)/K^2,

so replacing an option takes one square out and puts one in. Sums of squares change the inverse by the formula of
Woodbury, and with it the criteria of a closed form (`InverseState`): with A = I^-1, B = A V A and rows W with signs s,

    M = diag(s)^-1 + W A W',   A' = A - A W' M^-1 W A,
    log det I' = log det I + log |det(M)|,    tr V A' = tr V A - tr(M^-1 W B W').

Of any other criterion (`GradientState`) the value is computed anew for every change; as it is concave, the gradient G
bounds what a change can gain by sum_i s_i w_i' G w_i, so that few changes need be looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.criteria import Criterion, Form, SingularInformationError, cholesky, inverse
from edpbrl_gym.likelihood.choice import fisher_information

__all__ = ["Change", "GradientState", "InverseState", "State", "least_gain", "option_weight", "state_of"]


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


class State(ABC):
    """Information I, its value, and the matrices that score changes of small rank.

    Args:
        criterion: The criterion.
        prior: Prior precision, shape (d, d).

    Attributes:
        value: s(I), from the last factorisation and the changes since.
        metric: A = I^-1 of an `InverseState`, the gradient G of a `GradientState`, shape (d, d).
        target: B = A V A of a trace, shape (d, d), else None.
        bounded: Whether scores are upper bounds of the gains, not the gains themselves.
    """

    bounded: bool

    def __init__(self, criterion: Criterion, prior: Floats) -> None:
        self._criterion, self._prior = criterion, prior
        self.information: Floats = prior.copy()
        self.metric: Floats = np.empty_like(prior)
        self.target: Floats | None = None
        self.value = 0.0
        self._changes = 0

    def reset(self, options: Floats) -> float:
        """Begin from questions (n, K, d); returns the value.

        Raises:
            SingularInformationError: If their information with the prior is singular.
        """
        return self.factorise(fisher_information(options) + self._prior)

    def refresh(self) -> float:
        """Factorise the information as it stands."""
        return self.factorise((self.information + self.information.T) / 2)

    @abstractmethod
    def factorise(self, information: Floats) -> float:
        """Take an information matrix (prior included) as it is and compute everything anew; returns the value."""

    @abstractmethod
    def gain(self, rows: Floats, signs: Floats) -> float:
        """Change of the value by sum_i s_i w_i w_i'; -inf if the information would be singular.

        Args:
            rows: w, shape (r, d).
            signs: s, not zero (any weight), shape (r,).
        """

    @abstractmethod
    def change(self, rows: Floats, signs: Floats) -> Change | None:
        """Add sum_i s_i w_i w_i' to the information; arguments as in `gain`. None: all matrices were computed anew."""


def state_of(criterion: Criterion, prior: Floats) -> State:
    """The state of a criterion, in closed form where it has one; arguments as in `State`."""
    form = criterion.form
    return GradientState(criterion, prior) if form is None else InverseState(criterion, prior, form)


class GradientState(State):
    """The state of any criterion, by its value and gradient."""

    bounded = True

    def factorise(self, information: Floats) -> float:
        self.information = information.copy()
        self.value, self.metric = self._criterion.evaluate(information)
        return self.value

    def gain(self, rows: Floats, signs: Floats) -> float:
        try:
            return self._criterion.value(self.information + (rows.T * signs) @ rows) - self.value
        except SingularInformationError:
            return -np.inf

    def change(self, rows: Floats, signs: Floats) -> None:
        self.information += (rows.T * signs) @ rows
        self.refresh()


class InverseState(State):
    """The state of a criterion in closed form: A, and B of a trace, are kept through changes."""

    bounded = False

    def __init__(self, criterion: Criterion, prior: Floats, form: Form) -> None:
        super().__init__(criterion, prior)
        self._target = form.target(len(prior))

    def factorise(self, information: Floats) -> float:
        self.information = information.copy()
        self.metric = inverse(cholesky(information))
        if self._target is None:
            self.value = self._criterion.value(information)
        else:
            solved = self.metric @ self._target
            self.target = solved @ solved.T
            self.value = -float(np.vdot(self._target, solved))
        self._changes = 0
        return self.value

    def gain(self, rows: Floats, signs: Floats) -> float:
        middle = np.diag(1.0 / signs) + (rows @ self.metric) @ rows.T
        # det(I') / det(I) = det(diag(s)) det(M)
        parity, log = np.linalg.slogdet(middle)
        if not parity * np.prod(np.sign(signs)) > 0:
            return -np.inf
        if self.target is None:
            return float(log + np.log(np.abs(signs)).sum())
        return float(np.trace(np.linalg.solve(middle, (rows @ self.target) @ rows.T)))

    def change(self, rows: Floats, signs: Floats) -> Change | None:
        self.value += self.gain(rows, signs)
        change = self._update(rows, signs)
        if self.target is not None and change.cross is not None:
            mixed = change.solved.T @ change.cross
            self.target -= mixed + mixed.T - change.solved.T @ (change.middle @ change.solved)
        self.metric -= change.half.T @ change.solved
        self.information += (rows.T * signs) @ rows
        self._changes += 1
        if self._changes < _REFACTOR_AFTER:
            return change
        self.refresh()
        return None

    def _update(self, rows: Floats, signs: Floats) -> Change:
        half = rows @ self.metric
        solved = np.asarray(np.linalg.solve(np.diag(1.0 / signs) + half @ rows.T, half), dtype=np.float64)  # M^-1 W A
        if self.target is None:
            return Change(half, solved, None, np.empty((0, 0)))
        cross = rows @ self.target  # with it B' = (1 - A W' M^-1 W) B (1 - A W' M^-1 W)'
        return Change(half, solved, cross, cross @ rows.T)
