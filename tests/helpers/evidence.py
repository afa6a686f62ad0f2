"""Laplace's log evidence from the formula, beside the one that is computed in whitened coordinates."""

import numpy as np


def log_evidence(estimate, prior):
    """Log likelihood - 1/2 (theta - m)' P (theta - m) + 1/2 log det P - 1/2 log det H, for a proper prior."""
    assert estimate.converged
    determinant = np.linalg.slogdet(prior.precision)[1] - np.linalg.slogdet(estimate.precision)[1]
    return float(estimate.log_posterior + 0.5 * determinant)
