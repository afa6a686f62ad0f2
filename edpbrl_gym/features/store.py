"""Cache files of text embeddings: safetensors shards with checksums.

A shard contains ``keys`` (n, 16) uint8, the blake2b hashes of the texts, and ``rows`` (n, d) float32, their unit-norm
embeddings. Its metadata has the format, the encoder's fingerprint and a checksum of both arrays. Shards are written
atomically, and never changed afterwards.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import mmap
import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._files import replacing, sweep
from edpbrl_gym._threads import give_back
from edpbrl_gym.features.base import check_fingerprint

__all__ = [
    "DamagedShardError",
    "EmbeddingStore",
    "StoredRows",
    "default_cache_folder",
    "read_shard",
    "shard_of",
    "text_key",
    "write_shard",
]

_log = logging.getLogger(__name__)
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

KEY_BYTES = 16
FORMAT = "edpbrl-text-embeddings-1"


class DamagedShardError(Exception):
    """A shard that must not be used; the message says why."""


def text_key(text: str) -> bytes:
    """Return the 128-bit key of a text; a lone surrogate from a badly decoded file is a distinct text, too."""
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
    folder.mkdir(parents=True, exist_ok=True)  # the cache may have been emptied during the run
    target = target or folder / f"shard-{os.getpid()}-{uuid.uuid4().hex}.safetensors"
    with replacing(target) as part:
        part.write_bytes(save({"keys": packed, "rows": values}, metadata=metadata))
    return target


def remove(path: Path) -> None:
    """Delete a file if it exists and can be deleted."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def read_shard(path: Path, fingerprint: str, dimension: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return keys (n, 16) and rows (n, d) of a shard after all checks.

    Raises:
        FileNotFoundError: Another process has merged the shard into another file in the meantime.
        DamagedShardError: It is truncated, of another format or encoder, or has wrong shapes, checksum, NaN or norms.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as checked:  # its header fits the bytes of the file
            metadata = checked.metadata() or {}
    except SafetensorError as error:
        raise DamagedShardError(f"it is damaged ({error})") from None
    if metadata.get("format") != FORMAT:
        raise DamagedShardError("it is of another format")
    if metadata.get("fingerprint") != fingerprint:
        raise DamagedShardError(f"it belongs to another encoder ({metadata.get('fingerprint')})")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        # a large cache takes page cache that processes share, not memory of each process
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    views: list[NDArray[Any]] = []
    for name, kind, width in (("keys", "U8", KEY_BYTES), ("rows", "F32", dimension)):
        entry = header.get(name, {"dtype": "missing", "shape": []})
        shape = tuple(entry["shape"])
        if entry["dtype"] != kind or len(shape) != 2 or shape[1] != width or shape[0] < 1:
            raise DamagedShardError(f"{name} is {entry['dtype']} {shape}, expected {kind} n x {width}")
        start = 8 + length + entry["data_offsets"][0]
        values = np.frombuffer(mapped, "<f4" if kind == "F32" else "u1", count=shape[0] * width, offset=start)
        views.append(values.reshape(shape))
    keys, rows = views
    if len(keys) != len(rows):
        raise DamagedShardError(f"it has {len(keys)} keys for {len(rows)} rows")
    if _checksum(keys, rows) != metadata.get("checksum"):
        raise DamagedShardError("its checksum is wrong")
    norms = np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
    if not np.all(np.abs(norms - 1.0) < 1e-4):  # NaN fails this as well
        raise DamagedShardError("it has rows with NaN or without unit norm")
    _give_back(rows)  # the checks have read all of it
    return keys, rows


