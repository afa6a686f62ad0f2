"""Newton steps on working sets of tokens, or of paths and policies where the MDP builds no prompts."""

from edpbrl_gym.design.solvers.newton.solver import newton
from edpbrl_gym.design.solvers.newton.tokens.backend import ArrayBackend, make_backend

__all__ = ["ArrayBackend", "make_backend", "newton"]
