"""Pictures by text-to-image models of diffusers."""

from edpbrl_gym.rendering.diffusers.pipelines import LoadedPipeline, load_pipeline
from edpbrl_gym.rendering.diffusers.renderer import DiffusersRenderer

__all__ = ["DiffusersRenderer", "LoadedPipeline", "load_pipeline"]
