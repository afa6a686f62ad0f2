"""An encoder with a cache in memory, for one unit of work."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.features.base import TextEncoder
from edpbrl_gym.features.loading import load_encoder

__all__ = ["MemoEncoder", "raw_encoder"]


class MemoEncoder:
    """Encodes each text once and keeps the rows in memory.

    The embedding of a text depends in its last bits (about 1e-7) on the other texts of its batch. With its own memo,
    instead of the cache on disk, a unit of work always has the same batches, so its results are the same to the last
    bit, resumed or not; and random prompts, which hardly ever recur, don't fill the disk.

    Args:
        encoder: The encoder.
        texts: Texts whose embeddings are known already.
        rows: Their embeddings, shape (n, d).
    """

    def __init__(
        self, encoder: TextEncoder, *, texts: Sequence[str] = (), rows: NDArray[np.float32] | None = None
    ) -> None:
        self.encoder = encoder
        self.name = encoder.name
        self.dimension = encoder.dimension
        self.fingerprint = encoder.fingerprint
        self._rows: dict[str, NDArray[np.float32]] = {}
        if rows is not None:
            self._rows.update(zip(texts, np.asarray(rows, dtype=np.float32), strict=True))

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings, shape (n, d), float32, unit norm."""
        all_texts = list(texts)
        missing = [text for text in dict.fromkeys(all_texts) if text not in self._rows]
        if missing:
            self._rows.update(zip(missing, self.encoder.encode(missing, progress=progress), strict=True))
        if not all_texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.stack([self._rows[text] for text in all_texts])


@functools.lru_cache(maxsize=2)
def raw_encoder(spec: str, fingerprint: str) -> TextEncoder:
    """Return an encoder without its disk cache, loaded once per process.

    Args:
        spec: Spec of the encoder, as for ``load_encoder``.
        fingerprint: Expected fingerprint, so that embeddings of changed files are not mixed.

    Raises:
        ValueError: If the encoder has another fingerprint now.
    """
    encoder = load_encoder(spec, cache=False)
    if encoder.fingerprint != fingerprint:
        raise ValueError(
            f"Expected the encoder {spec} of the beginning of this run (sha256 {fingerprint[:16]}), its files have "
            f"changed (now {encoder.fingerprint[:16]}); start a new run"
        )
    return encoder
