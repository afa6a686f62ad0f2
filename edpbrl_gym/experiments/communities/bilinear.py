"""Tastes theta_i = B a_i of many people: the likelihood of all their answers and its gradients in B and in all a_i."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym.estimation.data import answer_differences
from edpbrl_gym.likelihood import Terms

__all__ = ["AllAnswers", "climb"]

_ITERATIONS = 200


@dataclass(frozen=True, eq=False)
class AllAnswers:
    """The answers of n questions by U people.

    Attributes:
        rows: Differences of the options to the chosen ones, (n, k, d).
        owners: Who answered, (n,), in 0..U - 1.
        people: U.
    """

    rows: Floats
    owners: Indices
    people: int

    @classmethod
    def of(cls, people: Sequence[Terms], root: Floats) -> AllAnswers:
        """The answers as functions of u, theta = R u.

        Args:
            people: Each person's answers, all with the same number of alternatives.
            root: R, (d, d).
        """
        differences = [answer_differences(person)[0] @ root for person in people]
        owners = np.repeat(np.arange(len(people)), [len(rows) for rows in differences])
        return cls(np.concatenate(differences), owners, len(people))

    def scores(self) -> Floats:
        """Gradients of each person's log-likelihood at theta = 0, (U, d): chosen minus mean option, summed."""
        totals = np.zeros((self.people, self.rows.shape[2]))
        np.add.at(totals, self.owners, -self.rows.sum(axis=1) / (self.rows.shape[1] + 1))
        return totals

    def loss(self, basis: Floats, weights: Floats) -> tuple[float, Floats, Floats]:
        """Minus the log-likelihood, and its gradients in the basis B (d, r) and in the weights a (U, r)."""
        count, others, dimension = self.rows.shape
        inner = (self.rows.reshape(-1, dimension) @ basis).reshape(count, others, -1)
        values = np.einsum("nkr,nr->nk", inner, weights[self.owners])
        largest = np.maximum(values.max(axis=1), 0.0)
        powers = np.exp(values - largest[:, None])
        total = powers.sum(axis=1) + np.exp(-largest)
        shares = powers / total[:, None]
        by_weights = np.zeros_like(weights)
        np.add.at(by_weights, self.owners, np.einsum("nk,nkr->nr", shares, inner))
        pulls = np.einsum("nk,nkd->nd", shares, self.rows)
        return float((np.log(total) + largest).sum()), pulls.T @ weights[self.owners], by_weights


def climb(
    start: tuple[Floats, Floats], objective: Callable[[Floats, Floats], tuple[float, Floats, Floats]]
) -> tuple[Floats, Floats]:
    """Minimise a function of two matrices by L-BFGS.

    Args:
        start: The first matrices.
        objective: Returns the value and both gradients.
    """
    shapes = [part.shape for part in start]
    cut = start[0].size

    def flat(point: Floats) -> tuple[float, Floats]:
        value, one, two = objective(point[:cut].reshape(shapes[0]), point[cut:].reshape(shapes[1]))
        return value, np.concatenate([one.ravel(), two.ravel()])

    first = np.concatenate([part.ravel() for part in start])
    found = minimize(flat, first, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
    return found.x[:cut].reshape(shapes[0]), found.x[cut:].reshape(shapes[1])
