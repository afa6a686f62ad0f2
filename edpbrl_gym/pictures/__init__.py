"""Pictures that people answer about: pools of pictures and prompts, and encoders of the pictures drawn from texts."""

from edpbrl_gym.pictures.drawn import DrawnEncoder, drawn_by, features_of
from edpbrl_gym.pictures.pool import PicturePool, load_pictures, prompt_pool

__all__ = ["DrawnEncoder", "PicturePool", "drawn_by", "features_of", "load_pictures", "prompt_pool"]
