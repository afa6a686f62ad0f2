from edpbrl_gym.oracles.base import Answers as Answers
from edpbrl_gym.oracles.base import Oracle as Oracle
from edpbrl_gym.oracles.base import answers_of as answers_of
from edpbrl_gym.oracles.base import check_oracle as check_oracle
from edpbrl_gym.oracles.image_score import ImageScoreUser as ImageScoreUser
from edpbrl_gym.oracles.synthetic import ImperfectUser as ImperfectUser
from edpbrl_gym.oracles.synthetic import SyntheticUser as SyntheticUser

__all__: list[str]
