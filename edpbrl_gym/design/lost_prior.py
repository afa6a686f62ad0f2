"""What a solver tells of a singular information matrix where the prior is proper: that rounding lost the prior."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from edpbrl_gym.design.criteria import SingularInformationError
from edpbrl_gym.design.problem import DesignProblem

__all__ = ["naming_a_lost_prior"]

P = ParamSpec("P")
R = TypeVar("R")


def naming_a_lost_prior(solve: Callable[P, R]) -> Callable[P, R]:
    """Make a solver report, for a problem with a proper prior, what rounding loses instead of asking for a prior.

    Args:
        solve: Its first argument is the problem.
    """

    @wraps(solve)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return solve(*args, **kwargs)
        except SingularInformationError as error:
            problem = args[0] if args else kwargs["problem"]
            assert isinstance(problem, DesignProblem)
            if error.lost is None or not np.isfinite(problem.baseline):
                raise
            raise SingularInformationError(
                f"Expected an information matrix that float64 can invert, got one of dimension {problem.dimension} in "
                f"which rounding loses a prior precision below {error.lost:.2g}, and without the prior it is singular; "
                "raise the regularization (or the smallest eigenvalue of prior_precision) above that, or divide the "
                "features by a constant and keep the prior."
            ) from None

    return wrapper
