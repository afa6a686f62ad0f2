"""Where the embeddings of many texts are, in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEY_BYTES", "KeyIndex"]

KEY_BYTES = 16  # of a text's hash


class KeyIndex:
    """Where the row of a key is: ``block << 32 | row``; block 0 holds rows that will move to another one.

    What a server has met only grows, so most keys are in sorted arrays, at 24 bytes each; a dictionary takes eight
    times as much, and has those that came last.
    """

    MOST_RECENT = 32768
    FEW = 1024  # the dictionary takes fewer keys than these of a block

    def __init__(self) -> None:
        self._recent: dict[bytes, int] = {}
        self._keys = np.empty(0, f"S{KEY_BYTES}")  # sorted, each once
        self._places = np.empty(0, np.int64)
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
            self._recent.update(zip(keys, range(start, start + len(keys)), strict=True))

    def forget(self, keys: Iterable[bytes]) -> None:
        """Forget what the dictionary has of keys."""
        for key in keys:
            self._recent.pop(key, None)

    def find(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """The places of keys, (n,); -1: there is none."""
        self._sort()
        places = self._sorted(_joined(keys))
        for number, key in enumerate(keys):
            places[number] = self._recent.get(key, places[number])
        return places

    def blocks(self) -> set[int]:
        """Blocks of which a row is found."""
        self._sort()
        return {*np.unique(self._places >> 32).tolist(), *(place >> 32 for place in self._recent.values())}

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


def _joined(keys: Iterable[bytes]) -> NDArray[Any]:
    return np.frombuffer(b"".join(keys), f"S{KEY_BYTES}")
