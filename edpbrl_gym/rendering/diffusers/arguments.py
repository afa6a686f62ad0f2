"""Settings as arguments of a pipeline's call; a setting that a pipeline would ignore is refused."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self

from edpbrl_gym.rendering.settings import RenderSettings

__all__ = ["TRUE_GUIDANCE", "PipelineKind", "call_arguments", "refuse_negative", "refuse_unread_negative"]

# pipelines that read a negative prompt only with true_cfg_scale above 1: their guidance_scale is an input of the model
TRUE_GUIDANCE = ("FluxPipeline", "FluxControlNetPipeline", "FluxKontextPipeline")
_NOTHING = " "  # a negative prompt without words: guidance needs one


class PipelineKind(NamedTuple):
    """What decides how a pipeline is guided; known from a model's configs, before it is loaded.

    Attributes:
        cls: The pipeline's class.
        config: The pipeline's config.
        transformer: The config of its transformer, empty without one.
    """

    cls: Any
    config: Mapping[str, Any]
    transformer: Mapping[str, Any]

    @classmethod
    def of(cls, pipeline: Any) -> Self:
        """That of a loaded pipeline."""
        transformer = getattr(getattr(pipeline, "transformer", None), "config", {})
        return cls(type(pipeline), dict(getattr(pipeline, "config", {})), dict(transformer))

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Those of the pipeline's call."""
        return inspect.signature(self.cls.__call__).parameters

    def resolve(self, settings: RenderSettings) -> RenderSettings:
        """Settings with the pipeline's own steps and guidance in place of None; None stays where it has none.

        Where ``true_cfg_scale`` is the guidance, it is its default; it stays None if ``true_cfg_scale`` is set. Models
        that were distilled get 0. A picture with the resolved values is that with the same values set.
        """
        steps, guidance = settings.steps, settings.guidance
        if steps is None:
            steps = self._default("num_inference_steps")
        if guidance is None and self.guided_by_true_cfg:
            guidance = self._default("true_cfg_scale") if settings.true_cfg_scale is None else None
        elif guidance is None:
            guidance = 0.0 if self.ignores_guidance else self._default("guidance_scale")
        return replace(settings, steps=steps, guidance=guidance)

    def _default(self, name: str) -> Any:
        value = self.parameters[name].default if name in self.parameters else None
        return None if value is inspect.Parameter.empty else value

    @property
    def guided_by_true_cfg(self) -> bool:
        """Whether ``true_cfg_scale`` is a pipeline's only guidance."""
        if "true_cfg_scale" not in self.parameters or self.transformer.get("guidance_embeds", False):
            return False
        return "guidance_scale" not in self.parameters or self._default("guidance_scale") is None

    @property
    def ignores_guidance(self) -> bool:
        """Whether a pipeline takes a guidance for other models than the one that it has."""
        if self.cls.__name__.startswith("Flux2"):  # Klein; the guidance of the other one is an input of the model
            return bool(self.config.get("is_distilled", False))
        return self.cls.__name__.startswith("Flux") and not self.transformer.get("guidance_embeds", True)


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
    guidance = "none" if settings.guidance is None else f"{settings.guidance:g}"
    raise ValueError(
        f"Expected no negative prompt for {name} with guidance {guidance}, with which "
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
    kind = PipelineKind.of(pipeline)
    settings = kind.resolve(settings)
    guidance, scale, negative = settings.guidance, settings.true_cfg_scale, settings.negative
    if kind.guided_by_true_cfg:
        if scale is not None and guidance is not None:
            raise ValueError(
                f"Expected guidance or true_cfg_scale for {name}, for which they are the same, got both; leave one out"
            )
        scale, guidance = (guidance if scale is None else scale), None
        if negative and not (scale or 0.0) > 1.0:
            refuse_negative(pipeline, name, settings)
    elif guidance not in (None, 0.0, 1.0) and kind.ignores_guidance:
        raise ValueError(
            f"Expected no guidance for {name}, got {guidance:g}: its {type(pipeline).__name__} was distilled and "
            "ignores it; leave it out"
        )
    if scale is not None and scale > 1.0 and not negative:
        negative = _NOTHING
    arguments: dict[str, Any] = {}
    for parameter, value in (
        ("num_inference_steps", settings.steps),
        ("guidance_scale", guidance),
        ("true_cfg_scale", scale),
        ("height", settings.height),
        ("width", settings.width),
        ("negative_prompt", [negative] * count if negative else None),
    ):
        if value is None:
            continue
        if parameter not in kind.parameters:
            raise ValueError(f"Expected no {parameter} for {name}, as {type(pipeline).__name__} has none; leave it out")
        arguments[parameter] = value
    return arguments