def _give_back(rows: NDArray[np.float32]) -> None:
    """Give the memory back that a mapped file has taken; what is read from it later comes from the disk's cache."""
    base: Any = rows
    while isinstance(base, np.ndarray):
        base = base.base
    mapped = base.obj if isinstance(base, memoryview) else None
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class _Index:
    """Where the row of a key is: ``block << 32 | row``.

    What a server has met only grows, so most keys are in sorted arrays, at 24 bytes each; a dictionary takes eight
    times as much, and has those that came last.
    """

    MOST_RECENT = 32768
    FEW = 1024  # keys that the dictionary takes

    def __init__(self) -> None:
        self._recent: dict[bytes, int] = {}
        self._counts: Counter[int] = Counter()  # keys of each block among them
        self._keys = np.empty(0, f"S{KEY_BYTES}")  # sorted, each once
        self._places = np.empty(0, np.int64)
        self._sorted_blocks: set[int] = set()
        self._new: list[tuple[NDArray[Any], NDArray[np.int64]]] = []  # for the arrays

    def __len__(self) -> int:
        self._sort()
        return len(self._keys) + int((self._sorted(_joined(self._recent)) < 0).sum())

    def put(self, keys: Sequence[bytes], block: int, first: int = 0) -> None:
        """Keys of consecutive rows of a block, from the ``first`` on, in the place of what is known of them."""
        start = (block << 32) + first
        if block and len(keys) >= self.FEW:
            self._new.append((_joined(keys), np.arange(start, start + len(keys))))
            self.forget(keys)
        else:
            self.forget(keys)
            before = len(self._recent)
            self._recent.update(zip(keys, range(start, start + len(keys)), strict=True))
            self._counts[block] += len(self._recent) - before

    def forget(self, keys: Iterable[bytes]) -> None:
        """Forget what the dictionary has of keys."""
        for key in keys:
            if (place := self._recent.pop(key, None)) is not None:
                block = place >> 32
                self._counts[block] -= 1
                if not self._counts[block]:
                    del self._counts[block]

    def find(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """The places of keys, (n,); -1: there is none."""
        self._sort()
        places = self._sorted(_joined(keys))
        for number, key in enumerate(keys):
            places[number] = self._recent.get(key, places[number])
        return places

    def blocks(self) -> set[int]:
        """Blocks of which a row is found; not all keys are looked at, as this is asked at every read of a new file."""
        self._sort()
        return self._sorted_blocks | self._counts.keys()

    def _sorted(self, keys: NDArray[Any]) -> NDArray[np.int64]:
        """Places of those in the arrays."""
        if not len(self._keys):
            return np.full(len(keys), -1)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._places[at], -1)

    def _sort(self) -> None:
        if len(self._recent) > self.MOST_RECENT:
            moved = {key: place for key, place in self._recent.items() if place >> 32}  # block 0 is let go later
            self._new.append((_joined(moved), np.array(list(moved.values()), np.int64)))
            self.forget(moved)
        if not self._new:
            return
        keys, places = (np.concatenate(parts) for parts in zip((self._keys, self._places), *self._new, strict=True))
        self._new = []
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], places[order]
        is_last = np.append(keys[1:] != keys[:-1], True)[: len(keys)]
        self._keys, self._places = keys[is_last], places[is_last]
        self._sorted_blocks = set(np.unique(self._places >> 32).tolist())
        del keys, places, order, is_last
        give_back()  # sorting took several times as much as is kept, and the next time the holes are too small


def _joined(keys: Iterable[bytes]) -> NDArray[Any]:
    return np.frombuffer(b"".join(keys), f"S{KEY_BYTES}")


