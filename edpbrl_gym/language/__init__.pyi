from edpbrl_gym.language.model import LanguageModel as LanguageModel
from edpbrl_gym.language.model import load_language_model as load_language_model
from edpbrl_gym.language.policies import Policies as Policies
from edpbrl_gym.language.policies import load_policies as load_policies
from edpbrl_gym.language.policies import make_policies as make_policies
from edpbrl_gym.language.settings import ReinforceSettings as ReinforceSettings
from edpbrl_gym.language.trainer import train as train

__all__: list[str]
