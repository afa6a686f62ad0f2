"""The web study: many people answer, in arms that are compared, and no answer is lost."""

from edpbrl_gym.study.config import Arm, StudyConfig, read_config
from edpbrl_gym.study.toml_reading import Mistakes

__all__ = ["Arm", "Mistakes", "StudyConfig", "read_config"]
