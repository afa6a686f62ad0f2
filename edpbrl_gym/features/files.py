"""Embeddings of many texts as one .npy file, which solvers and planners read as a memory map."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from edpbrl_gym._files import replacing
from edpbrl_gym.features.base import check_texts
from edpbrl_gym.features.cache import CachedEncoder

__all__ = ["encode_to_file"]

_BLOCK = 16384  # rows in memory at a time


def encode_to_file(
    encoder: CachedEncoder, texts: Sequence[str], path: str | PathLike[str], *, progress: bool = False
) -> None:
    """Write the embeddings of texts to a .npy file, float32 (n, d), unit norm, row i for ``texts[i]``.

    Each finished chunk of texts is in the encoder's cache, so a call that was stopped goes on there; the file appears
    when it is complete. ``np.load(path, mmap_mode="r")`` opens it without reading it.

    Args:
        encoder: The encoder; with an executor its workers encode.
        texts: n strings, at least one.
        path: The file.
        progress: Show a progress bar over the texts that are not in the cache.

    Raises:
        TypeError: The texts are not a list of strings.
        ValueError: There is none, or the model returned NaN, infinity or a zero vector.
        OSError: The file or the cache can't be written.
    """
    checked_texts = check_texts(texts)
    if not checked_texts:
        raise ValueError("Expected at least one text to encode, got none")
    keys = encoder.fill(checked_texts, progress=progress)
    with replacing(Path(path)) as part:
        rows = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=(len(keys), encoder.dimension))
        for start in range(0, len(keys), _BLOCK):
            rows[start : start + _BLOCK] = encoder.store.get(keys[start : start + _BLOCK])
        rows.flush()
