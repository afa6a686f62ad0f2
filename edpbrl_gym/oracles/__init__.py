"""Oracles: simulated users and models that answer questions."""

from edpbrl_gym.oracles.base import Answers, Oracle, answers_of, check_oracle
from edpbrl_gym.oracles.image_score import ImageScoreUser
from edpbrl_gym.oracles.synthetic import ImperfectUser, SyntheticUser

__all__ = ["Answers", "ImageScoreUser", "ImperfectUser", "Oracle", "SyntheticUser", "answers_of", "check_oracle"]
