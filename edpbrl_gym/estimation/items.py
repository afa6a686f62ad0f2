"""A prior for a pool of items that a person meets again: a linear taste, and a deviation of each item that stays.

A person's liking of a picture has a part that its features do not see, and that is the same whenever this picture is
shown. Under a taste that is linear in the features this part is taken for taste where an item is asked about again and
again. So the utility of item i with features x_i is

    u_i = theta . phi(x_i) + e_i,    theta_b ~ N(0, s_b^2 I),    e_i ~ N(0, t^2),

with phi the components of `BlocksPrior`, in which s_b^2 is the variance of a block's utility over the pool. An option's
features become phi(x) and a column for each item, so that the taste is linear in them and everything that holds for a
Gaussian prior holds here. The scales s_b and t maximise the Laplace evidence times a log-normal prior. That prior was
set on the development people of three studies of pictures (docs/people.md).

The columns of items that were never shown are independent of all answers. They are left out of every computation, and
put back with their prior variance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag
from scipy.spatial import cKDTree
from scipy.special import expit

from edpbrl_gym._arrays import AnyFloats, Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array
from edpbrl_gym.estimation.blocks import BlocksPrior, ScalesOfBlocks
from edpbrl_gym.estimation.map_estimate import Data, Estimate, answer_differences, answer_terms
from edpbrl_gym.estimation.mixture import MixturePosterior
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.priors import MOST_ITEMS
from edpbrl_gym.estimation.scattered import ScatteredPosterior
from edpbrl_gym.estimation.taste_prior import Described, TastePrior
from edpbrl_gym.estimation.whitened import WhitenedAnswers
from edpbrl_gym.features.base import hash_arrays, hash_settings
from edpbrl_gym.likelihood import AnswerFormat, Terms

__all__ = ["Crowd", "ItemsFit", "ItemsPart", "ItemsPrior"]

_TASTE, _DEVIATION = 3.0, 1.2  # medians of the sum of s_b^2 and of t^2
_COMMON, _RATIO = 1.0, 1.0  # deviations of the logs of their common factor, and of each from it
_FACTORS = np.exp(np.linspace(-2.0, 2.0, 5))  # common factors, over which the evidence without other people is averaged
_UNLIKE = 0.03  # prior weight of a person unlike all others, as under a population of tastes alone
_SAME = 1e-3  # distance of the same item's components from two encodings, relative to that of neighbours


@dataclass(frozen=True, eq=False)
class Crowd:
    """What other people's answers say about the utilities of the items of a pool (`fit_crowd`).

    A person's utilities are u_i = b_i + theta . phi(x_i) + e_i, with theta ~ N(taste, covariance) and
    e_i ~ N(0, deviation).

    Attributes:
        taste: Mean of theta, (c,).
        covariance: Of theta among people, (c, c).
        effects: What people like more in each item than its features say: posterior means of b_i, (N,).
        variances: Posterior variances of the means beta . phi(x_i) + b_i about their mean over the pool, (N,).
        deviation: t^2, variance of a person's own deviation at an item.
        seen: Number of people to whom each item was shown, (N,).
        people: Number of people.
        sums: Over people, for updates (`fit_crowd`); empty if this came from elsewhere.
    """

    taste: Floats
    covariance: Floats
    effects: Floats
    variances: Floats
    deviation: float
    seen: NDArray[np.int64]
    people: int
    sums: Mapping[str, Floats] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class ItemsPart:
    """The estimate under one Gaussian.

    Attributes:
        estimate: Of theta and of the deviations of all items, (d,).
        log_evidence: Laplace log evidence of the answers.
        scales: s_b^2 of each block, and t^2, (B + 1,); empty where other people's answers say them.
        posterior: Laplace's posterior.
    """

    estimate: Estimate
    log_evidence: float
    scales: Floats
    posterior: Posterior = field(repr=False)

    @property
    def mean(self) -> Floats:
        """The estimate, (d,)."""
        return self.estimate.theta


@dataclass(frozen=True, eq=False)
class ItemsFit:
    """The estimate under the scales with the highest evidence, beside that under other people's, if these are known.

    Attributes:
        parts: Like other people, if they are known; and alone.
        weights: Posterior weights of the parts, sum 1.
    """

    parts: tuple[ItemsPart, ...]
    weights: Floats

    @property
    def hedged(self) -> int:
        """None: no part was selected with the same answers."""
        return len(self.parts)

    @property
    def log_evidence(self) -> float:
        """That of the heaviest part."""
        return self._heaviest.log_evidence

    @property
    def scales(self) -> Floats:
        """Those without other people, (B + 1,)."""
        return self.parts[-1].scales

    @property
    def estimate(self) -> Estimate:
        """That of the heaviest part, with the mean of all parts as theta."""
        theta = self.weights @ np.stack([part.mean for part in self.parts])
        return replace(self._heaviest.estimate, theta=np.asarray(theta))

    @cached_property
    def posterior(self) -> Posterior:
        """The mixture of the parts' posteriors."""
        return MixturePosterior.of([part.posterior for part in self.parts], self.weights)

    @property
    def planned(self) -> Posterior:
        """Posterior to plan questions with: that of the heaviest part."""
        return self._heaviest.posterior

    @property
    def _heaviest(self) -> ItemsPart:
        return self.parts[int(self.weights.argmax())]


