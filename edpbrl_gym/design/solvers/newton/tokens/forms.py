"""Scores of tokens as quadratic forms: c ||x - m||^2 in a metric G that is cheap to apply.

G = base Lambda^-1 + sum_j a_j p_j p_j'. With few questions against the prior, I^-1 differs from Lambda^-1 in as many
directions as the design has tokens, so a form costs 2 r d a token instead of d^2. Negative terms may be left out for
an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from edpbrl_gym._arrays import Floats

__all__ = ["ScoreForm", "factor_form"]


_COLUMNS = 64  # that LAPACK may take at a time


@dataclass(frozen=True)
class ScoreForm:
    """A positive semidefinite metric G for the scores c (x - m)' G (x - m).

    Attributes:
        base: Coefficient of Lambda^-1; 0 if there is none.
        directions: p_j, shape (r, d).
        coefficients: a_j, shape (r,); None if all are 1.
        triangle: "lower" or "upper" if the directions form a triangular matrix, which halves the work.
    """

    base: float
    directions: Floats
    coefficients: Floats | None = None
    triangle: str | None = None

    @classmethod
    def of_factor(cls, factor: Floats) -> ScoreForm:
        """G = F' F for a factor F of shape (r, d)."""
        return cls(0.0, factor, None, _triangle(factor))

    def split(self, count: int) -> tuple[ScoreForm, ScoreForm] | None:
        """The `count` most negative terms with the base, and the rest without; None if the form is no longer.

        The first is an upper bound of the form, and the sum of both is the form.
        """
        if self.coefficients is None or len(self.coefficients) <= count or self.coefficients.max(initial=0.0) > 0:
            return None
        order = np.argsort(self.coefficients, kind="stable")
        head, rest = order[:count], order[count:]
        return (
            ScoreForm(self.base, self.directions[head], self.coefficients[head]),
            ScoreForm(0.0, self.directions[rest], self.coefficients[rest]),
        )


def _triangle(factor: Floats) -> str | None:
    """Which triangle a square factor fills; None if it is no triangle."""
    if factor.shape[0] != factor.shape[1]:
        return None
    if not np.triu(factor, 1).any():
        return "lower"
    return None if np.tril(factor, -1).any() else "upper"


def factor_form(inverse: Floats, half: Floats | None) -> ScoreForm:
    """L^-1 for D, B' I^-1 for A and V (its triangular factor if it has d rows or more), from L^-1 and L^-1 B."""
    if half is None:
        return ScoreForm.of_factor(inverse)
    product = np.asarray(half.T @ inverse)  # a symmetric product where half is the inverse itself (A)
    if product.shape[0] >= product.shape[1]:
        return ScoreForm(0.0, _triangular(product), None, "upper")
    return ScoreForm.of_factor(product)


def _triangular(factor: Floats) -> Floats:
    """R of F = Q R, shape (d, d), in the precision of F: numpy's own takes float64 for float32."""
    factorise = lapack.sgeqrf if factor.dtype == np.float32 else lapack.dgeqrf
    packed, _, _, failed = factorise(np.asfortranarray(factor), lwork=_COLUMNS * factor.shape[1], overwrite_a=1)
    assert not failed
    return np.ascontiguousarray(np.triu(packed[: factor.shape[1]]))
