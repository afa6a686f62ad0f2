"""Typical questions, whose options are not all embedded.

The forecast of a session needs the information that random questions are expected to give, which depends on the
differences between their options alone. With a text encoder, a text of the tokens t_0 .. t_h (a partial or a complete
prompt) is nearly a weighted sum of their embeddings,

    phi(t_0 .. t_h)  ~  constant + sum_j w_hj phi(t_j),

and the differences of four random prompts, d equations for each text, determine the weights. With MiniLM forecasts from
such questions differ by at most 0.01 from those with all 480 texts embedded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.session.questions import QuestionMaker

__all__ = ["typical_questions"]

_FITTED = 4  # prompts of the fit
_EXPLAINED = 0.25  # share of the variance that the sums must explain; below it all texts are embedded


def typical_questions(
    maker: QuestionMaker,
    encoder: TextEncoder,
    token_features: NDArray[np.float32],
    *,
    num_options: int,
    episodes: int,
    rng: np.random.Generator,
) -> Floats:
    """Features of all questions of random episodes, up to a constant vector of each question.

    If the weighted sums explain less than a quarter of the variance of the four prompts' texts of any length (adjusted
    for the number of weights; MiniLM: 68% or more), all texts of the questions are embedded instead.

    Args:
        maker: Maker of the questions.
        encoder: Encoder of the texts.
        token_features: Embeddings of all tokens, (N, d).
        num_options: K.
        episodes: Number of episodes.
        rng: Source of randomness.

    Returns:
        Features, (n, K, d): of each step of the first episode, then of the second, and so on.
    """
    words = maker.vocabulary
    tokens = np.stack([rng.integers(size, size=(episodes, num_options)) for size in words.sizes], axis=2)
    steps = range(maker.num_new - 1, words.horizon)
    table = [rows.astype(np.float64) for rows in np.split(token_features, np.cumsum(words.sizes)[:-1])]
    if maker.feedback == "state":
        questions = [table[step][tokens[:, :, step]] for step in steps]
        return np.stack(questions, axis=1).reshape(-1, num_options, table[0].shape[1])

    sample = np.stack([rng.integers(size, size=_FITTED) for size in words.sizes], axis=1)
    texts = [maker.texts(sample[:, : step + 1]) for step in steps]
    embedded = encoder.encode([text for row in texts for text in row]).astype(np.float64)
    weights, explained = _fitted(
        [_parts(table, sample[:, : step + 1]) for step in steps], np.split(embedded, len(steps))
    )
    if explained < _EXPLAINED:
        all_texts = [text for episode in tokens for step in steps for text in maker.texts(episode[:, : step + 1])]
        return encoder.encode(all_texts).astype(np.float64).reshape(episodes * len(steps), num_options, -1)
    questions = [
        np.einsum("jekd,j->ekd", _parts(table, tokens[:, :, : step + 1]), weight)
        for step, weight in zip(steps, weights, strict=True)
    ]
    return np.stack(questions, axis=1).reshape(episodes * len(steps), num_options, -1)


def _parts(table: list[Floats], tokens: NDArray[np.int64]) -> Floats:
    """Embeddings of the tokens (..., h + 1) of partial prompts, (h + 1, ..., d)."""
    return np.stack([table[step][tokens[..., step]] for step in range(tokens.shape[-1])])


def _fitted(parts: list[Floats], embedded: list[Floats]) -> tuple[list[Floats], float]:
    """Weights of each length's parts (h + 1, n, d), fitted about the means; the least adjusted explained share."""
    weights, shares = [], [1.0]
    for features, target in zip(parts, embedded, strict=True):
        columns = (features - features.mean(axis=1, keepdims=True)).reshape(len(features), -1).T
        values = (target - target.mean(axis=0)).ravel()
        weight = np.linalg.lstsq(columns, values, rcond=None)[0]
        free = values.size - target.shape[1]  # the means are taken off
        left = float(np.sum((values - columns @ weight) ** 2)) * free / max(free - len(weight), 1)
        total = float(values @ values)
        shares.append(1.0 - left / total if total > 0 else 1.0)
        weights.append(weight)
    return weights, min(shares)
