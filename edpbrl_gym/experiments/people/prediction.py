"""Choice probabilities averaged over what is not known about a taste."""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.variational import normal_points

__all__ = ["averaged_over_draws", "averaged_over_posterior"]


def averaged_over_posterior(posterior: Posterior, options: Floats) -> Floats:
    """E[softmax(X theta)] under a Gaussian posterior, for each question, (n, K).

    Only a question's K - 1 utility differences matter; they are Gaussian, and the mean is taken over 128 quasi-Monte
    Carlo points.

    Args:
        posterior: Of theta, (d,).
        options: (n, K, d).
    """
    leads = options[:, 1:] - options[:, :1]
    middle = leads @ posterior.mean
    values = middle[:, None, :] + normal_points(middle.shape[1]) @ posterior.roots(leads).transpose(0, 2, 1)
    return np.asarray(_softmax(np.concatenate([np.zeros((*values.shape[:2], 1)), values], axis=2)).mean(axis=1))


def averaged_over_draws(draws: Floats, options: Floats) -> Floats:
    """Mean over draws of theta, (M, d), of softmax(X theta), for each question, (n, K)."""
    return np.asarray(_softmax((options @ draws.T).transpose(0, 2, 1)).mean(axis=1))


def _softmax(utilities: Floats) -> Floats:
    powers = np.exp(utilities - utilities.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
