"""A learnt taste on disk: theta with where it came from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array
from edpbrl_gym.experiments.runs import write_atomically

__all__ = ["Taste", "load_taste", "save_taste"]

_FORMAT = "edpbrl-gym taste 1"


@dataclass(frozen=True, eq=False)
class Taste:
    """A learnt taste.

    Attributes:
        theta: The estimate, shape (d,).
        provenance: Encoder and its fingerprint, number of questions, regularization, ...
    """

    theta: NDArray[np.float64]
    provenance: dict[str, Any]


def save_taste(path: str | os.PathLike[str], theta: ArrayLike, provenance: Mapping[str, Any]) -> Path:
    """Write theta (float64) and its provenance to a safetensors file, atomically.

    Raises:
        ValueError: If theta isn't finite.
        RunFolderError: If the place can't be written.
    """
    from safetensors.numpy import save

    target = Path(path)
    data = save(
        {"theta": np.ascontiguousarray(check_array(theta, "theta", shape=("d",)))},
        metadata={"format": _FORMAT, "provenance": json.dumps(dict(provenance))},
    )
    write_atomically(target, lambda name: name.write_bytes(data))
    return target


def load_taste(path: str | os.PathLike[str]) -> Taste:
    """Read a taste.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no taste that ``save_taste`` wrote.
    """
    from safetensors import SafetensorError, safe_open

    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a taste file at {source}, found none; make one with `edpbrl estimate`")
    try:
        with safe_open(source, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise ValueError(f"format {metadata.get('format')!r}")
            theta = file.get_tensor("theta")
            provenance = json.loads(metadata["provenance"])
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        raise ValueError(
            f"Expected a taste file of `edpbrl estimate`, could not read {source} as one ({error}); give the file "
            "theta.safetensors that it wrote"
        ) from None
    return Taste(check_array(theta, "theta", shape=("d",)), provenance)
