"""A small world whose texts have linear embeddings: a clustered vocabulary, an encoder, users. No model, no disk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary


def clustered_rows(seed: int, *, tokens: int, d: int, clusters: int, spread: float = 0.35):
    """Unit-norm rows (tokens, d) around random centres, with more variance in the first directions."""
    rng = np.random.default_rng(seed)
    sizes = np.arange(1, d + 1) ** -0.5
    centres = rng.normal(size=(clusters, d)) * sizes
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    rows = centres[np.arange(tokens) % clusters] + spread * rng.normal(size=(tokens, d)) * sizes / np.linalg.norm(sizes)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def make_words(sizes: Sequence[int]) -> Vocabulary:
    """Steps s0, s1, ... with tokens "s0t0", "s0t1", ..."""
    steps = tuple(f"s{step}" for step in range(len(sizes)))
    return Vocabulary(
        steps, tuple(tuple(f"{name}t{i}" for i in range(n)) for name, n in zip(steps, sizes, strict=True))
    )


class ToyEncoder:
    """Embeds a prompt as a function of its tokens' rows: ``bend`` = 0 is linear, more is not.

    The prompt w_1, ..., w_h is r_h with r_1 = row(w_1), r_h = 0.8 r_(h-1) + 0.6 row(w_h) + bend (r_(h-1) * row(w_h)).
    """

    name = "toy"

    def __init__(self, words: Vocabulary, rows, *, bend: float = 0.0) -> None:
        self.rows = dict(zip(words.all_tokens, np.asarray(rows, dtype=np.float64), strict=True))
        self.dimension = len(next(iter(self.rows.values())))
        self.fingerprint = f"toy {bend} " + words.fingerprint
        self.bend = bend
        self.encoded: list[str] = []

    def encode(self, texts, *, progress=False):
        """Rows (n, d), float32, not normalised."""
        self.encoded += texts
        return np.array([self._one(text.split(SEPARATOR)) for text in texts], np.float32).reshape(-1, self.dimension)

    def _one(self, tokens):
        row = self.rows[tokens[0]]
        for token in tokens[1:]:
            row = 0.8 * row + 0.6 * self.rows[token] + self.bend * row * self.rows[token]
        return row


def cosine_error(estimate, truth) -> float:
    """1 - cos; 1 for an estimate of zero."""
    size = float(np.linalg.norm(estimate) * np.linalg.norm(truth))
    return 1.0 if size == 0.0 else 1.0 - float(np.dot(estimate, truth)) / size
