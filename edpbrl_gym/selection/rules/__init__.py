"""The rules of the literature that choose the next question from a finite pool of items."""

from edpbrl_gym.selection.rules.base import QuestionValue, Rule, ScoreRule, search_questions
from edpbrl_gym.selection.rules.products import ItemProducts
from edpbrl_gym.selection.rules.state import PoolState

__all__ = ["ItemProducts", "PoolState", "QuestionValue", "Rule", "ScoreRule", "search_questions"]
