"""Answer formats (best of K, best and worst, ranking of all or some, tie, none, skip) and their response models.

Each model is a product of multinomial logits (`Terms`). A new format is added in `response.Kind`, as a model, and in
`naming.RESPONSE_MODELS`.
"""

from edpbrl_gym.likelihood.models import BestOf, ResponseModel, WithTies
from edpbrl_gym.likelihood.naming import RESPONSE_MODELS, make_response_model, response_model_of
from edpbrl_gym.likelihood.outside import WithOutside
from edpbrl_gym.likelihood.partial import PartialRanking
from edpbrl_gym.likelihood.rankings import BestWorst, Ranking
from edpbrl_gym.likelihood.response import KINDS, Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = [
    "KINDS",
    "RESPONSE_MODELS",
    "BestOf",
    "BestWorst",
    "Kind",
    "PartialRanking",
    "Ranking",
    "Response",
    "ResponseModel",
    "Terms",
    "WithOutside",
    "WithTies",
    "make_response_model",
    "response_model_of",
]
