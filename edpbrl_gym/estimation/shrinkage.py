"""The covariance of few vectors in many dimensions, shrunk towards a given shape (Ledoit & Wolf, 2004)."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Floats

__all__ = ["ledoit_wolf_intensity", "shrunk_covariance"]


_LEAST_INTENSITY = 1e-3  # n > d + 1 users may need none, but a prior must not rule out any direction


def ledoit_wolf_intensity(rows: Floats, gram: Floats | None = None) -> float:
    """The share of the target in the best linear combination of S = X'X / n and m I, m = tr(S) / d.

    Best in expected squared Frobenius error (Ledoit & Wolf, 2004, Lemma 3.2 to 3.4): a = min(b2, d2) / d2 with
    d2 = |S - m I|^2 / d and b2 = sum_i |x_i x_i' - S|^2 / (n^2 d).

    Args:
        rows: X, n vectors minus the centre of S (their mean or 0), (n, d), not all 0.
        gram: X'X, (d, d), where it is known.
    """
    count, dimension = rows.shape
    squares = np.einsum("nd,nd->n", rows, rows)
    if gram is None:  # |S|^2 by the smaller Gram matrix
        gram = rows @ rows.T if count <= dimension else rows.T @ rows
    size = float(np.square(gram).sum()) / count**2
    distance = size - (float(squares.sum()) / count) ** 2 / dimension
    noise = (float(np.square(squares).sum()) / count - size) / count
    return 1.0 if distance <= noise else max(0.0, noise) / distance


def shrunk_covariance(centred: Floats, root: Floats, extra: Floats | None = None) -> Floats:
    """(1 - a) S + a m C in the coordinates where the target C = root root' is the identity.

    Args:
        centred: n vectors minus their mean, (n, d).
        root: Upper triangular root of C, (d, d).
        extra: Matrix added to S = X'X / n after the intensity is computed, (d, d).

    Raises:
        ValueError: The vectors are all equal.
    """
    if not centred.any():
        raise ValueError("Expected estimates that differ from each other, got users that are all equal")
    white = solve_triangular(root, centred.T, lower=False).T
    intensity = max(ledoit_wolf_intensity(white), _LEAST_INTENSITY)
    covariance = centred.T @ centred / len(centred)
    size = float(np.square(white).sum()) / white.size
    if extra is not None:
        covariance = covariance + extra
        inside = solve_triangular(root, solve_triangular(root, extra, lower=False).T, lower=False)
        size += float(np.trace(inside)) / len(root)
    shrunk = (1.0 - intensity) * covariance + intensity * size * (root @ root.T)
    return np.asarray((shrunk + shrunk.T) / 2)
