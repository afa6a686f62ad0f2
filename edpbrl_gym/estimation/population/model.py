"""A population of people: the distribution of their tastes, and what it says about a new person."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import EllipsisType
from typing import Any, Literal

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.estimation.map_estimate import Data, answer_differences, answer_terms
from edpbrl_gym.estimation.mixture import MixturePosterior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population.answers import Answered, Frame, answered_people, check_group
from edpbrl_gym.estimation.population.em import Settings, update_parts
from edpbrl_gym.estimation.population.factor_fit import update_factors
from edpbrl_gym.estimation.population.factors import FactorMoments, Factors
from edpbrl_gym.estimation.population.parts import Moments, Parts, Shrinkage
from edpbrl_gym.estimation.population.person import Fallback, PersonFit, Source, fit_person
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.taste_prior import Described, TastePrior, check_prior
from edpbrl_gym.likelihood import AnswerFormat

__all__ = ["Kind", "Population"]

Kind = Literal["gaussian", "factors", "types"]


@dataclass(frozen=True, eq=False)
class Population(TastePrior):
    """The tastes of a population, a mixture of M Gaussians: random effects of a multinomial logit.

    Made by :func:`~edpbrl_gym.estimation.population.fit_population`.

    Privacy. Means, covariances and sums over all people are stored, no answer and no person's estimate. Still, what is
    typical of the group can be inferred about everyone known to be in it; a person who differs much from all others
    shows in the covariance, the more so the smaller the group; and the difference between the populations before and
    after an update says about the new people what a population fitted on them alone would say. Therefore groups below
    a least size are refused. This is no differential privacy.

    Attributes:
        weights: Weights of the parts, (M,), sum 1; M = 1 but for types of people.
        parts: The Gaussians N(m_j, C_j) of theta.
        people: Number of people with answers it was fitted on, also in updates.
        kind: "gaussian", "factors" or "types".
        log_likelihood: Marginal log-likelihood of all answers at the start of each round of the last fit, with the
            penalty that shrinks the parameters (0 without shrinkage); it never falls. Above 20 features and for factors
            it is the variational lower bound.
        base: The prior that the covariances are shrunk towards, before scaling.
        shrinkage: Weight of its shape, in people.
        features: Name of the features, such as the encoder's; "" if not given.
        provenance: What else is known of its making, JSON values; kept in its file.
        fallback: What ``fit`` takes for a person unlike all others (``with_fallback``); None: the base prior. It is not
            part of the fingerprint, nor of the file.
    """

    label, file = "population", "population.safetensors"

    weights: Floats
    parts: tuple[GaussianPrior, ...]
    people: int
    kind: Kind
    log_likelihood: tuple[float, ...]
    base: GaussianPrior = field(repr=False)
    shrinkage: float = 0.0
    features: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    fallback: VocabularyPrior | None = field(default=None, repr=False)
    state: Parts | Factors = field(repr=False, kw_only=True)  # the same Gaussians in the base prior's coordinates
    moments: Moments | FactorMoments = field(repr=False, kw_only=True)  # sums over people, for updates

    @classmethod
    def of(
        cls,
        state: Parts | Factors,
        moments: Moments | FactorMoments,
        *,
        base: GaussianPrior,
        kind: Kind,
        people: int,
        log_likelihood: tuple[float, ...],
        shrinkage: float,
        features: str,
        provenance: Mapping[str, Any] | None = None,
    ) -> Population:
        """The population with these parameters in the coordinates of the base prior."""
        frame = Frame.of(base)
        gaussians = zip(state.means, state.covariances, strict=True)
        return cls(
            weights=state.weights,
            parts=tuple(frame.prior(mean, covariance) for mean, covariance in gaussians),
            people=people,
            kind=kind,
            log_likelihood=log_likelihood,
            base=base,
            shrinkage=shrinkage,
            features=features,
            provenance=dict(provenance or {}),
            state=state,
            moments=moments,
        )

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.base.dimension

    @property
    def types(self) -> int:
        """Number of its parts."""
        return len(self.parts)

    def start(self) -> Posterior:
        """The mixture of its parts (`MixturePosterior`)."""
        return MixturePosterior.of([part.start() for part in self.parts], self.weights)

    def with_words(self, words: Callable[[], VocabularyPrior]) -> Population:
        """It falls back on the prior of the vocabulary, if it has no fallback of its own."""
        return self if self.fallback is not None else self.with_fallback(words())

    def described(self, fit: PersonFit) -> Described:
        """By its people; ``belonging`` says how much the person is like them."""
        parts = fit.memberships.tolist()
        known = [f"{share:.0%} type {number}" for number, share in enumerate(parts, start=1)]
        if len(parts) == 1:
            known = [f"{parts[0]:.0%} like its people"]
        facts = {"prior": "population", "population_fingerprint": self.fingerprint, "people": self.people}
        facts |= {"memberships": parts, "weight_of_the_fallback": fit.fallback_weight}
        facts["fallback"] = "base" if self.fallback is None else "vocabulary"
        belonging = f"{', '.join(known)}, {fit.fallback_weight:.0%} unlike all of them ({self.kind})"
        return Described(f"population of {self.people} people", facts, belonging)

    @property
    def typical_scale(self) -> float:
        """Factor of the base prior's covariance under which a taste is as strong as in this population on average."""
        return self.state.mean_square() / self.dimension

    @functools.cached_property
    def gaussian(self) -> GaussianPrior:
        """The Gaussian with the mean and the covariance of theta in the population, over all parts."""
        if len(self.parts) == 1:
            return self.parts[0]
        whole = Posterior.of_mixture([part.start() for part in self.parts], self.weights)
        return GaussianPrior.from_precision(whole.precision, whole.mean)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all its arrays and numbers, the same after ``save`` and ``load``."""
        about = {"kind": self.kind, "people": self.people, "shrinkage": self.shrinkage}
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
        for name, array in sorted(self.tensors().items()):
            values = np.ascontiguousarray(array, dtype="<f8")
            digest.update(f"{name} {values.shape}".encode() + values.tobytes())
        return digest.hexdigest()

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name, as in its file."""
        return {
            "base/precision": self.base.precision,
            "base/mean": self.base.mean,
            "log_likelihood": np.array(self.log_likelihood),
            **{f"state/{name}": array for name, array in self.state.tensors().items()},
            **{f"moments/{name}": array for name, array in self.moments.tensors().items()},
        }

    @functools.cached_property
    def _sources(self) -> tuple[Source, ...]:
        return tuple(Source.of(part) for part in self.parts)

    @functools.cached_property
    def _base_source(self) -> Source:
        return Source.of(self.base)

    def fit(
        self,
        data: Data,
        *,
        model: AnswerFormat | None = None,
        fallback: VocabularyPrior | GaussianPrior | EllipsisType | None = ...,
        fallback_weight: float | None = None,
    ) -> PersonFit:
        """A person's taste, from their own answers and the population.

        Args:
            data: The person's answers, as for :func:`~edpbrl_gym.estimation.estimate`; none are fine.
            model: Response model, as for :func:`~edpbrl_gym.estimation.estimate`.
            fallback: Prior for a person unlike all others: that of a vocabulary, or a proper Gaussian at an unknown
                scale. By default ``self.fallback``, or else the base prior of the population, about its own mean and as
                strong as people's tastes are on average. None: without.
            fallback_weight: Its prior weight w, in (0, 1); None: 0.3 for the prior of a vocabulary (docs/priors.md),
                0.03 for a Gaussian, by which simulated people of a Gaussian population lose up to 0.004 nats an
                answer, by 0.1 0.010. With more weight people unlike the population lose less: all answers of a
                person together are at most log(1 / w) nats less likely than under the fallback alone.

        Raises:
            TypeError: Data of another type, or a fallback that is no prior.
            ValueError: Another number of features, an improper fallback, or a weight outside (0, 1).
        """
        terms = answer_terms(data, model)
        if terms.dimension != self.dimension:
            raise ValueError(
                f"Expected answers with {self.dimension} features (the population's), got {terms.dimension}; use the "
                f"same encoder{f' ({self.features})' if self.features else ''}"
            )
        chosen = self._fallback(fallback, fallback_weight)
        answered = Answered(*answer_differences(terms))
        return fit_person(terms, answered, self._sources, self.weights, chosen)

    def with_fallback(self, fallback: VocabularyPrior) -> Population:
        """The same population, whose ``fit`` falls back on the prior of a vocabulary for a person unlike all others.

        Raises:
            TypeError: No `VocabularyPrior`.
            ValueError: One of another dimension.
        """
        if check_prior(fallback, "fallback", VocabularyPrior).base.dimension != self.dimension:
            raise ValueError(
                f"Expected embeddings of the vocabulary with {self.dimension} features (the population's), got "
                f"{fallback.base.dimension}; use the same encoder{f' ({self.features})' if self.features else ''}"
            )
        return replace(self, fallback=fallback)

    def _fallback(
        self, given: VocabularyPrior | GaussianPrior | EllipsisType | None, weight: float | None
    ) -> Fallback | None:
        """The checked fallback of ``fit``."""
        chosen: Any = self.fallback if given is ... and self.fallback is not None else given
        default = GaussianPrior.fallback_weight if chosen in (None, ...) else getattr(chosen, "fallback_weight", 0.5)
        share = check_number(default if weight is None else weight, "fallback_weight", minimum=0.0, exclusive=True)
        if share >= 1.0:
            raise ValueError(f"Expected fallback_weight in (0, 1), got {weight}; fallback=None for none")
        if chosen is None:
            return None
        if chosen is ...:
            return Fallback(self._base_source, self.typical_scale, share)
        check_prior(chosen, "fallback", VocabularyPrior, GaussianPrior)
        base: GaussianPrior = chosen.base
        if base.dimension != self.dimension:
            raise ValueError(f"Expected a fallback of dimension {self.dimension}, got one of {base.dimension}")
        # that of ``self.fallback`` is computed once
        source = self._words_source if chosen is self.fallback else Source.of(base)
        typical = self._mean_square / float(np.trace(source.covariance))
        return Fallback(source, typical, share, None if base is chosen else chosen)

    @functools.cached_property
    def _words_source(self) -> Source:
        assert self.fallback is not None
        same = np.array_equal(self.fallback.base.precision, self.base.precision) and not self.base.mean.any()
        return self._base_source if same else Source.of(self.fallback.base)

    @functools.cached_property
    def _mean_square(self) -> float:
        """Mean of |theta|^2."""
        squares = [np.trace(one.covariance) + float(one.prior.mean @ one.prior.mean) for one in self._sources]
        return float(self.weights @ squares)

    def log_evidence(self, data: Data, *, model: AnswerFormat | None = None) -> float:
        """Log-likelihood of a person's answers, the average over tastes of the population, without a fallback.

        Raises:
            TypeError, ValueError: As for ``fit``.
        """
        parts = self.fit(data, model=model, fallback=None).parts
        return float(np.logaddexp.reduce(np.array([part.log_evidence for part in parts]) + np.log(self.weights)))

    @one_blas_thread()
    def updated(
        self,
        new_people: Sequence[Data],
        *,
        forgetting: float = 0.0,
        model: AnswerFormat | None = None,
        rounds: int = 50,
        seed: int = 0,
        minimum_people: int = 20,
    ) -> Population:
        """The population after more people have answered, without the earlier people's answers.

        Incremental EM (Neal & Hinton, 1998): the sums over earlier people stay as they were computed last, those over
        the new people are computed under the current parameters until these no longer change. For tastes that drift,
        ``forgetting`` gives earlier people less weight: with f at each update, people of k updates ago count (1 - f)^k.
        As estimates of earlier people are not corrected, the result differs a little from a fit to everyone at once.

        Args:
            new_people: One item per person, as for ``fit_population``; not the earlier people again.
            forgetting: f in [0, 1).
            model: Response model, as for ``fit_population``.
            rounds: Largest number of rounds.
            seed: Of the points.
            minimum_people: Fewest new people with answers, since the change tells about them.

        Raises:
            TypeError: As for ``fit_population``.
            ValueError: Too few people, other features, or an argument out of its range.
        """
        share = check_number(forgetting, "forgetting", minimum=0.0)
        if share >= 1.0:
            raise ValueError(
                f"Expected forgetting in [0, 1), got {forgetting}; fit a new population to forget everyone"
            )
        answered = answered_people(new_people, model, self.dimension)
        check_group(answered, minimum_people, "update a population")
        frame = Frame.of(self.base)
        inside = [frame.inside(person) for person in answered]
        settings = Settings(check_count(rounds, "rounds"), check_count(seed, "seed", minimum=0), False)
        state: Parts | Factors
        moments: Moments | FactorMoments
        before: Any = self.state
        old: Any = self.moments.times(1.0 - share)
        if before.loadings is not None:
            state, moments = update_factors(inside, before, old, settings)
        else:
            state, moments = update_parts(inside, before, old, Shrinkage(self.shrinkage), settings)
        updated = Population.of(
            state,
            moments,
            base=self.base,
            kind=self.kind,
            people=self.people + len(inside),
            log_likelihood=self.log_likelihood,
            shrinkage=self.shrinkage,
            features=self.features,
            provenance=self.provenance,
        )
        return replace(updated, fallback=self.fallback)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .safetensors file: parameters and sums over people, with their origin in the metadata.

        Raises:
            ValueError: Another ending.
            OSError: The file can't be written.
        """
        from edpbrl_gym.estimation.population.storage import save_population

        save_population(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Population:
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: A damaged file, or one of another kind or of a later version.
        """
        from edpbrl_gym.estimation.population.storage import load_population

        return load_population(path)
