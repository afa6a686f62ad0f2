"""The estimators of the benchmark, by name."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.terms import estimate_terms
from edpbrl_gym.experiments.query_bench.worlds import World
from edpbrl_gym.responses import Terms

__all__ = ["Fit", "base_prior", "fit"]


@dataclass(frozen=True, eq=False)
class Fit:
    """An estimate as the benchmark needs it.

    Attributes:
        theta: The estimate, (d,).
        converged: Whether it is the maximiser to the tolerance.
        prior_scale: Mean prior variance of a coordinate.
    """

    theta: NDArray[np.float64]
    converged: bool
    prior_scale: float


@functools.lru_cache(maxsize=3)
def base_prior(world: World, power: float = 0.5) -> GaussianPrior:
    """The prior from the embeddings of a world's vocabulary, mean variance 1."""
    return GaussianPrior.from_embeddings(world.tokens, power=power)


def fit(name: str, terms: Terms, world: World) -> Fit:
    """Estimate the taste from answers.

    Args:
        name: "ridge100" and "ridge1": lambda I; "fixed": the embedding prior with lambda = 0.1 (mean variance 10);
            "ours": the embedding prior with its scale by the evidence of the answers.
        terms: Likelihood of the answers.
        world: Whose vocabulary's embeddings make the prior.

    Raises:
        ValueError: An unknown name.
    """
    if name == "ours":
        from edpbrl_gym.estimation.evidence import fit_prior

        found = fit_prior(terms, base=base_prior(world))
        return Fit(found.estimate.theta, bool(found.estimate.converged), float(found.scale))
    ridges = {"ridge100": 100.0, "ridge1": 1.0}
    if name in ridges:
        prior, scale = GaussianPrior.isotropic(terms.dimension, ridges[name]), 1.0 / ridges[name]
    elif name == "fixed":
        prior, scale = GaussianPrior.from_embeddings(world.tokens, power=0.5, scale=10.0), 10.0
    else:
        raise ValueError(f"Expected an estimator among ridge100, ridge1, fixed, ours, got {name!r}")
    estimate = estimate_terms(terms, prior=prior)
    return Fit(estimate.theta, bool(estimate.converged), scale)
