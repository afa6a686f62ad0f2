"""Second moments of vectors: shrunk where there are few, by their leading directions in many dimensions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import qr

from edpbrl_gym._arrays import Floats

__all__ = ["leading_directions", "ledoit_wolf_intensity", "spectrum"]

_FULL = 2048  # dimensions up to which a second moment is decomposed in full
_LEADING, _ITERATIONS = 512, 3


def spectrum(moment: Floats) -> tuple[Floats, Floats, float]:
    """Eigenvalues and eigenvectors of a positive semidefinite matrix, in full or the leading ones.

    A full decomposition takes 9 d^3 operations, most of them slow: a quarter of a minute at d = 4,096. Above 2,048
    dimensions subspace iteration finds 512 leading directions, whose eigenvalues (Ritz values) are accurate to second
    order in the error of the directions.

    Args:
        moment: (d, d).

    Returns:
        Eigenvalues (q,), ascending, eigenvectors (d, q), and the mean of the d - q other eigenvalues (0 if q = d).
    """
    if len(moment) <= _FULL:
        values, vectors = np.linalg.eigh(moment)
        return values, vectors, 0.0
    columns = leading_directions(moment.__matmul__, len(moment), _LEADING, iterations=_ITERATIONS)
    values, inner = np.linalg.eigh(columns.T @ (moment @ columns))
    rest = max(0.0, float(np.trace(moment) - values.sum())) / (len(moment) - _LEADING)
    return np.maximum(values, 0.0), columns @ inner, rest


def leading_directions(times: Callable[[Floats], Floats], dimension: int, count: int, *, iterations: int) -> Floats:
    """Orthonormal directions in which a positive semidefinite matrix is largest, (d, q), by subspace iteration.

    Args:
        times: Product of the matrix with (d, q), a new array.
        dimension: d.
        count: q, at most d.
        iterations: Products.
    """
    columns = np.random.default_rng(0).standard_normal((dimension, count))
    for _ in range(iterations):
        columns = qr(times(columns), mode="economic", overwrite_a=True)[0]
    return columns


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
