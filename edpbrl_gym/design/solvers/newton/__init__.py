"""Newton steps on working sets of tokens, or of policies where the MDP builds no prompts."""

from edpbrl_gym.design.solvers.newton.solver import newton
from edpbrl_gym.design.solvers.newton.state import NewtonState

__all__ = ["NewtonState", "newton"]
