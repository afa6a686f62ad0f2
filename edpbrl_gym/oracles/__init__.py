"""Who answers the questions."""

from edpbrl_gym.oracles.base import Answers, Oracle
from edpbrl_gym.oracles.synthetic import SyntheticUser

__all__ = ["Answers", "Oracle", "SyntheticUser"]
