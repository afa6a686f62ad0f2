"""What is measured of estimates from the first answers, cheaply enough for every number of answers.

Preference error and the regret of the ten best come first: both are about prompts. A cosine also rewards the direction
that all embeddings share, which tells no two prompts apart; here it is taken without that direction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.metrics import cosine_error

__all__ = ["CALIBRATED", "FIRST_METRICS", "POSTERIOR_METRICS", "centred_cosine_error", "regret_of_the_best"]

FIRST_METRICS: dict[str, str] = {
    "preference_error": "preference error",
    "regret_ten": "regret of the ten best",
    "cosine_centred": "cosine error about the vocabulary's mean",
}
"""Column -> what it is; lower is better in all of them."""

CALIBRATED = 36
"""Most answers after which the posterior is judged, too; it takes longer than the estimate."""

POSTERIOR_METRICS: dict[str, str] = {
    "covered": "true leads inside their 90% intervals",
    "accuracy_gap": "predicted minus true accuracy",
}
"""Column -> what it is, of the posterior; see ``Scorer.calibration``."""

_BEST = 10


def regret_of_the_best(estimated: ArrayLike, true: ArrayLike, *, count: int = _BEST) -> float:
    """Share of the attainable gain that is lost by choosing the best prompts by an estimate.

        (mean of u over the truly best - mean of u over those with the largest estimate)
        / (mean of u over the truly best - mean of u over all)

    0 is perfect, 1 as good as random prompts. Of equal estimates the first ones are taken.

    Args:
        estimated: Estimated utilities of prompts, (n,).
        true: Their true utilities u, (n,), not all equal.
        count: Number of prompts chosen, 10; at most n.
    """
    values = np.asarray(true, dtype=np.float64)
    best = np.sort(values)[::-1][:count].mean()
    chosen = np.argsort(-np.asarray(estimated, dtype=np.float64), kind="stable")[:count]
    return float((best - values[chosen].mean()) / (best - values.mean()))


def centred_cosine_error(estimate: ArrayLike, truth: ArrayLike, tokens: ArrayLike) -> float:
    """The cosine error of an estimate after the direction of the mean embedding is projected out of both vectors.

    Args:
        estimate: theta_hat, (d,).
        truth: theta*, (d,).
        tokens: Embeddings of the vocabulary's tokens, (N, d), whose mean is not 0.
    """
    mean = np.asarray(tokens, dtype=np.float64).mean(axis=0)
    direction = mean / np.linalg.norm(mean)

    def centred(vector: ArrayLike) -> Floats:
        row = np.asarray(vector, dtype=np.float64)
        return np.asarray(row - (row @ direction) * direction)

    return cosine_error(centred(estimate), centred(truth))
