"""Language models as policies: loading, sampling, and REINFORCE."""

from edpbrl_gym.language.model import LanguageModel, load_language_model
from edpbrl_gym.language.policies import Policies, load_policies, make_policies
from edpbrl_gym.language.settings import ReinforceSettings
from edpbrl_gym.language.trainer import train

__all__ = [
    "LanguageModel",
    "Policies",
    "ReinforceSettings",
    "load_language_model",
    "load_policies",
    "make_policies",
    "train",
]
