"""Answer formats: the best of K, best and worst, rankings of all or some, ties; skips go with all.

Each is one object (`AnswerFormat`): a product of multinomial logits (`Terms`), and how people are asked and read. A new
one is a file here and a line of ``table.FORMATS``.
"""

from edpbrl_gym.likelihood.best import BestOf
from edpbrl_gym.likelihood.best_worst import BestWorst
from edpbrl_gym.likelihood.formats import AnswerFormat, Input
from edpbrl_gym.likelihood.partial import PartialRanking
from edpbrl_gym.likelihood.ranking import Ranking
from edpbrl_gym.likelihood.response import KINDS, Kind, Response
from edpbrl_gym.likelihood.table import FORMATS, format_of, make_format
from edpbrl_gym.likelihood.terms import Terms
from edpbrl_gym.likelihood.ties import WithTies

__all__ = [
    "FORMATS",
    "KINDS",
    "AnswerFormat",
    "BestOf",
    "BestWorst",
    "Input",
    "Kind",
    "PartialRanking",
    "Ranking",
    "Response",
    "Terms",
    "WithTies",
    "format_of",
    "make_format",
]
