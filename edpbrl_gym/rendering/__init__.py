"""From prompts to images, through diffusers."""

from edpbrl_gym.rendering.cache import ImageCache, RenderedImage
from edpbrl_gym.rendering.pipelines import LoadedPipeline, load_pipeline
from edpbrl_gym.rendering.renderer import Renderer
from edpbrl_gym.rendering.settings import RenderSettings, image_key
from edpbrl_gym.rendering.sheets import Tile, contact_sheet

__all__ = [
    "ImageCache",
    "LoadedPipeline",
    "RenderSettings",
    "RenderedImage",
    "Renderer",
    "Tile",
    "contact_sheet",
    "image_key",
    "load_pipeline",
]