class _Asked(NamedTuple):
    """A person's answers about the coordinates ``used`` that they are about, and the search for the scales."""

    used: NDArray[np.intp]
    differences: Floats
    offsets: Floats | None
    search: ScalesOfBlocks


class ItemsPrior(TastePrior):
    """The prior of this module.

    Args:
        features: Features of the items of the pool, (N, D); or the rows of ``landmarks``, if ``mapped``.
        blocks: As of `BlocksPrior`.
        power: As of `BlocksPrior`.
        components: As of `BlocksPrior`.
        mapped: Number of items, the last ones of ``features``, where these are the landmarks of such a prior.

    Raises:
        ValueError: As for `BlocksPrior`, or more items than `MOST_ITEMS`.
    """

    label, file = "items", "population.safetensors"
    own: slice
    _taste: GaussianPrior  # of other people, if they are known

    def __init__(
        self,
        features: ArrayLike,
        *,
        blocks: Sequence[int] | None = None,
        power: float = 0.5,
        components: int = 100,
        mapped: int | None = None,
    ) -> None:
        rows = check_array(features, "features", shape=("N", "D"))
        known = 0 if mapped is None else len(rows) - mapped
        if not known:
            rows = rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])]
        if len(rows) - known > MOST_ITEMS:
            raise ValueError(
                f"Expected a pool of at most {MOST_ITEMS:,} items with the prior 'items', got {len(rows) - known:,}; "
                "people can't be asked about so many. Take another prior"
            )
        self._blocks = BlocksPrior(
            rows[:known] if known else rows, blocks=blocks, power=power, components=components, mapped=known > 0
        )
        self._items = rows[known:]
        places = self._blocks.feature_map(self._items)
        self.components = np.asarray(places, dtype=np.float64)  # of the items, (N, c)
        self._tree = cKDTree(places)
        nearest = self._tree.query(places, k=2)[0][:, 1] if len(places) > 1 else np.ones(1)
        self._same = _SAME * float(np.median(nearest))
        size = self._blocks.dimension
        self.own = slice(size, size + len(self._items))
        self._parts = (*self._blocks.parts, self.own)
        count = len(self._blocks.parts)
        self.crowd: Crowd | None = None
        self._typical = np.append(np.full(count, _TASTE / count), _DEVIATION)
        self.options = {"blocks": list(self._blocks.blocks), "mapped": len(self._items)}
        self.space = hash_settings([self.options, hash_arrays({"landmarks": self.landmarks})])

    @property
    def fingerprint(self) -> str:
        """That of the map, and of what others said."""
        if self.crowd is None:
            return self.space
        arrays = {name: value for name, value in vars(self.crowd).items() if isinstance(value, np.ndarray)}
        return hash_settings([self.space, hash_arrays(arrays), self.crowd.deviation])

    @property
    def dimension(self) -> int:
        """Number of components, and of items."""
        return self.own.stop

    @cached_property
    def landmarks(self) -> Floats:
        """Those of the map to components, and the items, (c + 1 + N, D)."""
        return np.concatenate([self._blocks.landmarks, self._items])

    def feature_map(self, rows: AnyFloats) -> AnyFloats:
        """Components of features (..., D) and columns of the items, (..., d); zeros where it is no item of the pool.

        Raises:
            ValueError: Another number of features.
        """
        components = self._blocks.feature_map(rows)
        flat = components.reshape(-1, components.shape[-1])
        distance, item = self._tree.query(flat) if len(flat) else (np.zeros(0), np.zeros(0, dtype=int))
        mapped = np.zeros((len(flat), self.dimension))
        mapped[:, : self.own.start] = flat
        known = np.flatnonzero(distance <= self._same)
        mapped[known, self.own.start + item[known]] = 1.0
        return mapped.reshape(*components.shape[:-1], self.dimension)

    @property
    def inputs(self) -> int:
        """Number of features D of an option."""
        return self._items.shape[1]

    def with_crowd(self, crowd: Crowd | None, provenance: Mapping[str, Any] = MappingProxyType({})) -> ItemsPrior:
        """The same prior, for a person of whom others are known; ``provenance`` says of their answers what is known."""
        known = copy(self)
        known.crowd, known.provenance = crowd, provenance
        if crowd is not None:
            known._taste = GaussianPrior.from_covariance(crowd.covariance, crowd.taste)
        return known

    def shared(self) -> Floats:
        """What other people like in each item, m_i, (N,); zeros where they are not known."""
        if self.crowd is None:
            return np.zeros(len(self._items))
        return np.asarray(self.components @ self.crowd.taste + self.crowd.effects)

    def liking(self) -> dict[str, float]:
        """Variances over the items of the parts of a person's utility: shared by all, their taste, their deviations.

        Raises:
            ValueError: Other people are not known.
        """
        if self.crowd is None:
            raise ValueError("Expected a prior with what other people answered, got one without; fit_crowd makes it")
        taste = np.einsum("nc,cd,nd->n", self.components, self.crowd.covariance, self.components).mean()
        return {"shared": float(self.shared().var()), "taste": float(taste), "own": float(self.crowd.deviation)}

    def save(self, path: Any) -> None:
        """Write what other people answered to a .safetensors file; raises as `Population.save`."""
        from edpbrl_gym.estimation.population.storage import save_items

        save_items(self, path)

    def start(self) -> Posterior:
        """The prior at the medians of the scales, or other people's tastes."""
        used = np.arange(self.own.start)
        mean, variances = self._marginal()
        return ScatteredPosterior.of(self._gaussian(used).start(), used, mean, variances)

    def fit(self, data: Data, *, model: AnswerFormat | None = None) -> ItemsFit:
        """Choose the scales by the evidence of answers about features of ``feature_map``, and estimate.

        Raises:
            TypeError, ValueError: As for ``fit_prior``.
        """
        with one_blas_thread():  # many small products
            asked = self._asked(answer_terms(data, model))
            alone = self._alone(asked)
            if self.crowd is None:
                return ItemsFit((alone,), np.ones(1))
            others, share = self._like_others(asked)
            return ItemsFit((others, alone), np.array([share, 1.0 - share]))

    def fit_planned(self, terms: Terms) -> Posterior | None:
        """As of the base class: of one of the two parts."""
        if self.crowd is None:
            return None
        with one_blas_thread():
            asked = self._asked(terms)
            others, share = self._like_others(asked)
            return (others if share >= 0.5 else self._alone(asked)).posterior

    def _asked(self, terms: Terms) -> _Asked:
        differences, offsets = answer_differences(terms)
        shown = differences[:, :, self.own].any(axis=(0, 1))
        used = np.append(np.arange(self.own.start), self.own.start + np.flatnonzero(shown))
        differences = differences[:, :, used]
        parts = (*self._parts[:-1], slice(self.own.start, len(used)))
        search = ScalesOfBlocks(differences, offsets, parts, self._typical, common=_COMMON, ratio=_RATIO)
        return _Asked(used, differences, offsets, search)

    def _alone(self, asked: _Asked) -> ItemsPart:
        """The estimate under the scales of the highest evidence."""
        scales = asked.search.climb(self._typical)
        return self._whole(asked, GaussianPrior.diagonal(self._variances(scales)[asked.used]), scales)

    def _like_others(self, asked: _Asked) -> tuple[ItemsPart, float]:
        """The estimate under other people's tastes, and the posterior weight of a person who is like them."""
        others = self._whole(asked, self._gaussian(asked.used), np.zeros(0))
        weights = -0.5 * np.square(np.log(_FACTORS) / _COMMON)
        logs = asked.search.log_evidences(self._typical, _FACTORS)
        unlike = np.logaddexp.reduce(weights - np.logaddexp.reduce(weights) + logs)
        odds = np.log1p(-_UNLIKE) + others.log_evidence - np.log(_UNLIKE) - unlike
        return others, float(expit(odds))

    def described(self, fit: ItemsFit) -> Described:
        """By the shares of the blocks and of the deviations."""
        facts: dict[str, Any] = {"prior": "items", "prior_options": self.options, "scales": fit.scales.tolist()}
        facts |= {"scale_from": "answers", "log_evidence": fit.log_evidence}
        shares = [f"{share:.0%}" for share in fit.scales / fit.scales.sum()]
        if self.crowd is not None:
            like = float(fit.weights[0])
            facts |= {"people": self.crowd.people, "weight_of_the_others": like}
            belonging = f"{like:.0%} like the others, {1.0 - like:.0%} unlike all of them"
            return Described(f"items and {self.crowd.people} other people", facts, belonging)
        return Described(f"items (features {', '.join(shares[:-1])}, each item's own {shares[-1]})", facts)

    def _variances(self, scales: Floats) -> Floats:
        """Prior variances of all coordinates."""
        return np.repeat(scales, [part.stop - part.start for part in self._parts])

    def _gaussian(self, used: NDArray[np.intp]) -> GaussianPrior:
        """The prior of some coordinates, all features among them, before the answers of this person."""
        if self.crowd is None:
            return GaussianPrior.diagonal(self._variances(self._typical)[used])
        size = self.own.start
        mean, variances = self._marginal()
        deviations = GaussianPrior.diagonal(variances[used[size:]])
        precision = block_diag(self._taste.precision, deviations.precision)
        root = block_diag(self._taste.covariance_root(), deviations.covariance_root())
        return GaussianPrior.from_root(precision, root, mean[used])

    def _marginal(self, scales: Floats | None = None) -> tuple[Floats, Floats]:
        """Prior mean and variances of all coordinates, (d,) each, of which those of the taste are its own if alone.

        Args:
            scales: Of a person alone; None: of one like the others, if they are known, or at the medians.
        """
        if self.crowd is None or scales is not None:
            return np.zeros(self.dimension), self._variances(self._typical if scales is None else scales)
        crowd = self.crowd
        mean = np.append(crowd.taste, crowd.effects)
        return mean, np.append(np.diagonal(crowd.covariance), crowd.deviation + crowd.variances)

    def _whole(self, asked: _Asked, base: GaussianPrior, scales: Floats) -> ItemsPart:
        """The estimate of all coordinates, those that the answers are about by a prior of them."""
        found, _, evidence = WhitenedAnswers(asked.differences, asked.offsets, base).estimate(1.0)
        mean, variances = self._marginal(scales if len(scales) else None)
        posterior = ScatteredPosterior.of(Posterior.from_estimate(found), asked.used, mean, variances)
        whole = replace(found, theta=posterior.mean, precision=partial(getattr, posterior, "precision"))
        return ItemsPart(whole, evidence, scales, posterior)
