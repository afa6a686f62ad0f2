"""Several encoders of the same texts side by side: blocks of features, such as what a prompt says and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.features.base import TextEncoder, as_encoder, hash_settings

__all__ = ["JoinedEncoder", "blocks_of", "parts_of"]


class JoinedEncoder:
    """The rows of several encoders after one another, (n, d_1 + d_2 + ...), each divided by the root of their number.

    Every part has rows of norm 1, so every block counts the same and the whole row has norm 1. The prior "blocks"
    learns how much each block says about a taste.

    Args:
        parts: The encoders, two or more; of one that is joined itself its parts.

    Attributes:
        blocks: Numbers of features of the parts.

    Raises:
        ValueError: There are fewer than two parts.
    """

    def __init__(self, parts: Sequence[TextEncoder]) -> None:
        self.parts = tuple(one for part in parts for one in parts_of(as_encoder(part)))
        if len(self.parts) < 2:
            raise ValueError(f"Expected at least two encoders to join, got {len(self.parts)}")
        self.name = "+".join(part.name for part in self.parts)
        self.blocks = tuple(part.dimension for part in self.parts)
        self.dimension = sum(self.blocks)
        self.fingerprint = hash_settings({"kind": "joined", "parts": [part.fingerprint for part in self.parts]})

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As ``TextEncoder.encode``."""
        rows = [part.encode(texts, progress=progress) for part in self.parts]
        return np.concatenate(rows, axis=1) / np.float32(np.sqrt(len(rows)))


def parts_of(encoder: TextEncoder) -> tuple[TextEncoder, ...]:
    """The encoders that are joined in one, or that one."""
    return encoder.parts if isinstance(encoder, JoinedEncoder) else (encoder,)


def blocks_of(encoder: Any) -> tuple[int, ...]:
    """Numbers of features of the blocks of an encoder, also of one behind a memo or a cache; () if it has none."""
    while encoder is not None:
        if hasattr(encoder, "blocks"):
            return tuple(encoder.blocks)
        encoder = getattr(encoder, "encoder", None)
    return ()
