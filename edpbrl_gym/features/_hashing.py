"""sha256 of files and of model weights, for encoder fingerprints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["hash_arrays", "hash_file", "hash_settings", "hash_state_dict"]


@lru_cache(maxsize=64)
def _hash_version(path: str, size: int, modified: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_file(path: Path) -> str:
    """Return the sha256 (hex) of a file, computed once per process unless its size or time stamp changes."""
    status = path.stat()
    return _hash_version(str(path.resolve()), status.st_size, status.st_mtime_ns)


def hash_settings(settings: Any) -> str:
    """Return the sha256 (hex) of an object as JSON; other types enter by their repr."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode()).hexdigest()


def hash_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the sha256 (hex) of named arrays: names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(array.data.cast("B") if array.size else b"")
    return digest.hexdigest()


def hash_state_dict(state: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of a torch state dict, whatever its device."""
    import torch

    arrays = {}
    for name, tensor in state.items():
        if isinstance(tensor, torch.Tensor):
            # bytes, not values: numpy has no bfloat16
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            arrays[f"{name} {tensor.dtype} {tuple(tensor.shape)}"] = flat
    return hash_arrays(arrays)
