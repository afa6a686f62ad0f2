"""Which phrases a prompt has, whatever they mean: effects of tokens beside what a language model sees in them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats32
from edpbrl_gym.features.base import hash_settings, normalise
from edpbrl_gym.features.notices import check_texts

__all__ = ["PhrasesEncoder"]

_VERSION = 1


class PhrasesEncoder:
    """The sum of a direction for each phrase between commas, divided by its norm.

    A phrase's direction is drawn from its hash, whatever the vocabulary, so that the directions of different phrases
    are nearly orthogonal, with cosines of about ``dimension`` ** -1/2 (random projections of indicators of phrases;
    Achlioptas, 2003). Case and spaces around a phrase do not matter. A taste that is linear in these features has an
    effect of each phrase of its own.
    """

    name = "phrases"
    dimension = 384

    def __init__(self) -> None:
        self.fingerprint = hash_settings({"kind": self.name, "dimension": self.dimension, "version": _VERSION})

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As ``TextEncoder.encode``."""
        checked = check_texts(texts)
        rows = np.zeros((len(checked), self.dimension))
        for row, text in zip(rows, checked, strict=True):
            # a text without any phrase is one that has no letters
            for phrase in {part.strip().casefold() for part in text.split(",")} - {""} or {""}:
                row += _direction(phrase, self.dimension)
        return normalise(rows, checked, self.dimension, self.name)


@functools.lru_cache(maxsize=1 << 14)
def _direction(phrase: str, dimension: int) -> Floats32:
    seed = int.from_bytes(hashlib.sha256(phrase.encode()).digest())
    direction = np.random.default_rng(seed).standard_normal(dimension)
    return np.asarray(direction / np.linalg.norm(direction), dtype=np.float32)
