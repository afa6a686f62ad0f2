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
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population.answers import (
    Answered,
    People,
    answered_people,
    check_forgetting,
    check_group,
    inside,
    outside,
)
from edpbrl_gym.estimation.population.em import climb
from edpbrl_gym.estimation.population.factors import Factors
from edpbrl_gym.estimation.population.gaussian import Gaussian, Sums
from edpbrl_gym.estimation.population.person import Fallback, PersonFit, fit_person
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.taste_prior import Described, TastePrior, check_prior
from edpbrl_gym.likelihood import AnswerFormat

__all__ = ["Kind", "Population", "fingerprint_of"]

Kind = Literal["gaussian", "factors"]


@dataclass(frozen=True, eq=False)
class Population(TastePrior):
    """The tastes of a population, a Gaussian: random effects of a multinomial logit.

    Made by :func:`~edpbrl_gym.estimation.population.fit_population`.

    Privacy. Means, covariances and sums over all people are stored, no answer and no person's estimate. Still, what is
    typical of the group can be inferred about everyone known to be in it; a person who differs much from all others
    shows in the covariance, the more so the smaller the group; and the difference between the populations before and
    after an update says about the new people what a population fitted on them alone would say. Therefore groups below
    a least size are refused. This is no differential privacy.

    Attributes:
        gaussian: The distribution of theta.
        base: The prior that the covariance is shrunk towards, before scaling.
        people: Number of people with answers it was fitted on, also in updates.
        kind: "gaussian" or "factors".
        log_likelihood: Variational lower bound on the log-likelihood of all answers at the start of each round of the
            last fit, with the penalty that shrinks the parameters (0 without shrinkage); it never falls.
        shrinkage: Weight of the base's shape, in people.
        features: Name of the features, such as the encoder's; "" if not given.
        provenance: What else is known of its making, JSON values; kept in its file.
        fallback: What ``fit`` takes for a person unlike all others (``with_fallback``); None: the base prior. It is not
            part of the fingerprint, nor of the file.
        state: The Gaussian in the base prior's coordinates, of which updates go on.
        sums: Over people, for updates.
    """

    label, file = "population", "population.safetensors"

    gaussian: GaussianPrior
    base: GaussianPrior = field(repr=False)
    people: int
    kind: Kind = "gaussian"
    log_likelihood: tuple[float, ...] = ()
    shrinkage: float = 0.0
    features: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    fallback: VocabularyPrior | None = field(default=None, repr=False)
    state: Any = field(default=None, repr=False)
    sums: Sums = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, state: Gaussian | Factors, sums: Sums, *, base: GaussianPrior, **about: Any) -> Population:
        """The population with these parameters in the coordinates of the base prior."""
        return cls(outside(base, state.mean, state.covariance), base, state=state, sums=sums, **about)

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.base.dimension

    def start(self) -> Posterior:
        """Its Gaussian."""
        return self.gaussian.start()

    def with_words(self, words: Callable[[], VocabularyPrior]) -> Population:
        """It falls back on the prior of the vocabulary, if it has no fallback of its own."""
        return self if self.fallback is not None else self.with_fallback(words())

    def described(self, fit: PersonFit) -> Described:
        """By its people; ``belonging`` says how much the person is like them."""
        facts = {"prior": "population", "population_fingerprint": self.fingerprint, "people": self.people}
        facts["weight_of_the_fallback"] = fit.fallback_weight
        facts["fallback"] = "base" if self.fallback is None else "vocabulary"
        other = fit.fallback_weight
        belonging = f"{1.0 - other:.0%} like its people, {other:.0%} unlike all of them ({self.kind})"
        return Described(f"population of {self.people} people", facts, belonging)

    @functools.cached_property
    def typical_scale(self) -> float:
        """Factor of the base prior's covariance under which a taste is as strong as in this population on average."""
        away = self.gaussian.mean - self.base.mean
        square = float(np.vdot(self.base.precision, self._covariance)) + float(away @ self.base.times(away))
        return square / self.dimension

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all its arrays and numbers, the same after ``save`` and ``load``."""
        return fingerprint_of(self.kind, self.people, self.shrinkage, self.tensors())

    def tensors(self) -> dict[str, Floats]:
        """Its arrays by name, as in its file."""
        return {
            "base/precision": self.base.precision,
            "base/mean": self.base.mean,
            "log_likelihood": np.array(self.log_likelihood),
            **{f"state/{name}": array for name, array in self.state.tensors().items()},
            **{f"moments/{name}": array for name, array in self.sums.items()},
        }

    @functools.cached_property
    def _covariance(self) -> Floats:
        return self.gaussian.covariance

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
        return fit_person(terms, Answered.of(*answer_differences(terms)), self.gaussian, self._covariance, chosen)

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
            return Fallback(self.base, self._own_fallback, self.typical_scale, share)
        check_prior(chosen, "fallback", VocabularyPrior, GaussianPrior)
        base: GaussianPrior = chosen.base
        if base.dimension != self.dimension:
            raise ValueError(f"Expected a fallback of dimension {self.dimension}, got one of {base.dimension}")
        covariance = self._own_fallback if chosen is self.fallback else base.covariance
        mean = self.gaussian.mean
        typical = float(np.trace(self._covariance) + mean @ mean) / float(np.trace(covariance))
        return Fallback(base, covariance, typical, share, None if base is chosen else chosen)

    @functools.cached_property
    def _own_fallback(self) -> Floats:
        """The covariance of the fallback that ``fit`` takes unless given."""
        return (self.base if self.fallback is None else self.fallback.base).covariance

    def log_evidence(self, data: Data, *, model: AnswerFormat | None = None) -> float:
        """Log-likelihood of a person's answers, averaged over tastes of the population, without a fallback."""
        return self.fit(data, model=model, fallback=None).parts[0].log_evidence

    @one_blas_thread()
    def updated(
        self,
        new_people: Sequence[Data],
        *,
        forgetting: float = 0.0,
        model: AnswerFormat | None = None,
        rounds: int = 50,
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
            minimum_people: Fewest new people with answers, since the change tells about them.

        Raises:
            TypeError: As for ``fit_population``.
            ValueError: Too few people, other features, or an argument out of its range.
        """
        share = check_forgetting(forgetting)
        answered = answered_people(new_people, model, self.dimension)
        check_group(answered, minimum_people, "update a population")
        new = People([inside(self.base, person) for person in answered])
        earlier = {name: (1.0 - share) * values for name, values in self.sums.items()}
        state, sums, _, _ = climb(new, self.state, check_count(rounds, "rounds"), earlier)
        gaussian = outside(self.base, state.mean, state.covariance)
        return replace(self, gaussian=gaussian, state=state, sums=sums, people=self.people + len(new))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .safetensors file: parameters and sums over people, with their origin in the metadata."""
        from edpbrl_gym.estimation.population.storage import save_population

        save_population(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Population:
        """Read what :meth:`save` wrote; ValueError for a damaged file, or one of another kind or a later version."""
        from edpbrl_gym.estimation.population.storage import load_population

        return load_population(path)


def fingerprint_of(kind: str, people: int, shrinkage: float, tensors: Mapping[str, Floats]) -> str:
    """`Population.fingerprint` of what is in its file."""
    about = {"kind": kind, "people": people, "shrinkage": shrinkage}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, array in sorted(tensors.items()):
        values = np.ascontiguousarray(array, dtype="<f8")
        digest.update(f"{name} {values.shape}".encode() + values.tobytes())
    return digest.hexdigest()
