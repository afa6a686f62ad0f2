"""From prompts to images, through diffusers."""

from edpbrl_gym.rendering.cache import ImageCache, RenderedImage
from edpbrl_gym.rendering.pipelines import LoadedPipeline, load_pipeline
from edpbrl_gym.rendering.renderer import Renderer
from edpbrl_gym.rendering.settings import RenderSettings, image_key

__all__ = [
    "ImageCache",
    "LoadedPipeline",
    "RenderSettings",
    "RenderedImage",
    "Renderer",
    "image_key",
    "load_pipeline",
]
