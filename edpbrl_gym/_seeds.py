"""Independent random streams of an experiment, each derived from one seed and the stream's names."""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["derive_seed", "generator"]


def derive_seed(seed: int, *keys: int | str) -> int:
    """Return the seed of the stream that ``keys`` name, as an int in 0..2**63 - 1.

    The same seed and keys always give the same stream, whichever process asks and whatever was drawn before; a
    resumed or parallel experiment therefore equals an uninterrupted one.

    Keys are such as ``"queries", run, agent, episodes``; seed and integers are at least 0.
    """
    entropy = [seed, *map(_key_to_int, keys)]
    state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    return int(state[0]) & (2**63 - 1)


def generator(seed: int, *keys: int | str) -> np.random.Generator:
    """Return a generator of the stream that ``keys`` name."""
    return np.random.default_rng(derive_seed(seed, *keys))


def _key_to_int(key: int | str) -> int:
    if isinstance(key, str):  # the built-in hash differs between processes
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    return int(key)