class EmbeddingStore:
    """The rows of one encoder on disk: shards in ``<folder>/<fingerprint>``, one index in memory.

    Every process writes its own shards and deletes a shard only after writing its rows to another one, so processes
    need no locks. Small shards are merged when new ones are written (each is at least twice as large as the next). A
    shard that fails its checks is deleted with a warning. If the disk is full, rows stay in memory.
    """

    MAX_SHARD_ROWS = 32768
    MAX_SMALL_SHARDS = 64
    MAX_OWN_ROWS = 16384  # in memory: then one shard takes them all, and they are read from it

    def __init__(self, folder: Path, fingerprint: str, dimension: int) -> None:
        self.folder = folder / fingerprint
        self.fingerprint = fingerprint
        self.dimension = dimension
        self._index = _Index()
        self._blocks: list[NDArray[np.float32]] = [np.empty((0, dimension), np.float32)]  # block 0: this process's
        self._own_keys: list[bytes] = []
        self._own_shards: list[tuple[Path, int, int]] = []  # path, first and last + 1 row in block 0
        self._shard_names: set[str] = set()
        self._small: dict[Path, int] = {}  # small shards of other processes, and their rows
        self._open: set[int] = set()  # blocks that are files
        self._warned = False
        sweep(self.folder)
        self.refresh()

    def __len__(self) -> int:
        return len(self._index)

    def has(self, keys: Sequence[bytes]) -> NDArray[np.bool_]:
        """Which keys have rows, (n,)."""
        return self._index.find(keys) >= 0

    def refresh(self) -> None:
        """Read new shards of other processes; where there are many small ones, merge them, as each is an open file."""
        shards: dict[Path, int] = {}
        while True:
            vanished = False
            try:
                self.folder.mkdir(parents=True, exist_ok=True)  # someone may have emptied the cache
            except OSError as error:
                if error.errno not in _DISK_FULL:
                    raise
                self._continue_in_memory(error)
                return
            names = {entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".safetensors")}
            for name in sorted(names - self._shard_names):
                try:
                    shards[self.folder / name] = self._read(self.folder / name)
                except FileNotFoundError:
                    vanished = True  # merged into a file that is newer than our listing
                self._shard_names.add(name)
            if not vanished:
                break
        if any(shards.values()):
            self._drop_unused()
        small = {path: size for path, size in shards.items() if 0 < size < self.MAX_SHARD_ROWS // 4}
        self._small = {path: size for path, size in self._small.items() if path.name in names} | small
        if len(self._small) > self.MAX_SMALL_SHARDS and self._merge_small():
            self.refresh()

    def _drop_unused(self) -> None:
        """Forget shards that others have merged into what was read now: open, their files take space on the disk."""
        used = self._index.blocks()
        for block in self._open - used:
            self._blocks[block] = self._blocks[block][:0].copy()
        self._open &= used

    def _read(self, path: Path) -> int:
        try:
            keys, rows = read_shard(path, self.fingerprint, self.dimension)
        except DamagedShardError as problem:
            _log.warning("Deleted the cache file %s: %s; its texts will be encoded again", path, problem)
            remove(path)
            return 0
        self._take(keys, rows)
        return len(rows)

    def _take(self, keys: NDArray[np.uint8], rows: NDArray[np.float32]) -> None:
        packed = keys.tobytes()
        starts = range(0, len(packed), KEY_BYTES)
        self._index.put([packed[start : start + KEY_BYTES] for start in starts], len(self._blocks))
        self._open.add(len(self._blocks))
        self._blocks.append(rows)

    def _merge_small(self) -> bool:
        """Merge the small shards of other processes; others list the folder again. Return whether the disk took it."""
        small, self._small = self._small, {}
        group: list[Path] = []
        rows = 0
        for path, size in [*small.items(), (None, self.MAX_SHARD_ROWS)]:  # only so many rows are in memory at a time
            if rows + size > self.MAX_SHARD_ROWS:
                if len(group) > 1 and not self._merge(group):
                    return False
                group, rows = [], 0
            if path is not None:
                group.append(path)
                rows += size
        return True

    def _merge(self, paths: list[Path]) -> bool:
        """Merge shards into one; return whether the disk took it."""
        merged: dict[bytes, NDArray[np.float32]] = {}
        for path in paths:
            try:
                keys, rows = read_shard(path, self.fingerprint, self.dimension)
            except (FileNotFoundError, DamagedShardError):
                continue
            for key, row in zip(keys, rows, strict=True):
                merged.setdefault(key.tobytes(), row)
        try:
            if merged:
                write_shard(self.folder, list(merged), np.stack(list(merged.values())), self.fingerprint)
        except OSError as error:
            self._continue_in_memory(error)  # keep the small shards
            return False
        for path in paths:
            remove(path)
        return True

    def _continue_in_memory(self, error: OSError) -> None:
        if not self._warned:
            _log.warning(
                "Expected to write into the cache folder %s, got %s; embeddings are kept in memory, and what is not "
                "on disk is encoded again by the next run: free some space, or set EDPBRL_CACHE to another folder",
                self.folder,
                error.strerror or error,
            )
        self._warned = True

    def add(self, keys: list[bytes], rows: NDArray[np.float32]) -> None:
        """Store new rows, shape (n, d), in memory and, if possible, on disk."""
        start = len(self._own_keys)
        stop = start + len(keys)
        block = self._blocks[0]
        if stop > len(block):
            grown = np.empty((max(stop, 2 * len(block), 1024), self.dimension), np.float32)
            grown[:start] = block[:start]
            self._blocks[0] = block = grown
        block[start:stop] = rows
        self._own_keys.extend(keys)
        self._index.put(keys, 0, start)
        num_kept, is_full = len(self._own_shards), stop >= self.MAX_OWN_ROWS
        while num_kept and not is_full:
            _, shard_start, shard_stop = self._own_shards[num_kept - 1]
            if shard_stop - shard_start > 2 * (stop - start):
                break
            num_kept -= 1
            start = shard_start
        if is_full:
            num_kept = start = 0
        try:
            path = write_shard(self.folder, self._own_keys[start:stop], block[start:stop], self.fingerprint)
        except OSError as error:
            self._continue_in_memory(error)
            return
        self._shard_names.add(path.name)
        replaced = self._own_shards[num_kept:]
        self._own_shards[num_kept:] = [(path, start, stop)]
        for replaced_path, _, _ in replaced:
            remove(replaced_path)
            self._shard_names.discard(replaced_path.name)
        if is_full:
            self._let_go()

    def _let_go(self) -> None:
        """Read this process's rows, which are in one shard, from that one, so that they don't fill the memory."""
        [(path, _, _)] = self._own_shards
        try:
            keys, rows = read_shard(path, self.fingerprint, self.dimension)
        except (FileNotFoundError, DamagedShardError):
            return  # somebody has emptied the cache
        self._index.forget(self._own_keys)
        self._take(keys, rows)
        self._blocks[0] = np.empty((0, self.dimension), np.float32)
        self._own_keys, self._own_shards = [], []

    def get(self, keys: list[bytes]) -> NDArray[np.float32]:
        """Return the rows of stored keys, shape (n, d); KeyError: one is not stored."""
        rows = np.empty((len(keys), self.dimension), np.float32)
        places = self._index.find(keys)
        if (places < 0).any():
            raise KeyError(keys[int(places.argmin())].hex())
        blocks = places >> 32
        for block in np.unique(blocks):
            indices = np.flatnonzero(blocks == block)
            rows[indices] = self._blocks[block][places[indices] & 0xFFFFFFFF]
            _give_back(self._blocks[block])  # else all that was ever asked stays in the memory of a server
        return rows


def default_cache_folder() -> Path:
    """Return the cache folder: EDPBRL_CACHE, else edpbrl-gym in XDG_CACHE_HOME, else ~/.cache/edpbrl-gym."""
    if folder := os.environ.get("EDPBRL_CACHE"):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    # by the XDG specification a relative path is ignored
    root = Path(base) if base and os.path.isabs(base) else Path(os.path.expanduser("~/.cache"))
    return root / "edpbrl-gym"


class StoredRows:
    """What encoders with a cache on disk share: the rows in a folder by their fingerprint, opened on first use."""

    def __init__(self, encoder: Any, folder: str | os.PathLike[str] | None, place: str) -> None:
        check_fingerprint(encoder.fingerprint)
        self.encoder = encoder
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint
        self.folder = (default_cache_folder() if folder is None else Path(folder).expanduser()) / place
        self._store: EmbeddingStore | None = None
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @property
    def store(self) -> EmbeddingStore:
        """The rows on disk.

        Raises:
            OSError: The cache folder can't be created or read; the message says what to set.
        """
        with self._lock:
            if self._store is None:
                try:
                    self._store = EmbeddingStore(self.folder, self.fingerprint, self.dimension)
                except OSError as error:
                    raise OSError(
                        f"Expected a cache folder that can be written at {self.folder}, got {error}; set EDPBRL_CACHE "
                        "to another folder or use cache=False"
                    ) from error
            return self._store

    def stored(self, keys: list[bytes]) -> NDArray[np.float32]:
        """The rows of stored keys, shape (n, d)."""
        with self._lock:
            return self.store.get(keys)

    def missing(self, keys: Sequence[bytes], items: Sequence[Any]) -> dict[bytes, Any]:
        """The items whose keys the store lacks, also once it has looked for what other processes wrote."""

        def lacking() -> dict[bytes, Any]:
            known = self.store.has(keys)
            return {key: item for key, item, is_there in zip(keys, items, known, strict=True) if not is_there}

        found = lacking()
        if found:
            self.store.refresh()
            found = lacking()
        return found
