"""Optimality criteria by name: concave, matrix-monotone functions of an information matrix, all to be maximised.

| name | value s(I) | gradient ds/dI | what it makes small |
|---|---|---|---|
| D | log det I | I^-1 | the volume of the confidence ellipsoid of theta |
| A | -tr I^-1 | I^-2 | the mean squared error of theta |
| V | -tr V I^-1 | I^-1 V I^-1 | the mean squared error of the differences in V |

The paper writes A and V as 1 / tr(.); both forms have the same maximisers, and `TraceCriterion.reciprocal` gives the
paper's. See Pukelsheim, "Optimal Design of Experiments" (1993), and the paper's Eq. 6 with "Scalarization".
"""

from __future__ import annotations

from edpbrl_gym.design.criteria.base import (
    CRITERIA,
    Criterion,
    CriterionAndPrior,
    Form,
    SingularInformationError,
    builds_array,
    check_criterion,
    cholesky,
    inverse,
    make_criterion,
    read_criterion,
)
from edpbrl_gym.design.criteria.log_det import DCriterion
from edpbrl_gym.design.criteria.trace import ACriterion, VCriterion, token_difference_matrix

__all__ = [
    "CRITERIA",
    "ACriterion",
    "Criterion",
    "CriterionAndPrior",
    "DCriterion",
    "Form",
    "SingularInformationError",
    "VCriterion",
    "builds_array",
    "check_criterion",
    "cholesky",
    "inverse",
    "make_criterion",
    "read_criterion",
    "token_difference_matrix",
]
