"""Designs of many users at once, each with a prior of its own, on the tokens that they share."""

from edpbrl_gym.design.solvers.batch.result import BatchDesigns
from edpbrl_gym.design.solvers.batch.solver import BatchState, batch_designs

__all__ = ["BatchDesigns", "BatchState", "batch_designs"]
