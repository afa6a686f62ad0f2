"""Designs turned into questions: T x K prompts, rounded and exchanged, within restrictions."""

from edpbrl_gym.design.questions.query_set import QuerySet, SweepRecord, query_set
from edpbrl_gym.design.questions.restrictions import Restrictions, TokenRules
from edpbrl_gym.design.questions.rounding import InfeasibleRestrictionsError

__all__ = [
    "InfeasibleRestrictionsError",
    "QuerySet",
    "Restrictions",
    "SweepRecord",
    "TokenRules",
    "query_set",
]
