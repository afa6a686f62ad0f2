"""An encoder with a cache in memory, for one unit of work."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.features.base import TextEncoder, as_encoder
from edpbrl_gym.features.loading import load_encoder
from edpbrl_gym.features.tokens import KnownTokens, TokenSteps, known_tokens

__all__ = ["MemoEncoder", "raw_encoder"]


class MemoEncoder:
    """Encodes each text once and keeps the rows in memory.

    The embedding of a text depends in its last bits (about 1e-7) on the other texts of its batch. With its own memo,
    instead of the cache on disk, a unit of work has the same results to the last bit, resumed or not.

    The rows (n, d) are embeddings of the texts that are known already; tokens of the vocabulary are taken from
    ``embed_tokens`` where they have been embedded in this process.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        *,
        texts: Sequence[str] = (),
        rows: NDArray[np.float32] | None = None,
        vocabulary: TokenSteps | None = None,
    ) -> None:
        self.encoder = encoder = as_encoder(encoder)
        self.name = encoder.name
        self.dimension = encoder.dimension
        self.fingerprint = encoder.fingerprint
        self._rows: dict[str, NDArray[np.float32]] = {}
        self._vocabulary = vocabulary
        self._tokens: KnownTokens | None = None
        if rows is not None:
            self._rows.update(zip(texts, np.asarray(rows, dtype=np.float32), strict=True))

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings, shape (n, d), float32, unit norm."""
        all_texts = list(texts)
        if self._vocabulary is not None and self._tokens is None:
            self._tokens = known_tokens(self._vocabulary, self)
        missing = [text for text in dict.fromkeys(all_texts) if self._known(text) is None]
        if missing:
            self._rows.update(zip(missing, self.encoder.encode(missing, progress=progress), strict=True))
        if not all_texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.stack([row for text in all_texts if (row := self._known(text)) is not None])

    def _known(self, text: str) -> NDArray[np.float32] | None:
        row = self._rows.get(text)
        if row is None and self._tokens is not None and text in self._tokens.index:
            row = self._tokens.rows[self._tokens.index[text]]
        return row


@functools.lru_cache(maxsize=2)
def raw_encoder(spec: str, fingerprint: str) -> TextEncoder:
    """Return an encoder without its disk cache, loaded once per process.

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
