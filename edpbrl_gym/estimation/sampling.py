"""Draws from the exact posterior of a taste, by elliptical slice sampling about Laplace's Gaussian."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.likelihood import Terms

__all__ = ["sample_posterior"]

_CHAINS, _BURN = 16, 20  # parallel chains of the sampler, and first steps of each that are left out


def sample_posterior(
    posterior: Posterior, terms: Terms, *, draws: int, rng: np.random.Generator, chains: int = _CHAINS, thin: int = 1
) -> Floats:
    """Draws from the exact posterior of theta given the answers, by elliptical slice sampling.

    Laplace's Gaussian N(m, H^-1) is too wide if the answers have little noise: much of its mass lies where the answers
    would have been different. Elliptical slice sampling (Murray, Adams & MacKay, 2010) draws from a density that is a
    Gaussian times any positive function. The Gaussian here is Laplace's, so that the function is nearly constant and
    the steps are long (Fagan, Bhandari & Cunningham, 2016, use that of expectation propagation). With d = theta - m, m
    the posterior's mode, and v = D d the changes of the utilities relative to the chosen options, the log of the
    function is log L(m + d) - log L(m) - d . grad log L(m) + 1/2 d' F d, F the observed information at m, which depends
    on v alone: the prior cancels, and along an ellipse no matrix product is needed.

    Args:
        posterior: Laplace's approximation at the mode, for the same answers and prior.
        terms: The answers.
        draws: Number of draws, >= 1; draws of one chain are correlated.
        rng: Source of randomness.
        chains: Number of parallel chains, started at the mode, >= 1.
        thin: Number of steps between two draws of a chain, >= 1.

    Returns:
        The draws, (draws, d).

    Raises:
        ValueError: The terms have another dimension, or a count is out of its range.
    """
    if terms.dimension != posterior.dimension:
        raise ValueError(f"Expected terms of dimension {posterior.dimension} (the posterior's), got {terms.dimension}")
    num_draws, num_chains = check_count(draws, "draws"), check_count(chains, "chains")
    steps = _BURN + check_count(thin, "thin") * -(-num_draws // num_chains)
    if not len(terms):
        return posterior.draws(num_draws, rng)
    factor = cholesky(posterior.precision, lower=True)
    differences, offsets = terms.differences()
    flat = differences.reshape(-1, terms.dimension)
    row_changes = solve_triangular(factor, flat.T, lower=True)  # (d, m (J - 1)): v = z @ row_changes
    target = _Correction(np.vecdot(differences, posterior.mean) + offsets)
    point = np.zeros((num_chains, terms.dimension))
    point_changes = np.zeros((num_chains, *offsets.shape))
    samples = []
    for step in range(steps):
        direction = rng.standard_normal((num_chains, terms.dimension))
        direction_changes = (direction @ row_changes).reshape(num_chains, *offsets.shape)
        angle = _slice(target, point_changes, direction_changes, rng)
        cos, sin = np.cos(angle), np.sin(angle)
        point = cos[:, None] * point + sin[:, None] * direction
        point_changes = cos[:, None, None] * point_changes + sin[:, None, None] * direction_changes
        if step >= _BURN and (step - _BURN + 1) % thin == 0:
            samples.append(point)
    stacked = np.concatenate(samples)[:num_draws]
    return posterior.mean + solve_triangular(factor, stacked.T, lower=True, trans="T").T


class _Correction:
    """Log of the exact posterior over Laplace's, as a function of the changes v (c, m, J - 1) of the utilities.

    Args:
        values: The utilities at the mode relative to the chosen alternatives, (m, J - 1).
    """

    def __init__(self, values: Floats) -> None:
        self.values = values
        top = np.maximum(values.max(axis=1, initial=0.0), 0.0)
        weights = np.exp(values - top[:, None])
        base = np.exp(-top) + weights.sum(axis=1)
        self.p = weights / base[:, None]
        self.at_mode = float((top + np.log(base)).sum())

    def __call__(self, v: Floats) -> Floats:
        """The log ratio for each chain, (c,)."""
        values = self.values + v
        top = np.maximum(values.max(axis=2), 0.0)
        logs = top + np.log(np.exp(-top) + np.exp(values - top[:, :, None]).sum(axis=2))
        mean = (self.p * v).sum(axis=2)
        spread = (self.p * v * v).sum(axis=2) - mean * mean
        return np.asarray(self.at_mode + (mean + 0.5 * spread - logs).sum(axis=1))


def _slice(target: _Correction, point_changes: Floats, direction_changes: Floats, rng: np.random.Generator) -> Floats:
    """Angle of each chain's next point on its ellipse, (c,)."""
    num_chains = len(point_changes)
    level = target(point_changes) + np.log(rng.random(num_chains))
    angle = rng.uniform(0.0, 2 * np.pi, num_chains)
    low, high = angle - 2 * np.pi, angle.copy()
    waiting = np.arange(num_chains)
    while len(waiting):
        cos, sin = np.cos(angle[waiting])[:, None, None], np.sin(angle[waiting])[:, None, None]
        inside = target(cos * point_changes[waiting] + sin * direction_changes[waiting]) > level[waiting]
        waiting = waiting[~inside]
        negative = waiting[angle[waiting] < 0]
        positive = waiting[angle[waiting] >= 0]
        low[negative], high[positive] = angle[negative], angle[positive]
        angle[waiting] = rng.uniform(low[waiting], high[waiting])  # the interval shrinks to 0, the present point
    return angle
