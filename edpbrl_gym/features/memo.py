"""An encoder that remembers in memory what it has encoded, for one unit of work."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.features.base import TextEncoder
from edpbrl_gym.features.loading import load_encoder

__all__ = ["MemoEncoder", "raw_encoder"]


class MemoEncoder:
    """Encodes each text once; everything is forgotten with the object.

    Why not the cache on disk: the embedding of a text differs in the last bits (about 1e-7) with the texts that share
    its batch. A unit of work with a memo of its own has the same batches whenever and wherever it runs, so its results
    are the same to the last bit, resumed or not; and random prompts, which hardly ever come again, don't fill the disk.

    Args:
        encoder: Does the work.
        texts: Texts whose rows are known already.
        rows: Their embeddings, shape (n, d).
    """

    def __init__(
        self, encoder: TextEncoder, *, texts: Sequence[str] = (), rows: NDArray[np.float32] | None = None
    ) -> None:
        self.encoder = encoder
        self.name = encoder.name
        self.dimension = encoder.dimension
        self.fingerprint = encoder.fingerprint
        self._known: dict[str, NDArray[np.float32]] = {}
        if rows is not None:
            self._known.update(zip(texts, np.asarray(rows, dtype=np.float32), strict=True))

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings, shape (n, d), float32, unit norm."""
        wanted = list(texts)
        missing = [text for text in dict.fromkeys(wanted) if text not in self._known]
        if missing:
            self._known.update(zip(missing, self.encoder.encode(missing, progress=progress), strict=True))
        if not wanted:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.stack([self._known[text] for text in wanted])


@functools.lru_cache(maxsize=2)
def raw_encoder(spec: str, fingerprint: str) -> TextEncoder:
    """Return the encoder without its disk cache; loaded once in a process.

    Args:
        spec: What to load.
        fingerprint: What it must be; a file that has changed in the meantime must not be mixed in.

    Raises:
        ValueError: If the encoder has another fingerprint now.
    """
    encoder = load_encoder(spec, cache=False)
    if encoder.fingerprint != fingerprint:
        raise ValueError(
            f"Expected the encoder {spec} with which this run began (sha256 {fingerprint[:16]}), its files have "
            f"changed since (now {encoder.fingerprint[:16]}); begin a new run"
        )
    return encoder
