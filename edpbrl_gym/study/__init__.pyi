from edpbrl_gym.study.config import Arm as Arm
from edpbrl_gym.study.config import StudyConfig as StudyConfig
from edpbrl_gym.study.config_reading import read_config as read_config
from edpbrl_gym.study.human_oracle import HumanOracle as HumanOracle
from edpbrl_gym.study.records import AnswerTimeoutError as AnswerTimeoutError
from edpbrl_gym.study.records import ChangedQuestionError as ChangedQuestionError
from edpbrl_gym.study.records import LoopFinishedError as LoopFinishedError
from edpbrl_gym.study.records import ParticipantLeftError as ParticipantLeftError
from edpbrl_gym.study.records import ParticipantTakenError as ParticipantTakenError
from edpbrl_gym.study.records import QuestionLimitError as QuestionLimitError
from edpbrl_gym.study.toml_reading import Mistakes as Mistakes

__all__: list[str]
