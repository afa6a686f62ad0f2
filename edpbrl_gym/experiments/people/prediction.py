"""Choice probabilities averaged over what is not known about a taste."""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import Floats

__all__ = ["averaged_over_draws"]


def averaged_over_draws(draws: Floats, options: Floats) -> Floats:
    """Mean over draws of theta, (M, d), of softmax(X theta), for each question, (n, K)."""
    return np.asarray(_softmax((options @ draws.T).transpose(0, 2, 1)).mean(axis=1))


def _softmax(utilities: Floats) -> Floats:
    powers = np.exp(utilities - utilities.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
