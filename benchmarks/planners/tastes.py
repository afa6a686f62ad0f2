"""Tastes of many shapes: what the simulated users of first answers like, as directions of the encoder.

The users of a vocabulary have names from its sentences (`sentences.FRESH`, or `sentences.DEVELOPMENT` where constants
are chosen); t(x) is the unit-norm embedding of sentence x, and the partner y of a sentence x is the third one further
on. All tastes have unit norm, except for the two of "two-styles", which have unit norm each:

* sentence, user "harbour": t(x);
* mean, "harbour+tender": t(x) + t(y);
* not, "harbour-tender": x but not y, t(x) - t(y);
* style, "harbour-in-style": lighting and style weigh more than the subject. With token v_h at step h of a prompt and
  the weights w_h of ``STYLE_WEIGHTS``, u(prompt) = sum_h w_h t(x) . phi(v_h). The taste is the theta that minimises

      sum over prompts of (theta . (phi(prompt) - mean phi) - (u(prompt) - mean u))^2

  over 1,500 random complete prompts of the training vocabulary (the one of smallest norm where it isn't unique);
* composed, "composed-0": the embedding of a random sentence made of two to four tokens of the vocabulary; a prior that
  knows the mean and the covariance of such sentences is the ideal one for these users;
* two-styles, "harbour-or-tender": likes x and likes y, but not their mixture;
* low, "low-0": a random direction among the half of the eigenvectors of the training tokens' covariance that have the
  smallest eigenvalues: what the vocabulary hardly varies in;
* gaussian, "gaussian-0": a direction drawn uniformly from the sphere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.kit.sentences import DEVELOPMENT, FRESH
from benchmarks.kit.worlds import unit_rows
from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.vocabulary import Vocabulary

TASTES: dict[str, str] = {
    "sentence": "a sentence",
    "mean": "the mean of two sentences",
    "not": "one sentence but not another",
    "style": "style and lighting before the subject",
    "two-styles": "either of two sentences",
    "composed": "a sentence of the vocabulary's own words",
    "low": "what the vocabulary hardly varies in",
    "gaussian": "a random direction",
}
"""Shape of the tastes -> what it is."""

STYLE_WEIGHTS: dict[str, dict[str, float]] = {
    "images": {"bases": 0.2, "ambient": 0.5, "style": 1.0, "composition": 0.5, "lighting": 1.0, "detail": 0.5},
    "interiors": {"room": 0.2, "furnishing": 0.2, "palette": 0.5, "style": 1.0, "light": 1.0, "detail": 0.5},
}
"""Built-in vocabulary -> step -> its weight w_h in the tastes "style"."""

_PARTNER = 3  # 2 * 3 is a multiple of neither 10 nor 12: no pair comes twice
_JOINED = {"mean": "+", "not": "-", "two-styles": "-or-"}
_DRAWN = ("low", "gaussian", "composed")
_JOINTS = ("with", "and", "in", "full of")
_STYLE_PROMPTS = 1500
_FIRST_DRAWN = {False: 0, True: 1000}  # number of the first drawn taste: reported ones, and those for development
_DISLIKE = 0.5  # how much of the weaker of two styles is held against an option


def utilities(directions: Floats, rows: NDArray[np.floating[Any]]) -> Floats:
    """True utilities (...) of rows (..., d) under a taste, (1, d), or under two styles, (2, d).

    Of two styles a and b, max(a . x, b . x) - dislike * min(a . x, b . x): no linear taste knows both.
    """
    values = [np.asarray(rows.astype(np.float64) @ one) for one in directions]
    return values[0] if len(values) == 1 else np.maximum(*values) - _DISLIKE * np.minimum(*values)


def taste_sentences(words: str, *, development: bool = False) -> dict[str, str]:
    """User -> sentence of a built-in vocabulary, on which constants are chosen, or which are reported on."""
    return (DEVELOPMENT if development else FRESH)[words]


def taste_users(taste: str, words: str, *, development: bool = False) -> tuple[str, ...]:
    """Names of the users of a vocabulary with tastes of a shape, as many as there are sentences."""
    names = tuple(taste_sentences(words, development=development))
    if taste in _DRAWN:
        return tuple(f"{taste}-{_FIRST_DRAWN[development] + number}" for number in range(len(names)))
    if taste in _JOINED:
        return tuple(f"{name}{_JOINED[taste]}{names[_partner(at, len(names))]}" for at, name in enumerate(names))
    return tuple(f"{name}-in-style" for name in names) if taste == "style" else names


def _partner(number: int, count: int) -> int:
    return (number + _PARTNER) % count


def make_directions(
    taste: str, words: str, vocabulary: Vocabulary, encoder: TextEncoder, *, development: bool = False
) -> dict[str, Floats]:
    """The tastes of all users of a shape: user -> (1, d), or (2, d) for "two-styles"; the same at every call.

    The vocabulary is the training part; the encoder embeds sentences, and for "low" and "style" tokens and prompts.
    """
    users = taste_users(taste, words, development=development)
    if taste == "composed":
        texts = [composed_sentences(vocabulary, 1, user)[0] for user in users]
        return {user: row[None] for user, row in zip(users, encoder.encode(texts).astype(np.float64), strict=True)}
    if taste in _DRAWN:
        basis = _low_basis(vocabulary, encoder) if taste == "low" else np.eye(encoder.dimension)
        draws = {user: generator(0, "tastes", taste, user).normal(size=basis.shape[1]) for user in users}
        return {user: unit_rows((basis @ draw)[None]) for user, draw in draws.items()}
    sentences = taste_sentences(words, development=development)
    first = unit_rows(encoder.encode(list(sentences.values())).astype(np.float64))
    second = first[[_partner(number, len(first)) for number in range(len(first))]]
    if taste == "two-styles":
        return {user: np.stack(pair) for user, pair in zip(users, zip(first, second, strict=True), strict=True)}
    if taste == "style":
        rows = _in_style(first, vocabulary, encoder, STYLE_WEIGHTS[words])
    else:
        rows = {"sentence": first, "mean": first + second, "not": first - second}[taste]
    return {user: row[None] for user, row in zip(users, unit_rows(rows), strict=True)}


def composed_sentences(vocabulary: Vocabulary, count: int, key: str) -> list[str]:
    """Random sentences of two to four tokens of different steps, as "ferns under old trees with fog"."""
    rng = generator(0, "composed sentences", key)
    sentences = []
    for _ in range(count):
        steps = np.sort(rng.choice(vocabulary.horizon, size=int(rng.integers(2, 5)), replace=False))
        parts = [vocabulary.tokens[step][int(rng.integers(vocabulary.sizes[step]))] for step in steps.tolist()]
        joints = [_JOINTS[int(rng.integers(len(_JOINTS)))] for _ in parts[1:]]
        sentences.append(parts[0] + "".join(f" {joint} {part}" for joint, part in zip(joints, parts[1:], strict=True)))
    return sentences


def _low_basis(vocabulary: Vocabulary, encoder: TextEncoder) -> Floats:
    """Eigenvectors of the tokens' covariance with the smallest half of the eigenvalues, (d, d // 2)."""
    rows = encoder.encode(vocabulary.all_tokens).astype(np.float64)
    _, vectors = np.linalg.eigh(np.cov(rows, rowvar=False))  # ascending
    return np.asarray(vectors[:, : len(vectors) // 2])


def _in_style(tastes: Floats, vocabulary: Vocabulary, encoder: TextEncoder, weights: dict[str, float]) -> Floats:
    """The linear tastes nearest to weighted sums over the tokens of a prompt, (n, d)."""
    rng = generator(0, "tastes", "style")
    tokens = np.stack([rng.integers(size, size=_STYLE_PROMPTS) for size in vocabulary.sizes], axis=1)
    prompts = encoder.encode([vocabulary.prompt(row) for row in tokens]).astype(np.float64)
    rows = np.split(encoder.encode(vocabulary.all_tokens).astype(np.float64), np.cumsum(vocabulary.sizes)[:-1])
    steps = zip(vocabulary.names, rows, tokens.T, strict=True)
    wanted = np.sum([weights[name] * (table @ tastes.T)[chosen] for name, table, chosen in steps], axis=0)
    solved = np.linalg.lstsq(prompts - prompts.mean(axis=0), wanted - wanted.mean(axis=0), rcond=None)
    return np.asarray(solved[0].T)
