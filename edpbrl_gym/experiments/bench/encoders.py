"""Encoders of a unit of work: how long they take, and what the units of a process share."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats32
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.features import TextEncoder

__all__ = ["SharedEncoder", "TimedEncoder"]

_LARGE = 1000  # texts of a batch that units share


class TimedEncoder:
    """An encoder that adds up the seconds which it takes.

    Here and wherever the benchmark takes times they are CPU seconds: its units run on one thread each, and other
    processes on the machine must not count.
    """

    def __init__(self, encoder: TextEncoder) -> None:
        self.encoder = encoder
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint
        self.seconds = 0.0

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings, shape (n, d)."""
        start = time.process_time()
        try:
            return self.encoder.encode(texts, progress=progress)
        finally:
            self.seconds += time.process_time() - start


class SharedEncoder:
    """A world's encoder with a memory of its own, but large batches are encoded once for all units of a process.

    Thousands of random trajectories are candidates of several rules, and embedding them takes longer than all the rest.
    Only whole batches are shared: a text's embedding depends on its batch in the last bits, and the numbers of a unit
    must not depend on what ran before it.

    Args:
        world: Whose encoder.
        texts: More texts that it knows.
        rows: Their embeddings, (n, d).
    """

    def __init__(self, world: World, texts: Sequence[str] = (), rows: Floats32 | None = None) -> None:
        self._world, self._memory = world, world.encoder(texts, rows)
        memory = self._memory
        self.name, self.dimension, self.fingerprint = memory.name, memory.dimension, memory.fingerprint

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings, shape (n, d)."""
        if len(texts) < _LARGE:
            return self._memory.encode(texts, progress=progress)
        return _large_batch(self._world, tuple(texts)).copy()


@functools.lru_cache(maxsize=2)
def _large_batch(world: World, texts: tuple[str, ...]) -> NDArray[np.float32]:
    return world.encoder().encode(texts)
