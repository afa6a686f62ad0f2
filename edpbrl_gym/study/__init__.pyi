from edpbrl_gym.study.config import Arm as Arm
from edpbrl_gym.study.config import StudyConfig as StudyConfig
from edpbrl_gym.study.config_reading import Mistakes as Mistakes
from edpbrl_gym.study.config_reading import read_config as read_config
from edpbrl_gym.study.human_oracle import HumanOracle as HumanOracle
from edpbrl_gym.study.records import AnswerTimeoutError as AnswerTimeoutError
from edpbrl_gym.study.records import LoopError as LoopError

__all__: list[str]
