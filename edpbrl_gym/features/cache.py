"""``CachedEncoder``: never encode the same text twice, across runs and processes."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.features.base import TextEncoder, check_fingerprint, check_texts, normalise
from edpbrl_gym.features.shards import (
    KEY_BYTES,
    DamagedShardError,
    read_shard,
    remove,
    remove_abandoned,
    text_key,
    write_shard,
)

__all__ = ["CachedEncoder", "EmbeddingStore", "default_cache_folder"]

_log = logging.getLogger(__name__)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def default_cache_folder() -> Path:
    """Return the cache folder: EDPBRL_CACHE, else edpbrl-gym in XDG_CACHE_HOME, else ~/.cache/edpbrl-gym."""
    chosen = os.environ.get("EDPBRL_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    # the XDG specification: a relative path is to be ignored
    root = Path(base) if base and os.path.isabs(base) else Path(os.path.expanduser("~/.cache"))
    return root / "edpbrl-gym"


class EmbeddingStore:
    """The rows of one encoder on disk: shards in ``<folder>/<fingerprint>``, one index in memory.

    Every process writes shards of its own and deletes only what it has written itself under a new name, so processes
    need no locks. Small shards are merged while they are written (each at least twice as large as the next), so many
    small batches leave few files. A shard that fails its checks is deleted with a warning and its texts count as
    missing. Where the disk takes no more, rows stay in memory and a warning says so once.
    """

    MAX_SHARD_ROWS = 32768
    MAX_SMALL_SHARDS = 64

    def __init__(self, folder: Path, fingerprint: str, dimension: int) -> None:
        self.folder = folder / fingerprint
        self.fingerprint = fingerprint
        self.dimension = dimension
        self._index: dict[bytes, tuple[int, int]] = {}  # key -> (block, row)
        self._blocks: list[NDArray[np.float32]] = [np.empty((0, dimension), np.float32)]  # block 0: this process's
        self._own_keys: list[bytes] = []
        self._own_shards: list[tuple[Path, int, int]] = []  # path, first and last + 1 row in block 0
        self._seen: set[str] = set()
        self._warned = False
        remove_abandoned(self.folder)
        self._merge_small(self.refresh())

    def __reduce__(self) -> tuple[Any, ...]:
        return (EmbeddingStore, (self.folder.parent, self.fingerprint, self.dimension))

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: bytes) -> bool:
        return key in self._index

    def refresh(self) -> list[tuple[Path, int]]:
        """Read the shards that other processes have written since; return their paths and sizes."""
        read: list[tuple[Path, int]] = []
        while True:
            vanished = False
            try:
                self.folder.mkdir(parents=True, exist_ok=True)  # someone may have emptied the cache
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._go_on_in_memory(error)
                return []
            names = {entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".safetensors")}
            for name in sorted(names - self._seen):
                try:
                    read.append((self.folder / name, self._read(self.folder / name)))
                except FileNotFoundError:
                    vanished = True  # merged into a file that is newer than our listing
                self._seen.add(name)
            if not vanished:
                return [(path, size) for path, size in read if size]

    def _read(self, path: Path) -> int:
        try:
            keys, rows = read_shard(path, self.fingerprint, self.dimension)
        except DamagedShardError as problem:
            _log.warning("Deleted the cache file %s: %s; its texts will be encoded again", path, problem)
            remove(path)
            return 0
        block = len(self._blocks)
        self._blocks.append(rows)
        packed = keys.tobytes()
        for row in range(len(rows)):
            self._index.setdefault(packed[row * KEY_BYTES : (row + 1) * KEY_BYTES], (block, row))
        return len(rows)

    def _merge_small(self, shards: list[tuple[Path, int]]) -> None:
        """Merge the small shards of earlier processes into one when there are many.

        Safe beside a process that still runs: it keeps its own rows in memory, and whoever finds a file gone lists
        the folder again.
        """
        small = [path for path, size in shards if size < self.MAX_SHARD_ROWS // 4]
        if len(small) <= self.MAX_SMALL_SHARDS:
            return
        merged: dict[bytes, NDArray[np.float32]] = {}
        for path in small:
            try:
                keys, rows = read_shard(path, self.fingerprint, self.dimension)
            except (FileNotFoundError, DamagedShardError):
                continue
            for key, row in zip(keys, rows, strict=True):
                merged.setdefault(key.tobytes(), row)
        found, stacked = list(merged), np.stack(list(merged.values()))
        try:
            for start in range(0, len(found), self.MAX_SHARD_ROWS):
                stop = start + self.MAX_SHARD_ROWS
                path = write_shard(self.folder, found[start:stop], stacked[start:stop], self.fingerprint)
                self._seen.add(path.name)
        except OSError as error:
            self._go_on_in_memory(error)  # the small ones stay
            return
        for path in small:
            remove(path)

    def _go_on_in_memory(self, error: OSError) -> None:
        if not self._warned:
            _log.warning(
                "Expected to write into the cache folder %s, got %s; embeddings are kept in memory, and what is not "
                "on disk is encoded again by the next run: free some space, or set EDPBRL_CACHE to another folder",
                self.folder,
                error.strerror or error,
            )
        self._warned = True

    def add(self, keys: list[bytes], rows: NDArray[np.float32]) -> None:
        """Keep new rows, shape (n, d), in memory and, if it takes them, on disk."""
        start = len(self._own_keys)
        stop = start + len(keys)
        own = self._blocks[0]
        if stop > len(own):
            grown = np.empty((max(stop, 2 * len(own), 1024), self.dimension), np.float32)
            grown[:start] = own[:start]
            self._blocks[0] = own = grown
        own[start:stop] = rows
        self._own_keys.extend(keys)
        self._index.update((key, (0, start + i)) for i, key in enumerate(keys))
        kept = len(self._own_shards)
        while kept:
            _, first, last = self._own_shards[kept - 1]
            if last - first > 2 * (stop - start) or stop - first > self.MAX_SHARD_ROWS:
                break
            kept -= 1
            start = first
        try:
            path = write_shard(self.folder, self._own_keys[start:stop], own[start:stop], self.fingerprint)
        except OSError as error:
            self._go_on_in_memory(error)
            return
        self._seen.add(path.name)
        replaced = self._own_shards[kept:]
        self._own_shards[kept:] = [(path, start, stop)]
        for old, _, _ in replaced:
            remove(old)

    def get(self, keys: list[bytes]) -> NDArray[np.float32]:
        """Return the rows of known keys, shape (n, d)."""
        out = np.empty((len(keys), self.dimension), np.float32)
        places = np.array([self._index[key] for key in keys], dtype=np.int64).reshape(-1, 2)
        for block in np.unique(places[:, 0]):
            here = np.flatnonzero(places[:, 0] == block)
            out[here] = self._blocks[block][places[here, 1]]
        return out


class CachedEncoder:
    """An encoder with a cache on disk: a text that was encoded once returns the same bytes, without the model.

    The cache lies in ``<folder>/text-embeddings/<fingerprint>``. Missing texts are encoded and stored in chunks of
    ``CHUNK`` texts, long ones first: what is done before an interruption is kept. Several threads and processes may
    share one folder; two that miss the same text at once both encode it. A disk that is full, or can't be written any
    more, ends nothing: the rows stay in memory.

    Args:
        encoder: the encoder that does the work.
        folder: the cache folder; None is ``default_cache_folder()``.

    Raises:
        TypeError: ``encoder`` lacks a part of the TextEncoder protocol.
        ValueError: its fingerprint can't name a folder.
    """

    CHUNK = 1024

    def __init__(self, encoder: TextEncoder, folder: str | os.PathLike[str] | None = None) -> None:
        if not isinstance(encoder, TextEncoder):
            raise TypeError(
                f"Expected an encoder with name, dimension, fingerprint and encode, got {type(encoder).__name__}"
            )
        check_fingerprint(encoder.fingerprint)
        self.encoder = encoder
        self.name = encoder.name
        self.dimension = encoder.dimension
        self.fingerprint = encoder.fingerprint
        root = default_cache_folder() if folder is None else Path(folder).expanduser()
        self.folder = root / "text-embeddings"
        self._store: EmbeddingStore | None = None
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @property
    def store(self) -> EmbeddingStore:
        """The rows on disk, opened on first use.

        Raises:
            OSError: the cache folder can't be made or read; the message says what to set.
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

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings of ``texts``, shape (n, d), float32, unit norm.

        Args:
            texts: n strings.
            progress: show a progress bar over the texts that the cache lacks.

        Raises:
            TypeError: something else than a list of strings.
            ValueError: the model returned NaN, infinity or a zero vector (nothing of that chunk is stored).
        """
        wanted = check_texts(texts)
        if not wanted:
            return np.empty((0, self.dimension), np.float32)
        with self._lock:
            keys = [text_key(text) for text in wanted]
            missing = self._missing(wanted, keys)
            if missing:
                self.store.refresh()
                missing = self._missing(wanted, keys)
            if missing:
                self._encode_missing(missing, progress)
            return self.store.get(keys)

    def _missing(self, texts: list[str], keys: list[bytes]) -> dict[bytes, str]:
        store = self.store
        return {key: text for key, text in zip(keys, texts, strict=True) if key not in store}

    def _encode_missing(self, missing: dict[bytes, str], progress: bool) -> None:
        from tqdm.auto import tqdm

        # similar lengths together make the batches of the encoder cheap
        todo = sorted(missing.items(), key=lambda item: len(item[1]), reverse=True)
        with tqdm(total=len(todo), desc=f"encode ({self.name})", unit="text", disable=not progress) as bar:
            for start in range(0, len(todo), self.CHUNK):
                chunk = todo[start : start + self.CHUNK]
                part = [text for _, text in chunk]
                rows = np.asarray(self.encoder.encode(part))
                # checks what a user's own encoder returns; rows of unit norm keep their bytes
                checked = normalise(rows, part, self.dimension, self.name)
                self.store.add([key for key, _ in chunk], _as_is_if_unit(rows, checked))
                bar.update(len(chunk))


def _as_is_if_unit(rows: NDArray[Any], checked: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``rows`` where they were unit-norm float32 already (a second division may change the last bit)."""
    same = rows.dtype == np.float32 and np.allclose(rows, checked, rtol=0.0, atol=1e-6)
    return rows if same else checked
