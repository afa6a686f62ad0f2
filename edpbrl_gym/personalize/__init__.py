"""Applications of a learnt taste: taste files, the best prompts, rankings, comparison sheets."""

from edpbrl_gym.personalize.rankings import RankedPrompts, rank_prompts
from edpbrl_gym.personalize.samples import ImageSamples, best_samples, given_samples
from edpbrl_gym.personalize.search import Prompt, best_prompts, random_prompts
from edpbrl_gym.personalize.sheet import comparison_sheet
from edpbrl_gym.personalize.taste import Taste, load_taste, save_taste

__all__ = [
    "ImageSamples",
    "Prompt",
    "RankedPrompts",
    "Taste",
    "best_prompts",
    "best_samples",
    "comparison_sheet",
    "given_samples",
    "load_taste",
    "random_prompts",
    "rank_prompts",
    "save_taste",
]
