"""Existence of the maximum likelihood estimate, for theta not determined by a proper prior.

Let D have the rows x_choice - x_other (one for each rejected option), projected on the null space Z of the prior's
precision. The likelihood has exactly one maximum there if and only if D has full column rank and no u has D u >= 0,
D u != 0 (Albert & Anderson, 1984; Konis, 2007, decides the second by a linear program).
"""

from __future__ import annotations

import numpy as np

from edpbrl_gym._arrays import Floats

__all__ = ["is_separable", "smallest_singular_value"]


def smallest_singular_value(differences: Floats, directions: Floats) -> float:
    """Smallest singular value of D Z.

    Raises:
        ValueError: D Z does not have full column rank: the options never differ in some direction.
    """
    projections = differences.reshape(-1, differences.shape[2]) @ directions
    num_directions = directions.shape[1]
    singular = np.linalg.svd(np.linalg.qr(projections, mode="r"), compute_uv=False) if len(projections) else np.zeros(0)
    rank = int((singular > max(projections.shape) * np.finfo(np.float64).eps * singular.max(initial=0.0)).sum())
    if rank < num_directions:
        raise ValueError(
            f"Expected options that differ in all {num_directions} directions without a prior, got differences of "
            f"rank {rank}; use regularization > 0 or ask more questions"
        )
    return float(singular[-1])


def is_separable(
    differences: Floats, probabilities: Floats, directions: Floats, score: Floats, smallest: float
) -> bool:
    """Whether a direction ranks every chosen option at least as high as the others.

    First a certificate: with w the probabilities of the rejected options at any theta, the score is r = D'w. If u
    separates, scaled to |D u|_1 = 1, then u . r = w . D u >= min w, while |u| <= |D u|_2 / s <= 1 / s for the smallest
    singular value s. So |r| / s < min w proves that no u separates. It holds at every converged, well determined
    maximum; where it fails, a linear program decides.

    Args:
        differences: x_k - x_choice, one row for each rejected option, (m, d).
        probabilities: w, those of the rejected options at the last theta of the maximisation, (m,).
        directions: Z, orthonormal, (d, r).
        score: r, the gradient of the log-likelihood there, (d,).
        smallest: Smallest singular value of D Z, > 0.

    Raises:
        RuntimeError: The linear program was not solved.
    """
    if float(np.linalg.norm(directions.T @ score)) / smallest < float(probabilities.min()):
        return False
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack, identity

    projections = -differences @ directions
    projections /= max(float(np.abs(projections).max()), np.finfo(np.float64).tiny)
    # maximise sum(margins), margins = D u in [0, 1]; a separating u can be scaled, so the optimum is 0 or at least 1
    num_rows, num_directions = projections.shape
    solution = linprog(
        np.concatenate([np.zeros(num_directions), -np.ones(num_rows)]),
        A_eq=hstack([csr_array(projections), -identity(num_rows)]),
        b_eq=np.zeros(num_rows),
        bounds=[(None, None)] * num_directions + [(0.0, 1.0)] * num_rows,
        method="highs",
    )
    if solution.status != 0:
        raise RuntimeError(f"The linear program for separability was not solved: {solution.message}")
    return bool(-solution.fun > 0.5)
