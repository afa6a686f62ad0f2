"""Text-to-image pipelines of diffusers: loading, and batches of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import require, resolve_device
from edpbrl_gym.rendering.diffusers.adapting import add_lora, check_offload, quantization_config
from edpbrl_gym.rendering.diffusers.arguments import PipelineKind, call_arguments, refuse_negative
from edpbrl_gym.rendering.diffusers.files import (
    find_model,
    model_components,
    model_kind,
    quiet,
    single_file,
    whole_fingerprint,
)
from edpbrl_gym.rendering.diffusers.reading import TextWatch
from edpbrl_gym.rendering.settings import RenderSettings

__all__ = ["Generated", "LoadedPipeline", "generate", "is_out_of_memory", "load_pipeline"]


@dataclass(frozen=True, eq=False)
class LoadedPipeline:
    """A pipeline that is ready to run.

    Attributes:
        pipeline: The diffusers pipeline, in evaluation mode on its device, with the model's own safety checker.
        fingerprint: sha256 (hex) of weights and configs (``whole_fingerprint``).
        name: Name of the model in the settings.
        device: The torch device.
    """

    pipeline: Any
    fingerprint: str
    name: str
    device: str


class Generated(NamedTuple):
    """A batch of images, before rounding to 8 bits.

    Attributes:
        pixels: Shape (n, height, width, 3), values in 0..1.
        flagged: Whether the safety checker flagged each image.
        read: What the pipeline has read of the texts.
    """

    pixels: NDArray[np.float32]
    flagged: list[bool]
    read: TextWatch


def load_pipeline(
    settings: RenderSettings,
    device: str | None = None,
    attention_slicing: bool = False,
    offload: str | None = None,
) -> LoadedPipeline:
    """Load the text-to-image pipeline of ``settings.model``, in ``settings.dtype``, on a device.

    Any pipeline of diffusers' ``AutoPipelineForText2Image`` is supported. Scheduler and safety checker are those of the
    model; a single file has no safety checker.

    Args:
        settings: Settings, of which model, variant, revision, dtype, lora, quantize and config are used.
        device: Torch device; None: "cuda" if available, else "cpu".
        attention_slicing: Compute attention in slices, with less memory and more time.
        offload: Keep the weights in the CPU's memory, and move to the device a whole "model" (component), or
            "sequential", a layer, when it computes: with less memory there, and more time. None: all are there.

    Raises:
        FileNotFoundError: The folder does not exist.
        ConnectionError: The hub can't be reached, or has no such model.
        ValueError: The device is unknown, or the folder has no text-to-image pipeline or damaged weights, or the LoRA
            or the quantisation is none for it.
        ModuleNotFoundError: Diffusers, or what the settings need, is not installed.
    """
    diffusers = require("diffusers", "rendering")
    import torch

    target = resolve_device(device)
    check_offload(offload, target)
    folder = find_model(settings)
    fingerprint = whole_fingerprint(settings, folder)
    file, dtype = single_file(settings), getattr(torch, settings.dtype)
    if file is not None and settings.quantize is not None:
        raise ValueError(f"Expected no quantize with the single file {file}; save it with save_pretrained first")
    with quiet():
        more = {}
        if settings.quantize is not None:
            more = {"quantization_config": quantization_config(settings.quantize, model_components(folder), dtype)}
        try:
            # "dtype" in newer versions, which still take the old name
            if file is not None:
                pipeline = model_kind(folder).cls.from_single_file(
                    str(file), config=str(folder), torch_dtype=dtype, local_files_only=True
                )
            else:
                pipeline = diffusers.AutoPipelineForText2Image.from_pretrained(
                    folder, torch_dtype=dtype, variant=settings.variant, local_files_only=True, **more
                )
        except Exception as error:  # missing classes, missing files, shapes that do not fit: many classes
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"Expected a text-to-image pipeline of diffusers at {settings.model}, but it could not be loaded "
                f"({type(error).__name__}: {reason}); check that the folder is whole and that its pipeline makes "
                "images from texts"
            ) from error
        pipeline.set_progress_bar_config(disable=True)
        add_lora(pipeline, settings)
        if offload is None:
            pipeline.to(target)
        elif offload == "model":
            pipeline.enable_model_cpu_offload(device=target)
        else:
            pipeline.enable_sequential_cpu_offload(device=target)
        if attention_slicing:
            pipeline.enable_attention_slicing()
    return LoadedPipeline(pipeline=pipeline, fingerprint=fingerprint, name=settings.model, device=target)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is an out-of-memory error of torch (for the CPU it has no class of its own)."""
    import torch

    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    message = str(error).lower()
    return any(
        text in message for text in ("out of memory", "not enough memory", "can't allocate memory", "alloc_failed")
    )


def generate(
    loaded: LoadedPipeline, settings: RenderSettings, prompts: Sequence[str], seeds: Sequence[int]
) -> Generated:
    """Generate one batch of images, before rounding to 8 bits.

    Every image has its own generator, on the CPU, so that its noise is the same on every device and in every batch. The
    batch affects only the rounding of matrix products.

    Args:
        loaded: The pipeline.
        settings: Settings, of which steps, guidance, size and negative prompt are used.
        prompts: n texts.
        seeds: n seeds of the generators.

    Raises:
        ValueError: The pipeline lacks a setting that is not the default, or would ignore one such as the negative
            prompt or the size, or its images are not finite.
    """
    import torch

    pipeline = loaded.pipeline
    settings = PipelineKind.of(pipeline).resolve(settings)
    arguments = call_arguments(pipeline, loaded.name, settings, len(prompts))
    generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
    read = TextWatch(
        pipeline,
        prompts,
        settings.negative,
        unread=lambda: refuse_negative(pipeline, loaded.name, settings),
    )
    with quiet(), torch.inference_mode(), read:
        output = pipeline(prompt=list(prompts), generator=generators, output_type="np", **arguments)
    pixels = np.asarray(output.images, dtype=np.float32)
    if pixels.ndim != 4 or len(pixels) != len(prompts) or pixels.shape[3] != 3:
        raise ValueError(f"Expected {len(prompts)} RGB images from {loaded.name}, got an array of shape {pixels.shape}")
    if not np.isfinite(pixels).all():
        raise ValueError(
            f"Expected finite pixels from {loaded.name}, got NaN or infinity in dtype {settings.dtype}; use 'float32' "
            "or, on a GPU, 'bfloat16'"
        )
    for asked, got, side in ((settings.height, pixels.shape[1], "height"), (settings.width, pixels.shape[2], "width")):
        if asked not in (None, got):
            raise ValueError(
                f"Expected a {side} that {loaded.name} can draw, got {asked}, for which its images have {got} pixels; "
                "take that, or a multiple of 16 or 32"
            )
    return Generated(pixels, _flags(output, loaded, len(prompts)), read)


def _flags(output: Any, loaded: LoadedPipeline, count: int) -> list[bool]:
    """Whether the safety checker flagged each of ``count`` images; a pipeline without one flags none."""
    for name in ("nsfw_content_detected", "nsfw_detected"):
        marks = getattr(output, name, None)
        if marks is None:
            continue
        flags = [bool(flag) for flag in marks]
        if len(flags) != count:  # unknown which images are flagged: show none of them
            raise ValueError(f"Expected a mark of the safety checker of {loaded.name} for each of {count} images, got "
                             f"{len(flags)}")  # fmt: skip
        return flags
    return [False] * count
