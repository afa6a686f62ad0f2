"""``CachedEncoder``: embeddings on disk, shared by runs and processes."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._executor import Executor
from edpbrl_gym.features.base import TextEncoder, check_fingerprint, check_texts
from edpbrl_gym.features.on_workers import checked_rows, encode_on_worker
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
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def default_cache_folder() -> Path:
    """Return the cache folder: EDPBRL_CACHE, else edpbrl-gym in XDG_CACHE_HOME, else ~/.cache/edpbrl-gym."""
    folder = os.environ.get("EDPBRL_CACHE")
    if folder:
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    # by the XDG specification a relative path is ignored
    root = Path(base) if base and os.path.isabs(base) else Path(os.path.expanduser("~/.cache"))
    return root / "edpbrl-gym"


class EmbeddingStore:
    """The rows of one encoder on disk: shards in ``<folder>/<fingerprint>``, one index in memory.

    Every process writes its own shards and deletes a shard only after writing its rows to another one, so processes
    need no locks. Small shards are merged when new ones are written (each is at least twice as large as the next), so
    many small batches leave few files. A shard that fails its checks is deleted with a warning, and its texts count as
    missing. If the disk is full, rows stay in memory, with a single warning.
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
        self._shard_names: set[str] = set()
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
        """Read new shards of other processes; return their paths and sizes."""
        shards: list[tuple[Path, int]] = []
        while True:
            vanished = False
            try:
                self.folder.mkdir(parents=True, exist_ok=True)  # someone may have emptied the cache
            except OSError as error:
                if error.errno not in _DISK_FULL:
                    raise
                self._continue_in_memory(error)
                return []
            names = {entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".safetensors")}
            for name in sorted(names - self._shard_names):
                try:
                    shards.append((self.folder / name, self._read(self.folder / name)))
                except FileNotFoundError:
                    vanished = True  # merged into a file that is newer than our listing
                self._shard_names.add(name)
            if not vanished:
                return [(path, size) for path, size in shards if size]

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
        """Merge the small shards of earlier processes into one if there are many.

        This is safe while other processes run: they keep their own rows in memory, and list the folder again if a file
        has vanished.
        """
        small = [(path, size) for path, size in shards if size < self.MAX_SHARD_ROWS // 4]
        if len(small) <= self.MAX_SMALL_SHARDS:
            return
        group: list[Path] = []
        rows = 0
        for path, size in [*small, (None, self.MAX_SHARD_ROWS)]:  # only so many rows are in memory at a time
            if rows + size > self.MAX_SHARD_ROWS:
                if len(group) > 1 and not self._merge(group):
                    return
                group, rows = [], 0
            if path is not None:
                group.append(path)
                rows += size

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
                shard = write_shard(self.folder, list(merged), np.stack(list(merged.values())), self.fingerprint)
                self._shard_names.add(shard.name)
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
        self._index.update((key, (0, start + i)) for i, key in enumerate(keys))
        num_kept = len(self._own_shards)
        while num_kept:
            _, shard_start, shard_stop = self._own_shards[num_kept - 1]
            if shard_stop - shard_start > 2 * (stop - start) or stop - shard_start > self.MAX_SHARD_ROWS:
                break
            num_kept -= 1
            start = shard_start
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
        if len(self._own_keys) >= 2 * self.MAX_SHARD_ROWS:
            self._let_go()

    def _let_go(self) -> None:
        """Read this process's rows from its shards from now on, so that they don't fill the memory."""
        if sum(stop - start for _, start, stop in self._own_shards) < len(self._own_keys):
            return  # the disk did not take all of them
        try:
            shards = [read_shard(path, self.fingerprint, self.dimension) for path, _, _ in self._own_shards]
        except (FileNotFoundError, DamagedShardError):
            return  # somebody has emptied the cache
        for keys, rows in shards:
            packed, block = keys.tobytes(), len(self._blocks)
            self._blocks.append(rows)
            self._index.update(
                (packed[row * KEY_BYTES : (row + 1) * KEY_BYTES], (block, row)) for row in range(len(rows))
            )
        self._blocks[0] = np.empty((0, self.dimension), np.float32)
        self._own_keys, self._own_shards = [], []

    def get(self, keys: list[bytes]) -> NDArray[np.float32]:
        """Return the rows of stored keys, shape (n, d)."""
        rows = np.empty((len(keys), self.dimension), np.float32)
        places = np.array([self._index[key] for key in keys], dtype=np.int64).reshape(-1, 2)
        for block in np.unique(places[:, 0]):
            indices = np.flatnonzero(places[:, 0] == block)
            rows[indices] = self._blocks[block][places[indices, 1]]
        return rows


class CachedEncoder:
    """An encoder with a cache on disk: a text encoded before returns the same bytes, without the model.

    The cache is in ``<folder>/text-embeddings/<fingerprint>``. Missing texts are encoded and stored in chunks of
    ``CHUNK`` texts, long ones first, so that an interruption loses one chunk at most. Several threads and processes can
    share a folder; a text missing in two of them at once is encoded twice. If the disk is full or can no longer be
    written, the rows stay in memory.

    Args:
        encoder: The encoder to cache.
        folder: The cache folder; None: ``default_cache_folder()``.
        executor: Encodes the chunks on its workers, which see the cache folder (None: this process encodes).
        maker: Makes the encoder on a worker; required with an executor.

    Raises:
        TypeError: ``encoder`` lacks a part of the TextEncoder protocol.
        ValueError: Its fingerprint can't name a folder.
    """

    CHUNK = 1024

    def __init__(
        self,
        encoder: TextEncoder,
        folder: str | os.PathLike[str] | None = None,
        *,
        executor: Executor | None = None,
        maker: Callable[[], TextEncoder] | None = None,
    ) -> None:
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
        self._executor, self._maker = executor, maker
        self._store: EmbeddingStore | None = None
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None, "_lock": None, "_executor": None, "_maker": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @property
    def store(self) -> EmbeddingStore:
        """The rows on disk, opened on first use.

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

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings of ``texts``, shape (n, d), float32, unit norm.

        Args:
            texts: n strings.
            progress: Show a progress bar over the texts that are not cached.

        Raises:
            TypeError: The texts are not a list of strings.
            ValueError: The model returned NaN, infinity or a zero vector (nothing of that chunk is stored).
        """
        checked_texts = check_texts(texts)
        if not checked_texts:
            return np.empty((0, self.dimension), np.float32)
        with self._lock:
            return self.store.get(self.fill(checked_texts, progress=progress))

    def fill(self, texts: Sequence[str], *, progress: bool = False) -> list[bytes]:
        """Encode the texts that are not in the cache; return the keys of all, with which ``store.get`` reads rows.

        Args, errors: as for ``encode``.
        """
        checked_texts = check_texts(texts)
        with self._lock:
            keys = [text_key(text) for text in checked_texts]
            missing = self._missing(checked_texts, keys)
            if missing:
                self.store.refresh()
                missing = self._missing(checked_texts, keys)
            if missing:
                self._encode_missing(missing, progress)
            return keys

    def _missing(self, texts: list[str], keys: list[bytes]) -> dict[bytes, str]:
        store = self.store
        return {key: text for key, text in zip(keys, texts, strict=True) if key not in store}

    def _encode_missing(self, missing: dict[bytes, str], progress: bool) -> None:
        from tqdm.auto import tqdm

        # texts of similar length make cheap batches
        todo = sorted(missing.items(), key=lambda item: len(item[1]), reverse=True)
        chunks = [dict(todo[start : start + self.CHUNK]) for start in range(0, len(todo), self.CHUNK)]
        with tqdm(total=len(todo), desc=f"encode ({self.name})", unit="text", disable=not progress) as bar:
            if self._executor is not None and self._maker is not None:
                folder = self.store.folder.absolute()
                calls = [(self._maker, self.fingerprint, folder, chunk) for chunk in chunks]
                for count in self._executor.map_unordered(encode_on_worker, calls, folder):
                    bar.update(count)
                self.store.refresh()
                lost = self._missing(list(missing.values()), list(missing))
                chunks = [lost] if lost else []  # shards that were damaged or removed meanwhile
            for chunk in chunks:
                self.store.add(list(chunk), checked_rows(self.encoder, list(chunk.values())))
                bar.update(len(chunk))
