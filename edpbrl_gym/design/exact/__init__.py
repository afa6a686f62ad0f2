"""Designs of K different policies on the exact expected information."""

from edpbrl_gym.design.exact.solver import ExactDesign, exact_design

__all__ = ["ExactDesign", "exact_design"]
