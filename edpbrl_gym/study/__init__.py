"""The web study: many people answer, in arms that are compared, and no answer is lost."""

from edpbrl_gym.study.config import Arm, StudyConfig
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.toml_reading import Mistakes

__all__ = ["Arm", "Mistakes", "StudyConfig", "read_config"]
