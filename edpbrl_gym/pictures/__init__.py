"""Pictures that people answer about: pools of pictures and prompts, and encoders of the pictures drawn from texts."""

from edpbrl_gym.pictures.drawn import DrawnEncoder, features_of
from edpbrl_gym.pictures.pool import PicturePool, load_pictures, prompt_pool

__all__ = ["DrawnEncoder", "PicturePool", "features_of", "load_pictures", "prompt_pool"]
