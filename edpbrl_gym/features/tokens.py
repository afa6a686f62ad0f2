"""Embeddings of a vocabulary's tokens: computed once in a process, and checked to tell the tokens apart."""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import suppress
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym.features.base import TextEncoder, as_encoder
from edpbrl_gym.features.notices import MULTILINGUAL_ADVICE, SAME

__all__ = ["TokenSteps", "check_told_apart", "embed_tokens"]

_NAMED = 5  # pairs in a message

_HELD = 2  # vocabularies whose embeddings an encoder holds


class TokenSteps(Protocol):
    """A vocabulary: names and tokens of its steps."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each step."""

    @property
    def tokens(self) -> tuple[tuple[str, ...], ...]:
        """Tokens of each step."""

    @property
    def all_tokens(self) -> list[str]:
        """All tokens, step after step."""

    @property
    def fingerprint(self) -> str:
        """sha256 of names and tokens."""


def embed_tokens(vocabulary: TokenSteps, encoder: Any, *, progress: bool = False) -> NDArray[np.float32]:
    """Return the embeddings of all tokens of a vocabulary, (N, d), float32, unit norm, read-only.

    The same call returns the same array while the encoder lives, of its last two vocabularies: planner, session and
    estimate share one, with a cache on disk or without, also through other instances of the encoder.

    Raises:
        TypeError: The encoder lacks a part of the protocol (``as_encoder``).
        ValueError: Tokens of one step have equal embeddings; the message names them.
    """
    whole = as_encoder(encoder)
    known = known_tokens(vocabulary, whole)
    if known is None:
        rows = np.asarray(whole.encode(vocabulary.all_tokens, progress=progress))
        check_told_apart(vocabulary, rows, whole.name)
        known = _embedded[_key(vocabulary, whole)] = KnownTokens(vocabulary, rows)
    with suppress(TypeError):  # an encoder that can't be referred to weakly holds nothing
        held = _held.setdefault(encoder, deque(maxlen=_HELD))
        if known not in held:
            held.append(known)
    return known.rows


class KnownTokens:
    """Tokens that have been embedded, with their rows (N, d), read-only."""

    def __init__(self, vocabulary: TokenSteps, rows: NDArray[np.float32]) -> None:
        self._vocabulary = vocabulary
        self.rows = rows.view()
        self.rows.flags.writeable = False

    @cached_property
    def index(self) -> dict[str, int]:
        """Row of each token."""
        return {token: row for row, token in enumerate(self._vocabulary.all_tokens)}


_embedded: weakref.WeakValueDictionary[tuple[str, str, str], KnownTokens] = weakref.WeakValueDictionary()
_held: weakref.WeakKeyDictionary[Any, deque[KnownTokens]] = weakref.WeakKeyDictionary()


def known_tokens(vocabulary: TokenSteps, encoder: TextEncoder) -> KnownTokens | None:
    """Return the tokens if ``embed_tokens`` has embedded them and an encoder holds them still."""
    return _embedded.get(_key(vocabulary, encoder))


def _key(vocabulary: TokenSteps, encoder: TextEncoder) -> tuple[str, str, str]:
    return encoder.name, encoder.fingerprint, vocabulary.fingerprint


def check_told_apart(vocabulary: TokenSteps, rows: ArrayLike, name: str = "") -> None:
    """Check that the features of a vocabulary tell the tokens of each step apart.

    Tokens of different steps may be equal: they are never options of one question. The features are (N, d); ``name`` is
    that of the encoder, for the message.

    Raises:
        ValueError: Two tokens of a step have features nearer than rounding (``SAME``).
    """
    features = np.asarray(rows)
    pairs: list[tuple[str, str, str]] = []
    start = 0
    for step, tokens in zip(vocabulary.names, vocabulary.tokens, strict=True):
        part = features[start : start + len(tokens)]
        pairs += [(tokens[one], tokens[other], step) for one, other in equal_rows(part)]
        start += len(tokens)
    if not pairs:
        return
    named = "; ".join(f"{one!r} and {other!r} ({step})" for one, other, step in pairs[:_NAMED])
    more = f"; {len(pairs) - _NAMED:,} more" if len(pairs) > _NAMED else ""
    advice = "leave one of them out, or take another encoder"
    if name.partition(":")[0] == "minilm":
        advice = f"minilm: {MULTILINGUAL_ADVICE}"
    of = f" by {name}" if name else ""
    raise ValueError(
        f"Expected different embeddings{of} of the tokens of a step, got equal ones: {named}{more}. No answer could "
        f"tell such tokens apart; {advice}"
    )


def equal_rows(rows: NDArray[np.floating]) -> list[tuple[int, int]]:
    """Return for each row (n, d) that equals one before it up to rounding the pair (first such row, this row).

    Equal rows have equal projections on any direction, so the neighbours of a row in three of them are compared.
    """
    from scipy.spatial import cKDTree

    count = len(rows)
    if count < 2:
        return []
    tolerance = SAME * float(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64).max()))
    if tolerance == 0.0:
        return [(0, index) for index in range(1, count)]
    directions = np.random.default_rng(0).normal(size=(rows.shape[1], 3))
    directions /= np.linalg.norm(directions, axis=0)
    places = np.asarray(rows @ directions, dtype=np.float64)
    # many equal rows would make the tree slow: one stands for all in a cell of a grid, finer than the tolerance
    cells = (places / (0.1 * tolerance)).round()
    points, first, groups = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    near: dict[int, int] = {}
    for one, other in cKDTree(points).query_pairs(12.0, output_type="ndarray").tolist():
        if _are_equal(rows, int(first[one]), int(first[other]), tolerance):
            low, high = sorted((one, other))
            near[high] = min(near.get(high, low), low)
    leaders: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for index, group in enumerate(np.ravel(groups).tolist()):
        leader = leaders.setdefault(near.get(group, group), index)
        if leader != index and _are_equal(rows, leader, index, tolerance):
            pairs.append((leader, index))
    return pairs


def _are_equal(rows: NDArray[np.floating], one: int, other: int, tolerance: float) -> bool:
    return float(np.linalg.norm(rows[one].astype(np.float64) - rows[other])) <= tolerance
