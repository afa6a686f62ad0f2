"""Ask-and-tell sessions for synthetic, language-model and human users, saved after every answer."""

from edpbrl_gym._validation import Feedback
from edpbrl_gym.session.driving import answer_of, run
from edpbrl_gym.session.outlook import Progress
from edpbrl_gym.session.questions import Answer, Question, QuestionMaker
from edpbrl_gym.session.recommendation import Recommendation, Standing, StepWords, standings, step_words
from edpbrl_gym.session.session import Session
from edpbrl_gym.session.stopping import Left, StoppingRule
from edpbrl_gym.session.typed import AnswerForm, Wish

__all__ = [
    "Answer",
    "AnswerForm",
    "Feedback",
    "Left",
    "Progress",
    "Question",
    "QuestionMaker",
    "Recommendation",
    "Session",
    "Standing",
    "StepWords",
    "StoppingRule",
    "Wish",
    "answer_of",
    "run",
    "standings",
    "step_words",
]
