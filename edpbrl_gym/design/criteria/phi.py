"""Kiefer's criteria, the means of the variances of theta: from D (p to 0) over A (p = 1) towards the worst direction.

Kiefer, "General equivalence theory for optimum designs (approximate theory)", Annals of Statistics 2 (1974);
Pukelsheim, "Optimal Design of Experiments" (1993), chapter 6.
"""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_number
from edpbrl_gym.design.criteria.base import Criterion, cholesky

__all__ = ["PhiCriterion"]

_LARGEST = 100.0  # of p: the mean is then within 7 percent of the largest variance in 1000 dimensions


class PhiCriterion(Criterion):
    """Phi_p-optimality: s(I) = -(tr I^-p / d)^(1/p), concave, with s(c I) = s(I) / c.

    With the eigenvalues l_i of I and the mean m = tr I^-p / d, ds/dl_i = m^(1/p - 1) l_i^(-p - 1) / d.

    Args:
        p: Above 0 and at most 100; 1 is A, and p to 0 is D.

    Raises:
        ValueError: If p is out of range.
    """

    argument = "number"

    def __init__(self, p: float) -> None:
        self.p = check_number(p, "p of the criterion phi:p", minimum=0.0, exclusive=True)
        if self.p > _LARGEST:
            raise ValueError(f"Expected p of the criterion phi:p of at most {_LARGEST:g}, got {self.p:g}.")
        self.name = f"phi:{self.p:.12g}"

    def value(self, information: Floats) -> float:
        """Value -(tr I^-p / d)^(1/p)."""
        return self.evaluate(information)[0]

    def gradient(self, information: Floats) -> Floats:
        """Gradient m^(1/p - 1) I^(-p - 1) / d."""
        return self.evaluate(information)[1]

    def evaluate(self, information: Floats) -> tuple[float, Floats]:
        """Value and gradient from one eigenvalue problem."""
        cholesky(information)  # raises where the information is singular
        sizes, vectors = np.linalg.eigh(information)
        sizes = np.maximum(sizes, sizes[-1] * np.finfo(np.float64).eps)  # which they err by
        # by the smallest eigenvalue, so that no power overflows; and by what the mean lacks of 1, for small p
        changes = np.expm1(self.p * np.log(sizes[0] / sizes))
        lacking = float(changes.mean())
        value = -float(np.exp(np.log1p(lacking) / self.p) / sizes[0])
        slopes = -value * (1.0 + changes) / ((1.0 + lacking) * len(sizes) * sizes)
        return value, (vectors * slopes) @ vectors.T
