"""A learnt taste on disk: theta and its provenance, as safetensors.

All metadata is one entry, since safetensors writes several in arbitrary order: equal tastes give equal files. It
contains the sha256 of the file with 64 zeros in place of that sha256, so that every change is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._files import errors_naming
from edpbrl_gym._places import write_atomically
from edpbrl_gym._validation import check_array

__all__ = ["Taste", "load_taste", "save_taste"]

_FORMAT = "edpbrl-gym taste 2"
_KEY = "edpbrl_gym"
_NO_DIGEST = "0" * 64


@dataclass(frozen=True, eq=False)
class Taste:
    """A learnt taste.

    Attributes:
        theta: The estimate, shape (d,).
        provenance: Encoder and its fingerprint, number of questions, regularization and so on.
    """

    theta: NDArray[np.float64]
    provenance: dict[str, Any]


def save_taste(path: str | os.PathLike[str], theta: ArrayLike, provenance: Mapping[str, Any]) -> Path:
    """Write theta (float64) and its provenance to a safetensors file, atomically.

    Raises:
        ValueError: If theta isn't finite.
        RunFolderError: If the file can't be written.
    """
    from safetensors.numpy import save

    target = Path(path)
    data = save(
        {"theta": np.ascontiguousarray(check_array(theta, "theta", shape=("d",)))},
        metadata={_KEY: json.dumps({"format": _FORMAT, "sha256": _NO_DIGEST, "provenance": dict(provenance)})},
    )
    data = data.replace(_NO_DIGEST.encode(), hashlib.sha256(data).hexdigest().encode(), 1)
    write_atomically(target, lambda name: name.write_bytes(data))
    return target


def load_taste(path: str | os.PathLike[str]) -> Taste:
    """Read a taste.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If ``save_taste`` did not write the file, or it was changed since.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a taste file at {source}, found none; make one with `edpbrl estimate`")
    try:
        with errors_naming(source):
            data = source.read_bytes()
        theta = load(data)["theta"]
        document = _document(data)
        digest = document["sha256"]
        if hashlib.sha256(data.replace(digest.encode(), _NO_DIGEST.encode(), 1)).hexdigest() != digest:
            raise ValueError("its checksum is wrong: the file has changed since it was written")
        provenance = dict(document["provenance"])
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise ValueError(
            f"Expected a taste file of `edpbrl estimate`, could not read {source} as one ({error}); give the file "
            "theta.safetensors that it wrote"
        ) from None
    return Taste(check_array(theta, "theta", shape=("d",)), provenance)


def _document(data: bytes) -> dict[str, Any]:
    """The entry of this package in the metadata of a safetensors file.

    Raises:
        ValueError: If it is of another format.
        KeyError: If there is none.
    """
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    if _KEY not in metadata and "format" in metadata:
        raise ValueError(f"format {metadata['format']!r}, written by another version")
    document: dict[str, Any] = json.loads(metadata[_KEY])
    if document.get("format") != _FORMAT:
        raise ValueError(f"format {document.get('format')!r}")
    return document
