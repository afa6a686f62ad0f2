"""Solvers of the concave design problem over occupancy measures, each with its certificate."""

from edpbrl_gym.design.solvers.batch import BatchDesigns, BatchState, batch_designs
from edpbrl_gym.design.solvers.frank_wolfe import frank_wolfe
from edpbrl_gym.design.solvers.newton import newton
from edpbrl_gym.design.solvers.reference import reference
from edpbrl_gym.design.solvers.registry import SOLVERS, solve
from edpbrl_gym.design.solvers.state import IterationState, NewtonState

__all__ = [
    "SOLVERS",
    "BatchDesigns",
    "BatchState",
    "IterationState",
    "NewtonState",
    "batch_designs",
    "frank_wolfe",
    "newton",
    "reference",
    "solve",
]
