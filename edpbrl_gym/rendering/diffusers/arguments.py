"""Settings as arguments of a pipeline's call; a setting that a pipeline would ignore is refused."""

from __future__ import annotations

import inspect
from typing import Any

from edpbrl_gym.rendering.settings import RenderSettings

__all__ = ["TRUE_GUIDANCE", "call_arguments", "refuse_negative", "refuse_unread_negative"]

# pipelines that read a negative prompt only with true_cfg_scale above 1: their guidance_scale is an input of the model
TRUE_GUIDANCE = ("FluxPipeline", "FluxControlNetPipeline", "FluxKontextPipeline")
_NOTHING = " "  # a negative prompt without words: guidance needs one


def refuse_unread_negative(class_name: str, name: str, settings: RenderSettings) -> None:
    """Raise a ValueError for a negative prompt that a pipeline of a class can't read with these settings."""
    if settings.negative and class_name in TRUE_GUIDANCE and not (settings.true_cfg_scale or 0.0) > 1.0:
        raise ValueError(
            f"Expected true_cfg_scale above 1 with a negative prompt for {name}, got none: the guidance of "
            f"{class_name} is an input of the model and reads no negative prompt; set true_cfg_scale, which doubles "
            "the time, or leave the negative prompt out"
        )


def refuse_negative(pipeline: Any, name: str, settings: RenderSettings) -> None:
    """Raise the ValueError for a negative prompt that a pipeline has not read, as there is no guidance."""
    raise ValueError(
        f"Expected no negative prompt for {name} with guidance {settings.guidance:g}, with which "
        f"{type(pipeline).__name__} reads none; set a guidance above 1 if the model takes one, or leave the negative "
        "prompt out"
    )


def call_arguments(pipeline: Any, name: str, settings: RenderSettings, count: int) -> dict[str, Any]:
    """Return the settings as arguments of a pipeline's call; what is not set keeps the pipeline's own default.

    Guidance is ``guidance_scale``, but ``true_cfg_scale`` for pipelines whose ``guidance_scale`` is for distilled
    models only (Qwen-Image).

    Args:
        pipeline: A diffusers pipeline.
        name: Of the model, for messages.
        settings: Of the images.
        count: Number of prompts.

    Raises:
        ValueError: The pipeline lacks a setting that is not the default, or would ignore it.
    """
    refuse_unread_negative(type(pipeline).__name__, name, settings)
    parameters = inspect.signature(type(pipeline).__call__).parameters
    default = RenderSettings.guidance
    guidance: float | None = settings.guidance
    scale, negative = settings.true_cfg_scale, settings.negative
    if _guides_by_true_cfg(pipeline, parameters):
        if scale is not None and guidance != default:
            raise ValueError(
                f"Expected guidance or true_cfg_scale for {name}, for which they are the same, got both; leave one out"
            )
        if scale is None and ("guidance_scale" in parameters or guidance != default):
            scale = guidance
        guidance = None
        if negative and not (scale or 0.0) > 1.0:
            refuse_negative(pipeline, name, settings)
    elif guidance not in (0.0, 1.0, default) and _ignores_guidance(pipeline):
        raise ValueError(
            f"Expected no guidance for {name}, got {guidance:g}: its {type(pipeline).__name__} was distilled and "
            "ignores it; leave it out"
        )
    if scale is not None and scale > 1.0 and not negative:
        negative = _NOTHING
    arguments: dict[str, Any] = {}
    for parameter, value, unset in (
        ("num_inference_steps", settings.steps, None),
        ("guidance_scale", guidance, default),
        ("true_cfg_scale", scale, None),
        ("height", settings.height, None),
        ("width", settings.width, None),
        ("negative_prompt", [negative] * count if negative else None, None),
    ):
        if parameter in parameters:
            if value is not None:
                arguments[parameter] = value
        elif value is not None and value != unset:
            raise ValueError(f"Expected no {parameter} for {name}, as {type(pipeline).__name__} has none; leave it out")
    return arguments


def _guides_by_true_cfg(pipeline: Any, parameters: Any) -> bool:
    """Whether ``true_cfg_scale`` is a pipeline's only guidance."""
    if "true_cfg_scale" not in parameters or _config(pipeline, "transformer").get("guidance_embeds", False):
        return False
    return "guidance_scale" not in parameters or parameters["guidance_scale"].default is None


def _ignores_guidance(pipeline: Any) -> bool:
    """Whether a pipeline takes a guidance for other models than the one that it has."""
    class_name = type(pipeline).__name__
    if class_name.startswith("Flux2"):  # Klein; the guidance of the other one is an input of the model
        return bool(dict(getattr(pipeline, "config", {})).get("is_distilled", False))
    return class_name.startswith("Flux") and not _config(pipeline, "transformer").get("guidance_embeds", True)


def _config(pipeline: Any, component: str) -> dict[str, Any]:
    return dict(getattr(getattr(pipeline, component, None), "config", {}))
