"""Posters: vector pictures that the library draws itself, from the tokens of the vocabulary "posters"."""

from edpbrl_gym.rendering.posters.renderer import PostersRenderer
from edpbrl_gym.rendering.posters.scene import poster_svg
from edpbrl_gym.rendering.posters.words import STEPS, tokens_of

__all__ = ["STEPS", "PostersRenderer", "poster_svg", "tokens_of"]
