"""Questions, answered questions, and their file formats."""

from edpbrl_gym.comparisons.mapped import map_comparisons
from edpbrl_gym.comparisons.queries import Queries
from edpbrl_gym.comparisons.records import Comparisons

__all__ = ["Comparisons", "Queries", "map_comparisons"]
