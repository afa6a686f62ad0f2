"""Designs turned into questions: T x K tuples of prompts, rounded and exchanged, with a bound on all questions."""

from edpbrl_gym.design.query_sets.restrictions import Restrictions, TokenRules
from edpbrl_gym.design.query_sets.search import (
    InfeasibleRestrictionsError,
    QuerySet,
    QuestionBound,
    SweepRecord,
    given_query_set,
    query_set,
    question_bound,
    truncated_query_set,
)

__all__ = [
    "InfeasibleRestrictionsError",
    "QuerySet",
    "QuestionBound",
    "Restrictions",
    "SweepRecord",
    "TokenRules",
    "given_query_set",
    "query_set",
    "question_bound",
    "truncated_query_set",
]
