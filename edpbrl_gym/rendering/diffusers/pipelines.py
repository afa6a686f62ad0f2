"""Text-to-image pipelines of diffusers: loading, fingerprints, and batches of pixels."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import require, resolve_device
from edpbrl_gym.rendering.diffusers.arguments import call_arguments, refuse_negative
from edpbrl_gym.rendering.diffusers.reading import TextWatch
from edpbrl_gym.rendering.settings import RenderSettings

__all__ = [
    "Generated",
    "LoadedPipeline",
    "find_model",
    "generate",
    "is_out_of_memory",
    "load_pipeline",
    "model_class",
    "model_fingerprint",
    "quiet",
]

_INDEX = "model_index.json"
_WEIGHTS = (".safetensors", ".bin")  # in the order in which diffusers prefers them
_TEXTS = (".json", ".txt", ".model")  # configs, vocabularies, merges
# entries of a saved config about its saving, not about the model
_INCIDENTAL = ("_diffusers_version", "_name_or_path", "_commit_hash", "transformers_version")


@dataclass(frozen=True, eq=False)
class LoadedPipeline:
    """A pipeline that is ready to run.

    Attributes:
        pipeline: The diffusers pipeline, in evaluation mode on its device, with the model's own safety checker.
        fingerprint: sha256 (hex) of weights and configs (``model_fingerprint``).
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


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress messages and progress bars of diffusers and transformers; they may quote prompts."""
    require("diffusers", "rendering")
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    libraries = (diffusers_logging, transformers_logging)
    previous_settings = [(library.get_verbosity(), library.is_progress_bar_enabled()) for library in libraries]
    for library in libraries:
        library.set_verbosity_error()
        library.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of diffusers about its own arguments and configs
            yield
    finally:
        for library, (verbosity, bar) in zip(libraries, previous_settings, strict=True):
            library.set_verbosity(verbosity)
            if bar:
                library.enable_progress_bar()


def find_model(settings: RenderSettings) -> Path:
    """Return the folder of the model, downloaded from the hub if ``settings.model`` is a hub id.

    Raises:
        FileNotFoundError: The folder does not exist, or has no pipeline.
        ValueError: A revision is asked for of a folder.
        ConnectionError: The hub can't be reached, or has no such model.
        ModuleNotFoundError: Diffusers is not installed.
    """
    folder = Path(settings.model).expanduser()
    if folder.is_file():
        raise FileNotFoundError(
            f"Expected a folder with {_INDEX}, got the file {folder}; load a single checkpoint with diffusers' "
            "from_single_file and save it with save_pretrained"
        )
    if folder.is_dir():
        if settings.revision is not None:
            raise ValueError(
                f"Expected no revision with the folder {folder}, got {settings.revision!r}: it is of a model on the hub"
            )
        if not (folder / _INDEX).is_file():
            raise FileNotFoundError(
                f"Expected {_INDEX} in {folder}, got no such file; save the pipeline there with save_pretrained"
            )
        return folder
    if settings.model.startswith((".", "/", "~")) or settings.model.count("/") != 1:
        raise FileNotFoundError(
            f"Expected a model folder or a hub id of the form owner/name, got {settings.model!r} and no such folder"
        )
    diffusers = require("diffusers", "rendering")
    try:
        with quiet():
            return Path(
                diffusers.DiffusionPipeline.download(
                    settings.model, variant=settings.variant, revision=settings.revision
                )
            )
    except Exception as error:  # the hub's errors are of many classes, with the reason in the text
        reason = " ".join(str(error).split())[:300]
        raise ConnectionError(
            f"Expected the model {settings.model} from the hub, but it could not be loaded ({type(error).__name__}: "
            f"{reason}); check the id, accept the model's terms on its page if it has any, or download it where there "
            "is a connection and give its folder"
        ) from error


def _weight_files(folder: Path, variant: str | None) -> list[Path]:
    """Return the weight files that diffusers reads in a component's folder: those of the variant if there are any."""
    for file_variant in dict.fromkeys((variant, None)):
        for suffix in _WEIGHTS:
            files = []
            for path in sorted(folder.glob(f"*{suffix}")):
                # model.fp16.safetensors, model.fp16-00001-of-00002.safetensors
                name_part = path.name.removesuffix(suffix).partition(".")[2].partition("-")[0]
                if name_part == (file_variant or ""):
                    files.append(path)
            if files:
                return files
    return []


