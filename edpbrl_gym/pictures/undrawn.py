"""A taste that was learnt from pictures, for prompts that nobody has drawn yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array
from edpbrl_gym.features import TextEncoder

__all__ = ["taste_in_texts"]

_PENALTIES = np.logspace(-4, 4, 33)  # in units of the largest squared singular value over the number of texts


def taste_in_texts(theta: ArrayLike, encoder: TextEncoder, drawn: Sequence[str], text_encoder: TextEncoder) -> Floats:
    """The taste in texts that comes closest to a taste in pictures, (d_text,): search prompts of a vocabulary by it.

    The utilities theta . phi(text) of prompts that are drawn, whether a person saw them or not, are regressed on the
    features of the texts: a ridge, whose penalty minimises generalised cross-validation (Golub, Heath & Wahba, 1979).
    A pool of some hundred pictures says more about what a phrase looks like than the answers themselves could.

    Args:
        theta: The taste, (d,).
        encoder: Its encoder, of pictures or of texts and pictures (``Taste.encoder``, ``Session.memo``).
        drawn: Prompts with pictures, at least three.
        text_encoder: Encoder of texts alone.

    Raises:
        ValueError: Too few prompts, or theta has another dimension than the encoder.
    """
    if len(drawn) < 3:
        raise ValueError(f"Expected at least three prompts that are drawn, got {len(drawn)}")
    taste = check_array(theta, "theta", shape=(encoder.dimension,), hint="as the encoder has")
    values = encoder.encode(drawn).astype(np.float64) @ taste
    rows = text_encoder.encode(drawn).astype(np.float64)
    left, sizes, right = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    target = left.T @ (values - values.mean())
    rest = float(np.square(values - values.mean()).sum() - target @ target)  # what no features of these texts explain
    squares = np.square(sizes)
    losses = []
    for penalty in _PENALTIES * squares[0] / len(rows):
        kept = squares / (squares + penalty)
        residual = rest + float(np.square((1.0 - kept) * target).sum())
        losses.append(residual / max(len(rows) - 1.0 - kept.sum(), 1e-9) ** 2)
    penalty = _PENALTIES[int(np.argmin(losses))] * squares[0] / len(rows)
    return np.asarray(right.T @ (sizes / (squares + penalty) * target))
