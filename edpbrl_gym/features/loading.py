"""From a short text such as "minilm" to an encoder."""

from __future__ import annotations

import os

from edpbrl_gym.features.base import TextEncoder
from edpbrl_gym.features.cache import CachedEncoder

__all__ = ["ENCODER_FORMS", "load_encoder"]

ENCODER_FORMS = {
    "minilm": "all-MiniLM-L6-v2, 384 features, works offline (the default)",
    "sentence-transformers:<hub id or local folder>": "any sentence-transformers model",
    "open_clip:<model>/<pretrained tag or weights file>": "a CLIP text tower, such as open_clip:ViT-L-14/openai",
    "open_clip:local-dir:<folder>": "the same from a folder with open_clip_config.json and weights",
    "precomputed:<file.npz or file.safetensors>": "embeddings that you computed elsewhere",
}


def _unknown(spec: object) -> ValueError:
    forms = "; ".join(f"'{form}' ({what})" for form, what in ENCODER_FORMS.items())
    return ValueError(f"Expected an encoder of one of the forms {forms}; got {spec!r}")


def load_encoder(
    spec: str = "minilm",
    *,
    cache: bool = True,
    cache_folder: str | os.PathLike[str] | None = None,
    batch_size: int = 256,
    device: str | None = None,
) -> TextEncoder:
    """Return the text encoder that ``spec`` names.

    Args:
        spec: one of ``ENCODER_FORMS``.
        cache: keep embeddings on disk (``CachedEncoder``); precomputed embeddings are never cached.
        cache_folder: None is EDPBRL_CACHE, else the user's cache folder.
        batch_size: the most texts in one call of the model.
        device: torch device; None is "cuda" where there is one, else "cpu".

    Raises:
        ValueError: an unknown form, model, tag or device, or weights that do not fit.
        ModuleNotFoundError: a package that the encoder needs is not installed.
        FileNotFoundError: a missing folder or file.
        ConnectionError: a model hub that can't be reached.
    """
    if not isinstance(spec, str):
        raise _unknown(spec)
    kind, separator, source = spec.partition(":")
    if separator and not source:
        raise _unknown(spec)
    encoder: TextEncoder
    if spec == "minilm":
        from edpbrl_gym.features.sentence import MiniLMEncoder

        encoder = MiniLMEncoder(batch_size=batch_size, device=device)
    elif kind == "sentence-transformers" and separator:
        from edpbrl_gym.features.sentence import SentenceTransformerEncoder

        encoder = SentenceTransformerEncoder(source, batch_size=batch_size, device=device)
    elif kind == "open_clip" and separator:
        from edpbrl_gym.features.clip import OpenClipEncoder

        encoder = OpenClipEncoder(source, batch_size=batch_size, device=device)
    elif kind == "precomputed" and separator:
        from edpbrl_gym.features.precomputed import PrecomputedEncoder

        return PrecomputedEncoder(source)
    else:
        raise _unknown(spec)
    return CachedEncoder(encoder, cache_folder) if cache else encoder
