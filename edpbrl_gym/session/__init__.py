"""Ask and tell: one object for synthetic, language-model and human users, saved as it goes, that knows when to stop."""

from edpbrl_gym.session.asynchronous import AsyncSession
from edpbrl_gym.session.driving import answer_of, run
from edpbrl_gym.session.forecast import Progress, StoppingRule, expected_information, forecast_accuracy
from edpbrl_gym.session.planner import Planner, RandomPlanner, Restorable
from edpbrl_gym.session.questions import Feedback, Question, QuestionMaker
from edpbrl_gym.session.session import Answer, Recommendation, Session

__all__ = [
    "Answer",
    "AsyncSession",
    "Feedback",
    "Planner",
    "Progress",
    "Question",
    "QuestionMaker",
    "RandomPlanner",
    "Recommendation",
    "Restorable",
    "Session",
    "StoppingRule",
    "answer_of",
    "expected_information",
    "forecast_accuracy",
    "run",
]
