"""Does the maximum likelihood estimate exist? Needed only where no prior pins theta down.

Let D hold the differences x_choice - x_other (one row a rejected option), seen in the directions Z that the prior
leaves free. The likelihood has exactly one maximum there if and only if D has full column rank and no u has D u >= 0,
D u != 0 (Albert & Anderson, 1984; Konis, 2007, decides the second by a linear program).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.estimation.newton import Maximum

__all__ = ["is_separable", "smallest_singular_value"]

Floats = NDArray[np.float64]


def smallest_singular_value(differences: Floats, directions: Floats) -> float:
    """Smallest singular value of D Z.

    Raises:
        ValueError: D Z has no full column rank: options that never differ in a direction say nothing about it.
    """
    seen = differences.reshape(-1, differences.shape[2]) @ directions
    free = directions.shape[1]
    singular = np.linalg.svd(np.linalg.qr(seen, mode="r"), compute_uv=False) if len(seen) else np.zeros(0)
    rank = int((singular > max(seen.shape) * np.finfo(np.float64).eps * singular.max(initial=0.0)).sum())
    if rank < free:
        raise ValueError(
            f"Expected options that differ in all {free} directions without a prior, got differences of rank {rank}; "
            f"use regularization > 0 or ask more questions"
        )
    return float(singular[-1])


def is_separable(differences: Floats, directions: Floats, end: Maximum, smallest: float) -> bool:
    """Whether a direction ranks every chosen option at least as high as the others.

    First a certificate: with w the probabilities of the rejected options at any theta, the score is r = D'w. If u
    separates, scaled to |D u|_1 = 1, then u . r = w . D u >= min w, while |u| <= |D u|_2 / s <= 1 / s for the smallest
    singular value s. So |r| / s < min w proves that no u separates. It holds at every converged maximum that is well
    determined; where it fails a linear program decides.

    Args:
        differences: x_k - x_choice, (n, K - 1, d).
        directions: Z, orthonormal, (d, r).
        end: where the maximisation ended.
        smallest: smallest singular value of D Z, > 0.

    Raises:
        RuntimeError: the linear program was not solved.
    """
    least = float(end.probabilities[:, 1:].min(initial=1.0))
    if float(np.linalg.norm(directions.T @ end.score)) / smallest < least:
        return False
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack, identity

    seen = -differences.reshape(-1, differences.shape[2]) @ directions
    seen /= max(float(np.abs(seen).max()), np.finfo(np.float64).tiny)
    # maximise sum(margins), margins = D u in [0, 1]; separating directions scale, so the optimum is 0 or at least 1
    rows, free = seen.shape
    answer = linprog(
        np.concatenate([np.zeros(free), -np.ones(rows)]),
        A_eq=hstack([csr_array(seen), -identity(rows)]),
        b_eq=np.zeros(rows),
        bounds=[(None, None)] * free + [(0.0, 1.0)] * rows,
        method="highs",
    )
    if answer.status != 0:
        raise RuntimeError(f"The linear program for separability was not solved: {answer.message}")
    return bool(-answer.fun > 0.5)
