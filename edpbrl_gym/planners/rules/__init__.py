"""Rules of the literature that choose the next question from a finite pool of items, and the planner that asks by them.

``make_rule(name).propose(PoolState.of(items, prior, questions, choices, num_options=K))`` is the next question; `RULES`
lists the names (both in `planners.registry`). `RulePlanner` applies any of them to a pool of items or to the prompts of
a vocabulary.

A rule is a function of a `PoolState` and of its options: it returns the acquisition value of questions, of which the
largest is searched (`information`, `uncertainty`), the question itself (`favourites`), or a batch of questions
(`batches`). A new one is such a function and a line in `planners.registry.RULES`.
"""

from edpbrl_gym.planners.rules.planner import RulePlanner
from edpbrl_gym.planners.rules.search import QuestionValue, Rule, search_questions
from edpbrl_gym.planners.rules.state import ItemProducts, PoolState

__all__ = ["ItemProducts", "PoolState", "QuestionValue", "Rule", "RulePlanner", "search_questions"]
