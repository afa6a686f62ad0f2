"""Questions, answered questions, the record of a conversation, and their file formats."""

from edpbrl_gym.comparisons.history import History
from edpbrl_gym.comparisons.records import Comparisons, Queries

__all__ = ["Comparisons", "History", "Queries"]
