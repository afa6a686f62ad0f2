"""Text encoders on workers: each makes the encoder once and writes whole shards of the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._devices import own_device
from edpbrl_gym.features.base import TextEncoder, normalise
from edpbrl_gym.features.shards import DamagedShardError, read_shard, shard_of, write_shard

__all__ = ["EncoderMaker", "checked_rows", "encode_on_worker"]


@dataclass(frozen=True)
class EncoderMaker:
    """Makes an encoder by its name.

    Attributes:
        spec: One of ``ENCODER_FORMS``.
        batch_size: Maximum number of texts per call of the model.
        device: Torch device; None: a GPU of this worker alone where there is one, else "cpu".
    """

    spec: str
    batch_size: int
    device: str | None

    def __call__(self) -> TextEncoder:
        """Load the encoder."""
        from edpbrl_gym.features.loading import load_encoder

        return load_encoder(self.spec, cache=False, batch_size=self.batch_size, device=own_device(self.device))


_encoders: dict[Any, TextEncoder] = {}  # of this process: the last one


def encode_on_worker(maker: Callable[[], TextEncoder], fingerprint: str, folder: Path, chunk: dict[bytes, str]) -> int:
    """Encode a chunk of texts and write its shard, unless a worker that died with it has finished it.

    Args:
        maker: Makes the encoder; hashable.
        fingerprint: Expected of it.
        folder: The shards of the encoder.
        chunk: The texts by their keys.

    Returns:
        The number of texts.

    Raises:
        ValueError: The encoder here is another one, or has returned NaN, infinity or a zero vector.
    """
    encoder = _encoders.get(maker)
    if encoder is None:
        _encoders.clear()
        encoder = _encoders[maker] = maker()
    if encoder.fingerprint != fingerprint:
        raise ValueError(
            f"Expected the same weights of {encoder.name} on all workers (sha256 {fingerprint[:16]}), got others "
            f"({encoder.fingerprint[:16]})"
        )
    target = shard_of(folder, chunk)
    try:
        read_shard(target, fingerprint, encoder.dimension)
    except (FileNotFoundError, DamagedShardError):
        write_shard(folder, chunk, checked_rows(encoder, list(chunk.values())), fingerprint, target)
    return len(chunk)


def checked_rows(encoder: TextEncoder, texts: list[str]) -> NDArray[np.float32]:
    """Return the embeddings of texts, checked, as a user's own encoder may return anything."""
    rows = np.asarray(encoder.encode(texts))
    checked = normalise(rows, texts, encoder.dimension, encoder.name)
    # rows of unit norm keep their bytes: a second division could change the last bit
    same = rows.dtype == np.float32 and np.allclose(rows, checked, rtol=0.0, atol=1e-6)
    return rows if same else checked
