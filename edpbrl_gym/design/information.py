"""Information matrices of designs and their gradients with respect to the occupancy of feature rows.

Notation: Phi is the (N, d) matrix of features; d_q^h(n) is the probability that policy q shows row n at step h, an
array `rows` of shape (K, H, N); dbar is its mean over q, an array `mean_rows` of shape (H, N); T is `episodes`.
m_h = Phi' dbar^h is the mean feature. All functions return the information of the data only, without a prior.
Phi is float64, or float32 where it is large (a million tokens of 768 numbers are 3 GB, and may lie in a memory-mapped
file). Its rows are then converted a few thousand at a time (`row_chunks`), so that no float64 copy of all is ever made;
results are float64.

| function | I / T = sum over h of | exact for |
|---|---|---|
| `surrogate_information` | Phi' (diag(dbar) - dbar dbar') Phi | balanced tuples; an upper bound for any others |
| `exact_information` | (1/K^2) [(K-1) sum_q S_q - sum_{q != q'} m_q m_q''] | K independent policies, p = 1/K |

with S_q = Phi' diag(d_q) Phi and m_q = Phi' d_q. The paper's Eq. 6 (surrogate) counts the pairs q = q' as if they were
two independent draws, so it exceeds the exact expectation by (1/K^2) sum_q Cov_q; it equals the expectation plus the
covariance of the tuple's mean under every coupling of the K options.
"""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import AnyFloats, Floats, row_chunks

__all__ = [
    "exact_information",
    "gradient",
    "mean_features",
    "row_scores",
    "second_moment",
    "surrogate_information",
]


def mean_features(features: AnyFloats, rows: Floats, centre: Floats | None = None) -> Floats:
    """Mean feature m = Phi' d for occupancies of shape (..., N): an array (..., d); of the rows less a centre (d,)."""
    if features.dtype == np.float64 and centre is None:
        return np.asarray(rows @ features)
    flat = rows.reshape(-1, rows.shape[-1])
    used = np.flatnonzero(flat.any(axis=0))
    total = np.zeros((len(flat), features.shape[1]))
    for part, chunk in row_chunks(features, used, centre):
        total += flat[:, used[part]] @ chunk
    return total.reshape(*rows.shape[:-1], features.shape[1])


def common_centre(features: AnyFloats, mean_rows: Floats) -> Floats:
    """Mean feature of all steps, shape (d,): without it, a large common part of the features costs no digits."""
    return np.asarray(mean_features(features, mean_rows).mean(axis=0))


def second_moment(features: AnyFloats, weights: Floats, centre: Floats | None = None) -> Floats:
    """Phi' diag(weights) Phi, (d, d), over the rows that carry weight, (N,), of any sign; of the rows less a centre."""
    support = np.flatnonzero(weights)
    # gathering most of the rows costs more than it saves
    indices = None if 2 * support.size > weights.size else support
    weight = weights if indices is None else weights[support]
    positive = bool(weight.size and weight.min() >= 0)
    moment = np.zeros((features.shape[1], features.shape[1]))
    for part, chunk in row_chunks(features, indices, centre):
        if positive:  # one symmetric product, half the work of a general one
            half = chunk * np.sqrt(weight[part])[:, None]
            moment += half.T @ half
        else:
            moment += chunk.T @ (chunk * weight[part][:, None])
    return moment if positive else (moment + moment.T) / 2


def surrogate_information(
    features: AnyFloats, mean_rows: Floats, episodes: float, *, centre: Floats | None = None
) -> Floats:
    """The paper's Eq. 6: T sum_h Phi' (diag(dbar_h) - dbar_h dbar_h') Phi; depends on the policies' mean only.

    Where the masses of every step sum to 1, a centre (d,), subtracted from every row, changes nothing but rounding.
    """
    _check(features, mean_rows, 2, "mean_rows", "(H, N)")
    means = mean_features(features, mean_rows, centre)
    return episodes * (second_moment(features, mean_rows.sum(axis=0), centre) - means.T @ means)


def exact_information(features: AnyFloats, rows: Floats, episodes: float) -> Floats:
    """Expected information of K independent policies under p = 1/K.

    Raises:
        ValueError: If K < 2 (a question with one option says nothing) or a shape does not fit.
    """
    count = _check_policies(features, rows)
    means = mean_features(features, rows)  # (K, H, d)
    total = means.sum(axis=0)
    flat = means.reshape(-1, means.shape[-1])
    different = total.T @ total - flat.T @ flat  # sum over h and q != q' of m_q m_q'
    moment = second_moment(features, rows.sum(axis=(0, 1)))
    return episodes / count**2 * ((count - 1) * moment - different)


def gradient(
    features: AnyFloats,
    mean_rows: Floats,
    curvature: Floats,
    episodes: float,
    *,
    centre: Floats | None = None,
) -> Floats:
    """Gradient of tr(G I(dbar)), I the surrogate, with respect to every entry of `mean_rows`.

    g_h(n) = T (phi_n' G phi_n - 2 phi_n' G m_h). With G = ds/dI this is the gradient of the objective, the reward of
    the paper's linear oracle; the first term is computed once and shared by all steps. A centre (d,), subtracted from
    every row, moves all rewards of a step by the same number.
    """
    _check(features, mean_rows, 2, "mean_rows", "(H, N)")
    return row_scores(features, mean_features(features, mean_rows, centre), curvature, episodes, centre)


def row_scores(
    features: AnyFloats, means: Floats, curvature: Floats, scale: float, centre: Floats | None = None
) -> Floats:
    """Array (H, N) of scale * (phi' G phi - 2 phi' G m_h)."""
    result = np.empty((len(means), len(features)))
    slopes = means @ curvature
    for part, rows in row_chunks(features, None, centre):
        quadratic = np.einsum("nd,nd->n", rows @ curvature, rows)
        result[:, part] = scale * (quadratic - 2.0 * (slopes @ rows.T))
    return result


def _check(features: AnyFloats, rows: Floats, ndim: int, name: str, shape: str) -> None:
    if rows.ndim != ndim or rows.shape[-1] != features.shape[0]:
        raise ValueError(
            f"Expected {name} of shape {shape} with N = {features.shape[0]} feature rows, got {rows.shape}."
        )


def _check_policies(features: AnyFloats, rows: Floats) -> int:
    """Number of policies K of an array (K, H, N), at least 2."""
    _check(features, rows, 3, "rows", "(K, H, N)")
    if rows.shape[0] < 2:
        raise ValueError(f"Expected rows of at least 2 policies (K), got {rows.shape[0]}; a question compares two.")
    return int(rows.shape[0])
