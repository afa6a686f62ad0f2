"""An encoder whose embeddings go through a map, to the features that a taste is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.features.base import TextEncoder, as_encoder, hash_settings

__all__ = ["MappedEncoder"]


class MappedEncoder:
    """An encoder and a map of its embeddings; the rows need not have norm 1.

    Args:
        encoder: The encoder.
        feature_map: From embeddings (n, D) to features (n, d).
        space: What names the map.
        dimension: d.
    """

    def __init__(self, encoder: TextEncoder, feature_map: Callable[[Any], Any], space: str, dimension: int) -> None:
        self.encoder, self.feature_map = as_encoder(encoder), feature_map
        self.name, self.dimension = self.encoder.name, dimension
        self.blocks = ()  # those of the embeddings are gone
        self.fingerprint = hash_settings([self.encoder.fingerprint, space])

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As ``TextEncoder.encode``, but for the norm."""
        return np.asarray(self.feature_map(self.encoder.encode(texts, progress=progress)), dtype=np.float32)
