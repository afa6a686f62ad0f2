"""From prompts to images, by any renderer."""

from edpbrl_gym.rendering.base import Drawn, NotDrawn, OverBudget, Renderer, Service
from edpbrl_gym.rendering.cache import ImageCache, RenderedImage
from edpbrl_gym.rendering.cached import CachedRenderer, RenderingError
from edpbrl_gym.rendering.loading import BACK_ENDS, load_renderer, renderer_needs, renderer_options
from edpbrl_gym.rendering.settings import ImageSettings, RenderSettings, image_key
from edpbrl_gym.rendering.sheets import Tile, contact_sheet

__all__ = [
    "BACK_ENDS",
    "CachedRenderer",
    "Drawn",
    "ImageCache",
    "ImageSettings",
    "NotDrawn",
    "OverBudget",
    "RenderSettings",
    "RenderedImage",
    "Renderer",
    "RenderingError",
    "Service",
    "Tile",
    "contact_sheet",
    "image_key",
    "load_renderer",
    "renderer_needs",
    "renderer_options",
]
