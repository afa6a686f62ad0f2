"""The estimators of the benchmark, by name."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.evidence import fit_prior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.query_bench.arms import ESTIMATORS
from edpbrl_gym.experiments.query_bench.worlds import World
from edpbrl_gym.likelihood import Terms

__all__ = ["Fit", "fit", "global_prior", "our_prior", "plain_prior"]

_RIDGES = {"ridge100": 100.0, "ridge1": 1.0}
_FIXED_SCALE = 10.0  # lambda = 0.1, as in the demo


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


@functools.lru_cache(maxsize=8)
def our_prior(world: World) -> VocabularyPrior:
    """The library's prior over a world's vocabulary, with its defaults."""
    return VocabularyPrior(world.tokens)


@functools.lru_cache(maxsize=8)
def global_prior(world: World) -> VocabularyPrior:
    """The same without the step that looks around the estimate."""
    return VocabularyPrior(world.tokens, share=0.0)


def plain_prior(name: str, world: World) -> GaussianPrior:
    """A prior whose scale is fixed: "ridge100", "ridge1", or "fixed" (from the embeddings, lambda = 0.1)."""
    if name == "fixed":
        base = global_prior(world).base
        return GaussianPrior.from_precision(base.precision / _FIXED_SCALE)
    return GaussianPrior.isotropic(world.tokens.shape[1], _RIDGES[name])


def fit(name: str, terms: Terms, world: World) -> Fit:
    """Estimate the taste from answers.

    Args:
        name: "ridge100" and "ridge1": lambda I; "ridge-fit": lambda I with lambda by the evidence; "fixed": the
            embedding prior with lambda = 0.1; "global": the embedding prior with its scale by the evidence; "ours":
            that, and the prior around the estimate (`VocabularyPrior`).
        terms: Likelihood of the answers.
        world: Whose vocabulary's embeddings make the prior.

    Raises:
        ValueError: An unknown name.
    """
    if name in ("ours", "global"):
        taste = (our_prior if name == "ours" else global_prior)(world).fit(terms)
        return Fit(taste.theta, bool(taste.estimate.converged), float(taste.base.scale))
    if name == "ridge-fit":
        found = fit_prior(terms, base=GaussianPrior.isotropic(terms.dimension, 1.0))
        return Fit(found.estimate.theta, bool(found.estimate.converged), float(found.scale))
    if name not in (*_RIDGES, "fixed"):
        raise ValueError(f"Expected an estimator among {', '.join(ESTIMATORS)}, got {name!r}")
    best = estimate(terms, prior=plain_prior(name, world))
    return Fit(best.theta, bool(best.converged), _FIXED_SCALE if name == "fixed" else 1.0 / _RIDGES[name])
