"""Oracles: simulated users and models that answer questions."""

from edpbrl_gym.oracles.base import Answers, Oracle, answers_of, check_oracle
from edpbrl_gym.oracles.image_score import ImageScoreUser
from edpbrl_gym.oracles.imperfect import ImperfectUser
from edpbrl_gym.oracles.mapped import MappedUser, TwoStyles
from edpbrl_gym.oracles.synthetic import SyntheticUser

__all__ = [
    "Answers",
    "ImageScoreUser",
    "ImperfectUser",
    "MappedUser",
    "Oracle",
    "SyntheticUser",
    "TwoStyles",
    "answers_of",
    "check_oracle",
]