def _hash_config(path: Path) -> str:
    """Return the sha256 (hex) of a config without its incidental entries, or of the bytes of any other file."""
    if path.name == _INDEX or path.name.endswith("config.json"):
        settings = {name: value for name, value in _read_config(path).items() if name not in _INCIDENTAL}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise ValueError(f"Expected a JSON object in {path}, got something else; save or download the model again")
    return config


def model_class(folder: Path) -> str:
    """Return the name of the pipeline's class in a model's folder, "" if the index names none."""
    return str(_read_config(folder / _INDEX).get("_class_name", ""))


def model_fingerprint(folder: Path, variant: str | None = None) -> str:
    """Return the sha256 (hex) of everything in a model's folder that determines its images.

    This is the pipeline's class and components, and the configs, vocabulary files and loaded weights of each component
    (including scheduler and safety checker). Versions and paths in configs, and files of other variants and formats, do
    not count.

    Raises:
        ValueError: A config is not a JSON object.
        FileNotFoundError: There is no ``model_index.json``.
    """
    index = _read_config(folder / _INDEX)
    components = [name for name, value in index.items() if isinstance(value, list) and any(value)]
    folders = [folder / name for name in components if (folder / name).is_dir()]
    if len(folders) < len(components):  # some models keep a component's files beside the index
        folders.append(folder)
    hashes = {_INDEX: _hash_config(folder / _INDEX)}
    if model_class(folder).startswith("QwenImage"):  # other images than before guidance was its true_cfg_scale
        hashes["guidance"] = "true_cfg_scale"
    for component_folder in folders:
        for path in sorted(component_folder.iterdir()):
            if path.suffix in _TEXTS and not path.name.endswith(".index.json") and path.name != _INDEX:
                hashes[path.relative_to(folder).as_posix()] = _hash_config(path)
        for path in _weight_files(component_folder, variant):
            with open(path, "rb") as file:
                name = path.relative_to(folder).as_posix()
                hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def load_pipeline(
    settings: RenderSettings, device: str | None = None, attention_slicing: bool = False
) -> LoadedPipeline:
    """Load the text-to-image pipeline of ``settings.model``, in ``settings.dtype``, on a device.

    Any pipeline of diffusers' ``AutoPipelineForText2Image`` is supported. Scheduler and safety checker are those of the
    model.

    Args:
        settings: Settings, of which model, variant, revision and dtype are used.
        device: Torch device; None: "cuda" if available, else "cpu".
        attention_slicing: Compute attention in slices, with less memory and more time.

    Raises:
        FileNotFoundError: The folder does not exist.
        ConnectionError: The hub can't be reached, or has no such model.
        ValueError: The device is unknown, or the folder has no text-to-image pipeline or damaged weights.
        ModuleNotFoundError: Diffusers is not installed.
    """
    diffusers = require("diffusers", "rendering")
    import torch

    target = resolve_device(device)
    folder = find_model(settings)
    fingerprint = model_fingerprint(folder, settings.variant)
    with quiet():
        try:
            # "dtype" in newer versions, which still take the old name
            pipeline = diffusers.AutoPipelineForText2Image.from_pretrained(
                folder, torch_dtype=getattr(torch, settings.dtype), variant=settings.variant, local_files_only=True
            )
        except Exception as error:  # missing classes, missing files, shapes that do not fit: many classes
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"Expected a text-to-image pipeline of diffusers at {settings.model}, but it could not be loaded "
                f"({type(error).__name__}: {reason}); check that the folder is whole and that its pipeline makes "
                "images from texts"
            ) from error
        pipeline.set_progress_bar_config(disable=True)
        pipeline.to(target)
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
