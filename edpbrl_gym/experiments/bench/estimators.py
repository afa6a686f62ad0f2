"""The estimators of the benchmark, and the priors that planners plan with, by name."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.evidence import fit_prior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.bench.arms import PRIORS
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.likelihood import Terms

__all__ = ["Fit", "fit", "make_prior"]

_RIDGES = {"ridge100": 100.0, "ridge1": 1.0}
_FIXED_SCALE = 10.0  # lambda = 0.1


@dataclass(frozen=True, eq=False)
class Fit:
    """An estimate as the benchmark needs it.

    Attributes:
        theta: The estimate, (d,).
        converged: Whether it is the maximiser to the tolerance.
        prior_scale: Mean prior variance of a coordinate; NaN where it is not known.
    """

    theta: NDArray[np.float64]
    converged: bool
    prior_scale: float = float("nan")


@functools.lru_cache(maxsize=16)
def make_prior(name: str, world: World) -> VocabularyPrior | GaussianPrior:
    """A prior of a world's tastes.

    Args:
        name: "vocabulary": the library's `VocabularyPrior` with its defaults; "global": the same without the step that
            looks around the estimate; "fixed": from the embeddings, lambda = 0.1; "ridge1", "ridge100": lambda I.
        world: Whose vocabulary's embeddings make the prior.

    Raises:
        ValueError: An unknown name.
    """
    check_choice_of(name, "prior", PRIORS)
    if name in _RIDGES:
        return GaussianPrior.isotropic(world.tokens.shape[1], _RIDGES[name])
    if name == "vocabulary":
        return VocabularyPrior(world.tokens)
    if name == "global":
        return VocabularyPrior(world.tokens, share=0.0)
    base = VocabularyPrior(world.tokens, share=0.0).base
    return GaussianPrior.from_precision(base.precision / _FIXED_SCALE)


def fit(name: str, terms: Terms, world: World) -> Fit:
    """Estimate the taste from answers.

    Args:
        name: Of a prior (see ``make_prior``; the scale of "vocabulary" and "global" is chosen by the evidence), or
            "ridge-fit": lambda I with lambda by the evidence.
        terms: Likelihood of the answers.
        world: Whose vocabulary's embeddings make the prior.

    Raises:
        ValueError: An unknown name.
    """
    if name == "ridge-fit":
        ridge = fit_prior(terms, base=GaussianPrior.isotropic(terms.dimension, 1.0))
        return Fit(ridge.estimate.theta, bool(ridge.estimate.converged), float(ridge.scale))
    prior = make_prior(name, world)
    if isinstance(prior, VocabularyPrior):
        taste = prior.fit(terms)
        return Fit(taste.theta, bool(taste.estimate.converged), float(taste.base.scale))
    best = estimate(terms, prior=prior)
    return Fit(best.theta, bool(best.converged), 1.0 / _RIDGES[name] if name in _RIDGES else _FIXED_SCALE)
