"""Who answers the questions."""

from edpbrl_gym.oracles.base import Answers, Oracle, Responder, check_oracle, choices_of, responses_of
from edpbrl_gym.oracles.image_score import ImageScoreUser
from edpbrl_gym.oracles.imperfect import ImperfectUser
from edpbrl_gym.oracles.synthetic import SyntheticUser

__all__ = [
    "Answers",
    "ImageScoreUser",
    "ImperfectUser",
    "Oracle",
    "Responder",
    "SyntheticUser",
    "check_oracle",
    "choices_of",
    "responses_of",
]
