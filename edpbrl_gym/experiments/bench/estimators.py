"""The estimators of the benchmark, and the priors that planners plan with, by name."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.evidence import fit_prior
from edpbrl_gym.estimation.neighbourhood import TasteFit, VocabularyPrior
from edpbrl_gym.experiments.bench.arms import KERNELS, PRIORS
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.features import FeatureMap, RandomFourierFeatures, WithLinear
from edpbrl_gym.likelihood import Terms

__all__ = ["Fit", "fit", "make_map", "make_prior"]

_RIDGES = {"ridge100": 100.0, "ridge1": 1.0}
_FIXED_SCALE = 10.0  # lambda = 0.1
_FOURIER = 256  # random Fourier features of a kernel


@dataclass(frozen=True, eq=False)
class Fit:
    """An estimate as the benchmark needs it.

    Attributes:
        theta: The estimate, (d,), or (D,) of mapped features.
        converged: Whether it is the maximiser to the tolerance.
        prior_scale: Mean prior variance of a coordinate; NaN where it is not known.
        feature_map: The map of its features; None: none.
        taste: The parts of the mixture and its posterior, of vocabulary priors.
    """

    theta: NDArray[np.float64]
    converged: bool
    prior_scale: float = float("nan")
    feature_map: FeatureMap | None = None
    taste: TasteFit | None = None


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
        return VocabularyPrior(world.tokens, share=0.0, isotropic=0.0)
    base = VocabularyPrior(world.tokens, share=0.0).base
    return GaussianPrior.from_precision(base.precision / _FIXED_SCALE)


class _Whitened:
    """Another map of W'x; with W a root of a prior covariance C, the isotropic prior of W'x is N(0, C) of x."""

    def __init__(self, root: Floats, feature_map: FeatureMap) -> None:
        self.root, self.feature_map = root, feature_map
        self.inputs, self.dimension = len(root), feature_map.dimension

    @property
    def name(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.root, dtype="<f8").tobytes()).hexdigest()
        return f"whitened({digest[:16]}), {self.feature_map.name}"

    def __call__(self, rows: ArrayLike) -> Floats:
        return np.asarray(self.feature_map(np.asarray(rows, dtype=np.float64) @ self.root))


@functools.lru_cache(maxsize=16)
def make_map(name: str, world: World) -> FeatureMap:
    """The map of a kernel estimator: the features and random Fourier features of them.

    Args:
        name: "kernel": of the embeddings; "kernel-global": of the embeddings in the coordinates where the prior
            "global" is isotropic. The bandwidth is the median distance of the world's tokens there.
        world: Whose tokens they are.

    Raises:
        ValueError: An unknown name.
    """
    check_choice_of(name, "kernel estimator", KERNELS)
    if name == "kernel":
        return WithLinear(RandomFourierFeatures.from_rows(world.tokens, _FOURIER))
    root = VocabularyPrior(world.tokens, share=0.0).base.covariance_root()
    unscaled = RandomFourierFeatures.from_rows(world.tokens @ root, _FOURIER).bandwidth
    root = root / unscaled  # median distance 1: linear and Fourier features vary about as much
    return _Whitened(root, WithLinear(RandomFourierFeatures(root.shape[1], _FOURIER, bandwidth=1.0)))


def fit(name: str, terms: Terms, world: World) -> Fit:
    """Estimate the taste from answers.

    Args:
        name: Of a prior (see ``make_prior``; the scale of "vocabulary" and "global" is chosen by the evidence), or
            "ridge-fit": lambda I with lambda by the evidence; "kernel", "kernel-global": the same for mapped features.
        terms: Likelihood of the answers; for kernels, about the features of ``make_map``.
        world: Whose vocabulary's embeddings make the prior.

    Raises:
        ValueError: An unknown name.
    """
    if name == "ridge-fit" or name in KERNELS:
        ridge = fit_prior(terms, base=GaussianPrior.isotropic(terms.dimension, 1.0))
        feature_map = make_map(name, world) if name in KERNELS else None
        return Fit(ridge.estimate.theta, bool(ridge.estimate.converged), float(ridge.scale), feature_map)
    prior = make_prior(name, world)
    if isinstance(prior, VocabularyPrior):
        taste = prior.fit(terms)
        return Fit(taste.theta, bool(taste.estimate.converged), float(taste.base.scale), taste=taste)
    best = estimate(terms, prior=prior)
    return Fit(best.theta, bool(best.converged), 1.0 / _RIDGES[name] if name in _RIDGES else _FIXED_SCALE)
