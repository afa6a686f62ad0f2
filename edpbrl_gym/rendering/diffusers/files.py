"""The files of a text-to-image model: where they are, their fingerprint, what they say before they are loaded."""

from __future__ import annotations

import importlib
import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edpbrl_gym._compat import require
from edpbrl_gym.features.base import hash_file, hash_settings
from edpbrl_gym.rendering.diffusers.arguments import PipelineKind
from edpbrl_gym.rendering.settings import RenderSettings

__all__ = [
    "find_lora",
    "find_model",
    "model_class",
    "model_components",
    "model_fingerprint",
    "model_kind",
    "quiet",
    "single_file",
    "whole_fingerprint",
]

_INDEX = "model_index.json"
_WEIGHTS = (".safetensors", ".bin")  # in the order in which diffusers prefers them
_TEXTS = (".json", ".txt", ".model")  # configs, vocabularies, merges
# entries of a saved config about its saving, not about the model
_INCIDENTAL = ("_diffusers_version", "_name_or_path", "_commit_hash", "transformers_version")


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

    For a single checkpoint file it is the folder of its configs.

    Raises:
        FileNotFoundError: The folder does not exist, or has no pipeline.
        ValueError: A revision is asked for of a folder, or configs of what has its own; a single file is no checkpoint.
        ConnectionError: The hub can't be reached, or has no such model.
        ModuleNotFoundError: Diffusers is not installed.
    """
    folder = Path(settings.model).expanduser()
    if folder.is_file():
        if settings.revision is not None or settings.variant is not None:
            raise ValueError(f"Expected no revision and no variant with the single file {folder}; leave them out")
        return _configs(folder, settings.config)
    if settings.config is not None:
        raise ValueError(f"Expected no config with {settings.model}, which is no single file; leave it out")
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
    download = require("diffusers", "rendering").DiffusionPipeline.download
    options = {"variant": settings.variant, "revision": settings.revision}
    return _from_hub(f"the model {settings.model}", lambda: download(settings.model, **options))


def _from_hub(what: str, download: Callable[[], Any]) -> Path:
    try:
        with quiet():
            return Path(download())
    except Exception as error:  # the hub's errors are of many classes, with the reason in the text
        reason = " ".join(str(error).split())[:300]
        raise ConnectionError(
            f"Expected {what} from the hub, but it could not be loaded ({type(error).__name__}: {reason}); check the "
            "id, accept the model's terms on its page if it has any, or download it where there is a connection and "
            "give its folder"
        ) from error


def _files_from_hub(what: str, name: str, patterns: str | list[str]) -> Path:
    hub = importlib.import_module("huggingface_hub")  # which diffusers brings
    return _from_hub(what, lambda: hub.snapshot_download(name, allow_patterns=patterns))


def _configs(file: Path, config: str | None) -> Path:
    """Return the folder with the configs of a single checkpoint file, from the hub unless ``config`` is one."""
    if file.suffix != ".safetensors":
        raise ValueError(f"Expected a single checkpoint as .safetensors, got {file}; other formats can run code")
    if config is None:
        require("diffusers", "rendering")
        from diffusers.loaders import single_file_utils

        utils: Any = single_file_utils  # without types
        try:
            with quiet():
                checkpoint = utils.load_single_file_checkpoint(str(file), local_files_only=True)
                config = str(utils.fetch_diffusers_config(checkpoint)["pretrained_model_name_or_path"])
        except Exception as error:
            raise ValueError(f"Expected a whole .safetensors file, got {file}, which can't be read") from error
    folder = Path(config).expanduser()
    if not folder.is_dir():
        what = f"{config} for the configs of {file.name} (option config)"
        folder = _files_from_hub(what, config, ["*.json", "*.txt", "*.model"])
    if not (folder / _INDEX).is_file():
        raise FileNotFoundError(f"Expected {_INDEX} in the folder of configs {folder}, got no such file")
    return folder


def find_lora(lora: str) -> tuple[Path, float]:
    """Return the file of a LoRA, downloaded if it is on the hub, and its weight; the forms are in ``ImageSettings``.

    Raises:
        FileNotFoundError: There is no such file, or not one alone.
        ConnectionError: The hub can't be reached, or has no such LoRA.
    """
    weighted = re.fullmatch(r"(.+)@(-?\d+(?:\.\d*)?)", lora)
    name, weight = (weighted[1], float(weighted[2])) if weighted else (lora, 1.0)
    path, (owner, *rest) = Path(name).expanduser(), name.split("/")
    if not path.exists() and rest and owner not in ("", ".", "..", "~"):
        inside = "/".join(rest[1:])
        path = _files_from_hub(f"the LoRA {name}", f"{owner}/{rest[0]}", inside or "*.safetensors") / inside
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    files = [file for file in files if file.name == "pytorch_lora_weights.safetensors"] or files
    if len(files) != 1 or files[0].suffix != ".safetensors" or not files[0].is_file():
        found = ", ".join(file.name for file in files) if path.is_dir() and files else "none"
        raise FileNotFoundError(f"Expected one .safetensors file of a LoRA at {name}, got {found}; name the file")
    return files[0], weight


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
        return hash_settings(settings)
    return hash_file(path)


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


def model_kind(folder: Path) -> PipelineKind:
    """What decides how the pipeline of a model's folder is guided.

    Raises:
        ValueError: diffusers has no class of the name in the index.
    """
    name, transformer = model_class(folder), folder / "transformer" / "config.json"
    cls = getattr(require("diffusers", "rendering"), name, None) if name else None
    if cls is None:
        raise ValueError(f"Expected a pipeline of diffusers in {folder}, got {name!r}; upgrade diffusers")
    return PipelineKind(cls, _read_config(folder / _INDEX), _read_config(transformer) if transformer.is_file() else {})


def model_components(folder: Path) -> list[str]:
    """Return the names of a model's components."""
    return [name for name, value in _read_config(folder / _INDEX).items() if isinstance(value, list) and any(value)]


def single_file(settings: RenderSettings) -> Path | None:
    """Return the file with all weights of a model, None where the model is a folder or on the hub."""
    file = Path(settings.model).expanduser()
    return file if file.is_file() else None


def whole_fingerprint(settings: RenderSettings, folder: Path) -> str:
    """Return ``model_fingerprint`` of a model's folder, or one of the single file, the LoRA and it together."""
    file = single_file(settings)
    fingerprint = model_fingerprint(folder, settings.variant, weights=file is None)
    parts: list[Any] = [] if file is None else ["file", hash_file(file)]
    if settings.lora is not None:
        path, weight = find_lora(settings.lora)
        parts += ["lora", hash_file(path), weight]
    return hash_settings([fingerprint, *parts]) if parts else fingerprint


def model_fingerprint(folder: Path, variant: str | None = None, *, weights: bool = True) -> str:
    """Return the sha256 (hex) of everything in a model's folder that determines its images.

    This is the pipeline's class and components, and the configs, vocabulary files and loaded weights of each component
    (including scheduler and safety checker). Versions and paths in configs, and files of other variants and formats, do
    not count. Without ``weights`` those in the folder do not count either.

    Raises:
        ValueError: A config is not a JSON object.
        FileNotFoundError: There is no ``model_index.json``.
    """
    components = model_components(folder)
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
        for path in _weight_files(component_folder, variant) if weights else ():
            hashes[path.relative_to(folder).as_posix()] = hash_file(path)
    return hash_settings(hashes)
