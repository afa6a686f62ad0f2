"""Pools of what may be asked about: pictures that exist, and complete prompts."""

from edpbrl_gym.pictures.pool import PicturePool, load_pictures, prompt_pool

__all__ = ["PicturePool", "load_pictures", "prompt_pool"]
