"""Ask-and-tell sessions for synthetic, language-model and human users, saved after every answer."""

from edpbrl_gym._feedback import Feedback
from edpbrl_gym.session.answers import Answer
from edpbrl_gym.session.asynchronous import AsyncSession
from edpbrl_gym.session.driving import answer_of, run
from edpbrl_gym.session.forecast import Progress
from edpbrl_gym.session.questions import Question, QuestionMaker
from edpbrl_gym.session.recommendation import Recommendation, Standing, different, standings
from edpbrl_gym.session.sampling import sample_posterior
from edpbrl_gym.session.session import Session
from edpbrl_gym.session.stopping import StoppingRule
from edpbrl_gym.session.typed import AnswerForm, Wish

__all__ = [
    "Answer",
    "AnswerForm",
    "AsyncSession",
    "Feedback",
    "Progress",
    "Question",
    "QuestionMaker",
    "Recommendation",
    "Session",
    "Standing",
    "StoppingRule",
    "Wish",
    "answer_of",
    "different",
    "run",
    "sample_posterior",
    "standings",
]
