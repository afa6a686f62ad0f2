"""What every design problem has, with a table or without: a criterion and a prior."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym._validation import check_array, check_number
from edpbrl_gym.design.criteria import Criterion, SingularInformationError, positive_semidefinite_factor

__all__ = ["CriterionAndPrior"]


class CriterionAndPrior:
    """The prior and the value without data of a frozen dataclass with these fields.

    Attributes:
        criterion: D, A or V (`make_criterion`), or any `Criterion`.
        regularization: lambda >= 0, prior precision lambda I; this or ``prior_precision``.
        prior_precision: Lambda in place of lambda I, symmetric positive semidefinite, shape (d, d).
    """

    criterion: Criterion
    regularization: float | None
    prior_precision: Floats | None

    if TYPE_CHECKING:  # a field here, a property there

        @property
        def dimension(self) -> int:
            """Number of features d."""
            ...

    def _check_criterion_and_prior(self) -> None:
        """Check the fields, and make the prior precision symmetric and read-only.

        Raises:
            TypeError: If the criterion is of another type.
            ValueError: If there is not exactly one of lambda and Lambda, or it does not fit.
        """
        if not isinstance(self.criterion, Criterion):
            raise TypeError(
                f'Expected a Criterion, got {self.criterion!r}; make one with make_criterion("D"), "A" or "V".'
            )
        if (self.regularization is None) == (self.prior_precision is None):
            raise ValueError(
                "Expected either a regularization (lambda) or a prior_precision matrix, got "
                f"{'neither' if self.regularization is None else 'both'}."
            )
        if self.regularization is not None:
            value = check_number(self.regularization, "regularization (lambda)", minimum=0.0)
            object.__setattr__(self, "regularization", value)
            return
        matrix = check_array(self.prior_precision, "prior_precision", shape=(self.dimension, self.dimension))
        positive_semidefinite_factor(matrix, "prior_precision")
        object.__setattr__(self, "prior_precision", read_only(np.ascontiguousarray((matrix + matrix.T) / 2)))

    @cached_property
    def prior(self) -> Floats:
        """Prior precision Lambda, shape (d, d), read-only."""
        if self.prior_precision is not None:
            return self.prior_precision
        return read_only(float(self.regularization or 0.0) * np.eye(self.dimension))

    @cached_property
    def baseline(self) -> float:
        """Value of the criterion without any data, s(Lambda); -inf if the prior alone is singular."""
        try:
            return self.criterion.value(self.prior)
        except SingularInformationError:
            return -np.inf
