"""Questions, answered questions, and their file formats."""

from edpbrl_gym.comparisons.answer_files import load_comparisons, load_people
from edpbrl_gym.comparisons.queries import Queries, QuestionRow
from edpbrl_gym.comparisons.records import Comparisons

__all__ = ["Comparisons", "Queries", "QuestionRow", "load_comparisons", "load_people"]
