"""c-optimality: the variance of one linear function of theta.

Elfving, "Optimum allocation in linear regression theory", Annals of Mathematical Statistics 23 (1952).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym._validation import check_array
from edpbrl_gym.design.criteria.base import fingerprint_of
from edpbrl_gym.design.criteria.trace import TraceCriterion

__all__ = ["CCriterion"]


class CCriterion(TraceCriterion):
    """c-optimality: s(I) = -c' I^-1 c, minus the variance of c' theta; V-optimality with V = c c'.

    Args:
        vector: c, not zero, shape (d,): the difference of the features of two options, say.

    Raises:
        ValueError: If c is no vector, is zero, or has NaN.
    """

    name = "c"
    argument = "vector"

    def __init__(self, vector: ArrayLike) -> None:
        direction = np.array(check_array(vector, "vector of the criterion c", shape=("d",)))
        if not direction.any():
            raise ValueError(
                "Expected a vector of the criterion c that is not zero, as the difference of two tokens is."
            )
        self.vector: Floats = read_only(direction)
        super().__init__(self.vector[:, None])

    def fingerprint(self) -> str:
        """Name and hash of c."""
        return fingerprint_of(self.name, self.vector)
