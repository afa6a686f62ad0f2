"""Cache files of text embeddings: safetensors shards with checksums.

A shard contains ``keys`` (n, 16) uint8, the blake2b hashes of the texts, and ``rows`` (n, d) float32, their unit-norm
embeddings. Its metadata has the format, the encoder's fingerprint and a checksum of both arrays. Shards are written
under a temporary name, renamed, and never changed afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEY_BYTES", "DamagedShardError", "read_shard", "remove", "shard_of", "text_key", "write_shard"]

KEY_BYTES = 16
FORMAT = "edpbrl-text-embeddings-1"
_PREFIX = ".writing-"
_ABANDONED_SECONDS = 3600.0


class DamagedShardError(Exception):
    """A shard that must not be used; the message says why."""


def text_key(text: str) -> bytes:
    """Return the 128-bit key of a text."""
    # surrogatepass: a lone surrogate from a badly decoded file is still a distinct text
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def _checksum(keys: NDArray[np.uint8], rows: NDArray[np.float32]) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(keys).data)
    digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


def shard_of(folder: Path, keys: Iterable[bytes]) -> Path:
    """The shard of a worker that encodes the texts of these keys: the same path for the same keys in the same order."""
    return folder / f"shard-{hashlib.sha256(b''.join(keys)).hexdigest()}.safetensors"


def write_shard(
    folder: Path, keys: Iterable[bytes], rows: NDArray[np.float32], fingerprint: str, target: Path | None = None
) -> Path:
    """Write one shard atomically and return its path, which is a new one or ``target``; rows have shape (n, d)."""
    from safetensors.numpy import save

    packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)
    values = np.ascontiguousarray(rows, dtype=np.float32)
    metadata = {"format": FORMAT, "fingerprint": fingerprint, "checksum": _checksum(packed, values)}
    name = f"{os.getpid()}-{uuid.uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)  # the cache may have been emptied during the run
    temporary = folder / f"{_PREFIX}{name}"
    try:
        temporary.write_bytes(save({"keys": packed, "rows": values}, metadata=metadata))
        target = target or folder / f"shard-{name}.safetensors"
        os.replace(temporary, target)
    except BaseException:
        remove(temporary)
        raise
    return target


def remove(path: Path) -> None:
    """Delete a file if it exists and can be deleted (on Windows not while another process has it open)."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass


def remove_abandoned(folder: Path) -> None:
    """Delete partial files that killed processes left more than an hour ago."""
    for path in folder.glob(f"{_PREFIX}*"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                remove(path)
        except FileNotFoundError:
            continue


def _header(path: Path) -> tuple[dict[str, object], int]:
    """Return the parsed safetensors header and the offset of the data."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise DamagedShardError("it is truncated")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise DamagedShardError("its header is no JSON") from None
    if not isinstance(header, dict):
        raise DamagedShardError("its header is no JSON object")
    return header, 8 + length


def _view(
    path: Path, header: dict[str, object], start: int, name: str, kind: str, width: int
) -> tuple[NDArray[Any], int]:
    """Return one tensor of the file as a read-only memory map, and its end position in the file."""
    entry = header.get(name)
    try:
        shape, (first_byte, stop_byte), dtype_name = entry["shape"], entry["data_offsets"], entry["dtype"]  # type: ignore[index]
        count, columns = (int(size) for size in shape)
        first_byte, stop_byte = int(first_byte), int(stop_byte)
    except (TypeError, KeyError, ValueError, OverflowError):
        raise DamagedShardError(f"it has no tensor {name} of two dimensions") from None
    if dtype_name != kind or columns != width or count < 1:
        raise DamagedShardError(f"{name} is {dtype_name} {count} x {columns}, expected {kind} n x {width}")
    dtype = np.dtype(np.float32 if kind == "F32" else np.uint8).newbyteorder("<")
    if (
        stop_byte - first_byte != count * columns * dtype.itemsize
        or first_byte < 0
        or start + stop_byte > path.stat().st_size
    ):
        raise DamagedShardError(f"the bytes of {name} are missing or too many")
    # memory-mapped: a large cache takes page cache that processes share, not memory of each process
    return np.memmap(path, dtype=dtype, mode="r", offset=start + first_byte, shape=(count, columns)), start + stop_byte


def read_shard(path: Path, fingerprint: str, dimension: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return keys (n, 16) and rows (n, d) of a shard after all checks.

    Raises:
        FileNotFoundError: Another process has merged the shard into another file in the meantime.
        DamagedShardError: It is truncated, of another format or encoder, or has wrong shapes, checksum, NaN or norms.
    """
    header, start = _header(path)
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise DamagedShardError("it is of another format")
    if metadata.get("fingerprint") != fingerprint:
        raise DamagedShardError(f"it belongs to another encoder ({metadata.get('fingerprint')})")
    keys, keys_end = _view(path, header, start, "keys", "U8", KEY_BYTES)
    rows, rows_end = _view(path, header, start, "rows", "F32", dimension)
    if len(keys) != len(rows):
        raise DamagedShardError(f"it has {len(keys)} keys for {len(rows)} rows")
    if max(keys_end, rows_end) != path.stat().st_size:
        raise DamagedShardError("it has bytes after its end")
    if _checksum(keys, rows) != metadata.get("checksum"):
        raise DamagedShardError("its checksum is wrong")
    norms = np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
    if not np.all(np.abs(norms - 1.0) < 1e-4):  # NaN fails this as well
        raise DamagedShardError("it has rows with NaN or without unit norm")
    return keys, rows
