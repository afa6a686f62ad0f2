"""Rules of the literature that choose the next question from a finite pool of items, and their planner.

``make_rule(name).propose(PoolState.of(items, prior, questions, choices, num_options=K))`` is the next question; `RULES`
lists the names (both in `planners.registry`). `RulePlanner` applies any of them to a pool of items or to the prompts of
a vocabulary.
"""

from edpbrl_gym.planners.pool.base import QuestionValue, Rule, ScoreRule, search_questions
from edpbrl_gym.planners.pool.planner import RulePlanner
from edpbrl_gym.planners.pool.products import ItemProducts
from edpbrl_gym.planners.pool.state import PoolState

__all__ = [
    "ItemProducts",
    "PoolState",
    "QuestionValue",
    "Rule",
    "RulePlanner",
    "ScoreRule",
    "search_questions",
]
