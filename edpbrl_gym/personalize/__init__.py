"""Applications of a learnt taste: taste files, the best prompts, rankings, comparison sheets."""

from edpbrl_gym.personalize.policy import PromptPolicy, policy_prompts, save_policy
from edpbrl_gym.personalize.rankings import RankedPrompts, rank_prompts
from edpbrl_gym.personalize.samples import ImageSamples, best_samples, given_samples, policy_samples
from edpbrl_gym.personalize.search import Prompt, best_prompts, random_prompts
from edpbrl_gym.personalize.sheet import comparison_sheet
from edpbrl_gym.personalize.taste import Taste, load_taste, save_taste
from edpbrl_gym.personalize.together import best_prompts_together

__all__ = [
    "ImageSamples",
    "Prompt",
    "PromptPolicy",
    "RankedPrompts",
    "Taste",
    "best_prompts",
    "best_prompts_together",
    "best_samples",
    "comparison_sheet",
    "given_samples",
    "load_taste",
    "policy_prompts",
    "policy_samples",
    "random_prompts",
    "rank_prompts",
    "save_policy",
    "save_taste",
]
