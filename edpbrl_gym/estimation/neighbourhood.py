"""A prior that adapts to the neighbourhood of the estimate in the vocabulary, and a fallback where that does not help.

A taste that can be put into words is close to many tokens of a vocabulary at once. Once the answers indicate a
direction, the tokens near it say more about the taste than the vocabulary as a whole (empirical Bayes):

1. estimate under the prior N(0, s C) from all embeddings (`GaussianPrior.from_embeddings`, about 0): theta_0;
2. for a few values of k estimate again under N(0, s_k C_k), C_k = (1 - share) C + share S_k, with S_k the second moment
   of the k tokens with the largest cosine to theta_0, scaled to the trace of C: theta_k;
3. estimate under the isotropic prior N(0, s I), which favours no direction;
4. where the vocabulary is small, do steps 1 and 2 with other collections of texts too (`other_texts`), of which more
   may be near the taste than the few tokens;
5. average the estimates with the posterior weights of their priors.

All scales are chosen by the evidence. The weights of theta_0, of those of other collections and of the isotropic
estimate are proportional to their evidence. The evidence of a neighbourhood would be too high, as it was selected with
the same answers: for a taste unlike any words it exceeds that of theta_0 by as much as for a sentence. All theta_k of a
collection together therefore get the evidence of its theta_0 times a prequential ratio, how much better they predicted
each block of answers from the answers before it alone (`prequential`); they share it by their evidence times k.

With few embeddings, part of the spread of C's eigenvalues is due to chance; the intensity a of Ledoit & Wolf (2004)
estimates that part. C is shrunk by a, and ``share`` is multiplied by 1 - a, since tokens that differ only by chance
form no neighbourhoods. It is below 0.01 for the built-in vocabulary and near 1 for a pool of random directions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_number
from edpbrl_gym.estimation.covariance import ledoit_wolf_intensity
from edpbrl_gym.estimation.evidence import PriorFit, mixture_posterior, search_prior
from edpbrl_gym.estimation.map_estimate import Data, Estimate, answer_terms
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prequential import Prequential
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.taste_prior import Described, TastePrior

if TYPE_CHECKING:
    from edpbrl_gym.likelihood import AnswerFormat, Terms

__all__ = ["TasteFit", "VocabularyPrior"]


_Groups = tuple[NDArray[np.intp], ...]

_NEIGHBOURS = (20, 50, 150)
_DIVISORS = (40, 16, 6)  # at most 1/40, 1/16 and 1/6 of the vocabulary's tokens count as near
_NEAR = 0.3  # prior probability of the neighbourhoods beside the prior from all embeddings
_ISOTROPIC, _ISOTROPIC_BESIDE = 0.2, 0.4  # that of the isotropic prior, without and beside other collections
_OTHERS = 0.5  # prior probability of all other collections beside the vocabulary's own


class _Collection(NamedTuple):
    """Fits under the priors of one collection of texts, and the log of prior probability times evidence of each."""

    base: PriorFit
    groups: _Groups
    local: tuple[PriorFit, ...]
    logs: Floats


@dataclass(frozen=True, eq=False)
class TasteFit:
    """Estimates under several priors, and their average.

    Attributes:
        base: Fit of the prior from all embeddings.
        local: Fits of the priors of the neighbourhoods; empty while the estimate is zero.
        others: The same of other collections of texts.
        isotropic: Fit of the isotropic prior; None where it has no weight.
        weights: Posterior weights of ``parts``, sum 1.
        neighbourhoods: Rows of the tokens of each neighbourhood, nearest first.
        terms: The answers.
        log_gain: Log evidence of all parts together minus that of the base.
    """

    base: PriorFit
    local: tuple[PriorFit, ...]
    isotropic: PriorFit | None
    weights: Floats
    neighbourhoods: tuple[NDArray[np.intp], ...]
    terms: Terms = field(repr=False)
    log_gain: float
    others: tuple[PriorFit, ...] = ()
    hedged = 0  # the neighbourhoods were selected with the same answers

    @property
    def parts(self) -> tuple[PriorFit, ...]:
        """All fits: the base, the local ones, those of other collections, the isotropic one."""
        return (self.base, *self.local, *self.others, *(() if self.isotropic is None else (self.isotropic,)))

    @property
    def theta(self) -> Floats:
        """The average of the estimates, (d,)."""
        return np.asarray(self.weights @ np.stack([fit.estimate.theta for fit in self.parts]))

    @property
    def estimate(self) -> Estimate:
        """The base estimate with the averaged theta; ``converged`` if all estimates did."""
        return replace(
            self.base.estimate,
            theta=self.theta,
            converged=all(fit.estimate.converged for fit in self.parts),
            reason="; ".join(dict.fromkeys(fit.estimate.reason for fit in self.parts if fit.estimate.reason)),
        )

    @property
    def planned(self) -> Posterior:
        """Posterior to plan questions with: that under the prior from all embeddings alone.

        Questions planned with the average of all parts teach no more, and misleading answers are corrected later.
        """
        return Posterior.from_estimate(self.base.estimate)

    @functools.cached_property
    def posterior(self) -> Posterior:
        """`mixture_posterior` of all parts, computed on first use, in some tenths of a second."""
        return mixture_posterior(self.parts, self.weights, self.terms)


class VocabularyPrior(TastePrior):
    """Priors over the taste from the embeddings of a vocabulary.

    Args:
        features: Embeddings of the tokens, (N, d), N >= 2.
        power: Exponent of the eigenvalues of their second moment, >= 0.
        share: Share of the near tokens in a local prior covariance, in [0, 1), before its multiplication by 1 - a; 0
            skips the second step.
        isotropic: Prior probability of the isotropic prior, in [0, 1); 0 skips the third step. None: 0.2, or 0.4 beside
            other collections.
        others: Gives the embeddings of other collections of texts, (M, d) each, when the first estimate needs them;
            None: there are none.

    Attributes:
        base: The prior from all embeddings, shrunk, mean variance 1.
        neighbours: Numbers of tokens that count as near, ascending: 20, 50, 150, at most N / 40, N / 16 and N / 6.
        intensity: A, in [0, 1]: the part of the spread of the embeddings' second moment that is due to chance.
        share: The argument times 1 - a.

    Raises:
        ValueError: Fewer than two tokens, all equal, NaN, or an argument out of its range.
    """

    fallback_weight = 0.3  # docs/priors.md

    def __init__(
        self,
        features: ArrayLike,
        *,
        power: float = 0.75,
        share: float = 0.5,
        isotropic: float | None = None,
        others: Callable[[], Sequence[ArrayLike]] | None = None,
    ) -> None:
        self.features = check_array(features, "features", shape=("N", "d"))
        gram = self.features.T @ self.features
        self.intensity = ledoit_wolf_intensity(self.features, gram)
        self.base = GaussianPrior.from_embeddings(
            self.features, power=power, centred=False, shrunk=self.intensity, gram=gram
        )
        size = len(self.features)
        counts = {min(count, -(-size // divisor)) for count, divisor in zip(_NEIGHBOURS, _DIVISORS, strict=True)}
        self.neighbours = tuple(sorted(counts))
        largest_share = check_number(share, "share", minimum=0.0)
        if largest_share >= 1.0:
            raise ValueError(f"Expected share in [0, 1), got {share}; the rest keeps every taste possible")
        if isotropic is None:
            isotropic = _ISOTROPIC if others is None else _ISOTROPIC_BESIDE
        self.isotropic = check_number(isotropic, "isotropic", minimum=0.0)
        if self.isotropic >= 1.0:
            raise ValueError(f"Expected isotropic in [0, 1), got {isotropic}")
        self.share = largest_share * (1.0 - self.intensity)
        self._make_others = others
        self._alike = functools.partial(VocabularyPrior, power=power, share=largest_share, isotropic=0.0)
        squares = np.einsum("nd,nd->n", self.features, self.features)
        self._norms: Floats = np.where(squares > 0, np.sqrt(squares), 1.0)
        self._typical_scale = 1.0 / float(squares.mean())  # 1 for embeddings of norm 1, whatever was compared
        self._isotropic = GaussianPrior.isotropic(self.base.dimension, 1.0)
        self._prequential = Prequential(self._compared)

    @functools.cached_property
    def _covariance(self) -> Floats:
        return self.base.covariance

    @functools.cached_property
    def others(self) -> tuple[VocabularyPrior, ...]:
        """The priors of the other collections, made on first use."""
        rows = () if self._make_others is None else self._make_others()
        return tuple(self._alike(one) for one in rows)

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.base.dimension

    def start(self) -> Posterior:
        """The prior from all embeddings."""
        return self.base.start()

    def think(self) -> None:
        """Embed the other collections."""
        _ = self.others

    def described(self, fit: TasteFit) -> Described:
        """By the weight of the vocabulary's own neighbourhoods with that of no direction, and of other collections."""
        first = 1 + len(fit.local)
        others = float(fit.weights[first : first + len(fit.others)].sum())
        near = 1.0 - float(fit.weights[0]) - others
        facts = {"prior": "words", "scale": fit.base.scale, "scale_from": "answers"}
        facts |= {"log_evidence": fit.base.log_evidence, "weight_of_neighbourhoods": near}
        if fit.others:
            facts["weight_of_other_texts"] = others
        elsewhere = f", of other texts {others:.0%}" if fit.others else ""
        return Described(f"words of the vocabulary (weight of the nearest {near:.0%}{elsewhere})", facts)

    def near(self, theta: ArrayLike, count: int) -> NDArray[np.intp]:
        """Rows of the ``count`` tokens with the largest cosine to theta, nearest first.

        Raises:
            ValueError: Another dimension, or NaN.
        """
        values = self.features @ check_array(theta, "theta", shape=(self.base.dimension,)) / self._norms
        return np.argsort(-values, kind="stable")[:count]

    def around(self, tokens: ArrayLike) -> GaussianPrior:
        """The prior N(0, C_k) of a neighbourhood, given by the rows of its tokens."""
        rows = self.features[np.asarray(tokens)]
        moment = rows.T @ rows
        size = float(np.trace(moment))
        if self.share == 0.0 or size == 0.0:
            return self.base
        moment *= float(np.trace(self._covariance)) / size
        return GaussianPrior.from_covariance((1.0 - self.share) * self._covariance + self.share * moment)

    @one_blas_thread()  # many small products, which take several times as long with two threads
    def fit(self, data: Data, *, model: AnswerFormat | None = None) -> TasteFit:
        """Estimate the taste from answers.

        Args:
            data: Answers, as for ``estimate``.
            model: Response model, as for ``estimate``.

        Raises:
            TypeError: As for ``estimate``.
            ValueError: As for ``fit_prior``.
        """
        terms = answer_terms(data, model)
        own, others = self._collection(terms), [other._collection(terms) for other in self.others]
        isotropic = self._scaled(terms, self._isotropic) if self.isotropic else None
        shares = [1.0 - _OTHERS, *[_OTHERS / len(others)] * len(others)] if others else [1.0]
        logs = [
            np.log1p(-self.isotropic) + np.log(share) + one.logs
            for share, one in zip(shares, (own, *others), strict=True)
        ]
        if isotropic is not None:
            logs.append(np.array([np.log(self.isotropic) + isotropic.log_evidence]))
        joined = np.concatenate(logs)
        gain = float(np.logaddexp.reduce(joined)) - own.base.log_evidence
        elsewhere = tuple(part for other in others for part in (other.base, *other.local))
        return TasteFit(own.base, own.local, isotropic, softmax(joined), own.groups, terms, gain, elsewhere)

    def _collection(self, terms: Terms) -> _Collection:
        """The fits under the priors of all embeddings and of the neighbourhoods."""
        base = self._scaled(terms, self.base)
        groups, local = self._neighbours_of(terms, base)
        if not local:
            return _Collection(base, (), (), np.array([base.log_evidence]))
        near = np.log(_NEAR) + self._prequential.log_ratio(terms) + np.log(_local_weights(local, groups))
        logs = base.log_evidence + np.concatenate([[np.log1p(-_NEAR)], near])
        return _Collection(base, groups, local, logs)

    @one_blas_thread()
    def fit_planned(self, terms: Terms) -> Posterior:
        """``fit(terms).planned``, without the other parts of the fit: several times as fast.

        Raises:
            ValueError: As for ``fit_prior``.
        """
        return Posterior.from_estimate(self._scaled(terms, self.base).estimate)

    def _scaled(self, terms: Terms, base: GaussianPrior) -> PriorFit:
        return search_prior(terms, base=base, typical_scale=self._typical_scale)

    def _neighbours_of(self, terms: Terms, base: PriorFit) -> tuple[_Groups, tuple[PriorFit, ...]]:
        """The neighbourhoods of a base estimate, and the fits under their priors."""
        theta = base.estimate.theta
        if self.share == 0.0 or not theta.any():
            return (), ()
        nearest = self.near(theta, self.neighbours[-1])
        groups = tuple(nearest[:count] for count in self.neighbours)
        return groups, tuple(search_prior(terms, base=self.around(group), start=base) for group in groups)

    def _compared(self, terms: Terms) -> tuple[Posterior, Posterior]:
        """Posteriors of the neighbourhoods, averaged, and of all embeddings, for the prequential ratio."""
        base = self._scaled(terms, self.base)
        plain = Posterior.from_estimate(base.estimate)
        groups, local = self._neighbours_of(terms, base)
        if not local:
            return plain, plain
        weights = _local_weights(local, groups)
        theta = weights @ np.stack([fit.estimate.theta for fit in local])
        return Posterior(theta, local[int(weights.argmax())].estimate.precision), plain


def _local_weights(local: Sequence[PriorFit], groups: _Groups) -> Floats:
    """Weights of the neighbourhoods among themselves: evidence times size, (len(local),)."""
    logs = np.array([fit.log_evidence for fit in local]) + np.log([len(group) for group in groups])
    return np.asarray(softmax(logs))
