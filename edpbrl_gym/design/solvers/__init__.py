"""Solvers of the concave design problem over occupancy measures, each with its certificate."""

from edpbrl_gym.design.solvers.frank_wolfe import IterationState, frank_wolfe
from edpbrl_gym.design.solvers.newton import NewtonState, newton
from edpbrl_gym.design.solvers.reference import reference

__all__ = ["IterationState", "NewtonState", "frank_wolfe", "newton", "reference"]
