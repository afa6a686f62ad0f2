"""Questions, answered questions, and their file format."""

from edpbrl_gym.comparisons.records import Comparisons, Queries

__all__ = ["Comparisons", "Queries"]
