"""The protocol of text encoders and their common base: checks, deduplication, batches, unit norm."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._compat import require
from edpbrl_gym._validation import check_count

__all__ = ["BatchedEncoder", "Encoder", "TextEncoder", "check_fingerprint", "check_texts", "normalise", "quiet_loading"]

Embeddings = NDArray[np.float32]


class Encoder(Protocol):
    """Identity of a text or image encoder: name, dimension and fingerprint."""

    @property
    def name(self) -> str:
        """Spec of the encoder, as a user would write it."""

    @property
    def dimension(self) -> int:
        """Number of features d."""

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of the weights and of the settings on which the embeddings depend."""


@runtime_checkable
class TextEncoder(Encoder, Protocol):
    """Anything that turns n texts into an (n, d) array of unit-norm float32 rows."""

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Embeddings:
        """Return the embeddings, shape (n, d), float32, unit norm, row i for ``texts[i]``."""


def check_fingerprint(value: object, name: str = "fingerprint") -> None:
    """Check that a fingerprint can name a folder of the cache.

    Raises:
        ValueError: It is not a string of 8 to 128 letters, digits, - and _.
    """
    if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z_-]{8,128}", value):
        raise ValueError(f"Expected a {name} of 8 to 128 letters and digits such as a sha256, got {value!r}")


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return ``texts`` as a list of strings.

    Raises:
        TypeError: A single string, something that is not a sequence, or an element that is not a string.
    """
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"Expected a list of texts, got the single text {texts!r}; write [{texts!r}]")
    try:
        strings = list(texts)
    except TypeError:
        raise TypeError(f"Expected a list of texts, got {type(texts).__name__}") from None
    for index, text in enumerate(strings):
        if not isinstance(text, str):
            raise TypeError(
                f"Expected strings as texts, got {text!r} ({type(text).__name__}) at index {index}; convert it first"
            )
    return strings


def normalise(raw: ArrayLike, texts: Sequence[str], dimension: int, name: str) -> Embeddings:
    """Return a model's output as unit-norm float32 rows, shape (n, d).

    Raises:
        ValueError: Wrong shape, NaN, infinity, or a row of norm zero; the message names encoder and text.
    """
    rows = np.asarray(raw, dtype=np.float64)
    if rows.shape != (len(texts), dimension):
        raise ValueError(f"Expected embeddings of shape {(len(texts), dimension)} from {name}, got {rows.shape}")
    norms = np.linalg.norm(rows, axis=1)
    bad = np.flatnonzero(~np.isfinite(norms) | (norms <= np.finfo(np.float32).tiny))
    if bad.size:
        kind = "a zero vector" if np.isfinite(norms[bad[0]]) else "NaN or infinity"
        raise ValueError(
            f"Expected finite, non-zero embeddings from {name}, got {kind} for {texts[bad[0]]!r} "
            f"({bad.size} of {len(texts)} texts); check the weights of this encoder"
        )
    return (rows / norms[:, None]).astype(np.float32)


class BatchedEncoder(ABC):
    """Base of the encoders that run a model: deduplication, batches of similar length, unit norm.

    The cost of a batch depends on its longest text. Texts are sorted by their length in the model, and a batch is
    closed early if its padding would exceed ``PADDING_SLACK`` tokens: most batches then need no padding (and no
    attention mask), while a few texts of many lengths still share a batch.

    Args:
        batch_size: Maximum number of texts per call of the model.
    """

    PADDING_SLACK: float = 64

    name: str
    dimension: int
    fingerprint: str

    def __init__(self, *, batch_size: int) -> None:
        self.batch_size = check_count(batch_size, "batch_size")

    def _prepare(self, texts: list[str]) -> Sequence[Any]:
        """Return each text in the form that the other methods take, such as token ids: made once for each text."""
        return texts

    @abstractmethod
    def _lengths(self, prepared: Sequence[Any]) -> Sequence[int]:
        """Return the length of each text in the model; it affects only the batches."""

    @abstractmethod
    def _encode_batch(self, prepared: Sequence[Any]) -> ArrayLike:
        """Return raw embeddings of one batch, shape (n, d)."""

    def _batches(self, prepared: Sequence[Any]) -> list[list[int]]:
        """Return indices in batches of similar length, long texts first (a progress bar is then not too optimistic)."""
        lengths = np.asarray(self._lengths(prepared))
        batches: list[list[int]] = []
        padding = longest = 0
        for index in np.argsort(-lengths, kind="stable").tolist():
            length = int(lengths[index])
            padding += longest - length
            if not batches or len(batches[-1]) == self.batch_size or padding > self.PADDING_SLACK:
                batches.append([])
                longest, padding = length, 0
            batches[-1].append(index)
        return batches

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Embeddings:
        """Return the embeddings of ``texts``.

        Args:
            texts: n strings; the empty string is allowed.
            progress: Show a progress bar over the distinct texts.

        Returns:
            Shape (n, d), float32, unit norm; (0, d) for no texts.

        Raises:
            TypeError: The texts are not a list of strings.
            ValueError: The model returned NaN, infinity or a zero vector.
        """
        from tqdm.auto import tqdm

        checked_texts = check_texts(texts)
        unique = list(dict.fromkeys(checked_texts))
        rows = np.empty((len(unique), self.dimension), dtype=np.float32)
        with tqdm(total=len(unique), desc=f"encode ({self.name})", unit="text", disable=not progress) as bar:
            prepared = self._prepare(unique) if unique else []
            for batch in self._batches(prepared) if unique else []:
                raw = self._encode_batch([prepared[i] for i in batch])
                rows[batch] = normalise(raw, [unique[i] for i in batch], self.dimension, self.name)
                bar.update(len(batch))
        if len(unique) == len(checked_texts):
            return rows
        position = {text: i for i, text in enumerate(unique)}
        return rows[[position[text] for text in checked_texts]]


@contextmanager
def quiet_loading(purpose: str) -> Iterator[None]:
    """Turn off transformers' progress bar for loading weights; ``purpose`` is that of ``require``."""
    logging = require("transformers.utils.logging", purpose)
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
