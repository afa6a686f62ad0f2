"""Newton steps on working sets of tokens."""

from edpbrl_gym.design.solvers.newton.solver import newton

__all__ = ["newton"]
