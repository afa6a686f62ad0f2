"""Posterior of the taste, updated answer by answer without making the person wait.

A full fit chooses scales and weights of several priors from all answers, which takes longer the more answers there are.
It depends on the answers alone, not on earlier fits, so that reading the estimate changes nothing. Between two full
fits the posterior is the prior of the next few answers (assumed density filtering: Opper & Winther, 1999), one small
estimate (under a population one for each part of the mixture). A full fit is due when the answers have grown by more
than a tenth; it then uses those that were there when the last question was asked, so that it can run while the person
thinks (``think``), and a small step adds the last answer. Whether ``think`` was called changes when the work is done,
not its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.estimation import Estimate, GaussianPrior, Posterior, estimate
from edpbrl_gym.estimation.mixture import MixturePosterior, after_answers
from edpbrl_gym.estimation.neighbourhood import TasteFit, VocabularyPrior
from edpbrl_gym.estimation.population import PersonFit, Population
from edpbrl_gym.likelihood import Response, ResponseModel, Terms

__all__ = ["TastePrior", "TasteTracker", "prior_start"]

TastePrior: TypeAlias = VocabularyPrior | GaussianPrior | Population
_Fit: TypeAlias = TasteFit | PersonFit | Estimate

_SMALL_PART = 10  # the small step adds at most one new answer for every ten known ones


class TasteTracker:
    """Answers, the estimate from all of them, and the posterior that plans questions.

    Args:
        prior: Prior of the vocabulary, a Gaussian prior, whose scale is kept, or a population.
        model: Format of the answers.
        num_options: K.
        memory: Estimate from so many of the latest answers; None: from all.

    Attributes:
        start: What the prior says before the first answer.
        planned: The posterior to plan questions with.

    Raises:
        ValueError: An improper prior.
    """

    def __init__(
        self,
        prior: TastePrior,
        model: ResponseModel,
        num_options: int,
        memory: int | None = None,
    ) -> None:
        self.start = prior_start(prior)
        self.prior, self.model, self.num_options, self.memory = prior, model, num_options, memory
        self.dimension = self.start.dimension
        self.reset()

    def reset(self) -> None:
        """Forget all answers."""
        self._answers: list[tuple[Floats, Response]] = []
        self._fit: _Fit | None = None  # the last full one, of the first ``_fitted`` answers
        self._fitted = 0
        self._seen = 0  # answers when the last question was asked
        self._used = 0  # answers in ``planned``
        self.planned = self.start
        self._fits: dict[int, _Fit] = {}  # the last full fits, by the number of answers

    def state(self) -> dict[str, Any]:
        """All that later questions depend on; later calls don't change it."""
        names = ("_fit", "_fitted", "_seen", "_used", "planned")
        return {"answers": tuple(self._answers), **{name: getattr(self, name) for name in names}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.reset()
        self._answers = list(state["answers"])
        for name in ("_fit", "_fitted", "_seen", "_used", "planned"):
            setattr(self, name, state[name])

    @property
    def waiting(self) -> int:
        """Number of answers not yet in ``planned``."""
        return len(self._answers) - self._used

    def tell(self, features: Floats, responses: Sequence[Response]) -> None:
        """Store n answers about options (n, K, d).

        Raises:
            ValueError: Answers that the model does not know.
        """
        self.model.terms(features, responses)  # raises for an answer of the wrong kind, which is then not stored
        self._answers += zip(features, responses, strict=True)

    def asked(self) -> None:
        """Note that a question is asked now."""
        self._seen = len(self._answers)

    def refresh(self) -> None:
        """Bring ``planned`` up to the last answer."""
        count = len(self._answers)
        if self._due(count):
            known = self._seen if self._may_follow(count - self._seen, self._seen) else count
            self._fit, self._fitted = self._full_fit(known), known
        posterior = self.start
        if self._fit is not None:
            posterior = Posterior.from_estimate(self._fit) if isinstance(self._fit, Estimate) else self._fit.planned
        if count > self._fitted:
            posterior = after_answers(posterior, self._terms(self._fitted, count))
        self.planned, self._used = posterior, count

    def think(self) -> None:
        """Make the full fit that ``refresh`` will need after the next answer, if it will need one."""
        known = self._seen
        if known == len(self._answers) and self._due(known + 1):
            self._full_fit(known)

    def current(self) -> _Fit:
        """The full fit of all answers."""
        return self._full_fit(len(self._answers))

    @property
    def posterior(self) -> Posterior:
        """The posterior of the full fit of all answers."""
        fit = self.current()
        return Posterior.from_estimate(fit) if isinstance(fit, Estimate) else fit.posterior

    @property
    def estimate(self) -> Estimate:
        """The estimate of the full fit of all answers."""
        fit = self.current()
        return fit if isinstance(fit, Estimate) else fit.estimate

    def _due(self, count: int) -> bool:
        return count > self._fitted and not self._is_small(count - self._fitted, self._fitted)

    def _may_follow(self, new: int, known: int) -> bool:
        """Whether a full fit may leave the newest answers to the small step."""
        return new <= 1 or self._is_small(new, known)

    def _is_small(self, new: int, known: int) -> bool:
        return _SMALL_PART * new <= (known if self.memory is None else min(known, self.memory))

    def _terms(self, first: int, end: int) -> Terms:
        answers = self._answers[first:end]
        features = np.array([options for options, _ in answers]).reshape(-1, self.num_options, self.dimension)
        return self.model.terms(features, [response for _, response in answers])

    def _full_fit(self, count: int) -> _Fit:
        """The full fit of the first ``count`` answers (the latest of them, with ``memory``)."""
        if self._fit is not None and self._fitted == count:
            return self._fit
        if count not in self._fits:
            fit = self._estimated(count)
            last = list(self._fits.items())[-1:]  # the fit of ``think`` survives a read of the estimate
            self._fits = dict([*last, (count, fit)])
        return self._fits[count]

    @one_blas_thread()  # threads change the last bits, and every reader must get the same estimate
    def _estimated(self, count: int) -> _Fit:
        terms = self._terms(0 if self.memory is None else max(0, count - self.memory), count)
        if isinstance(self.prior, GaussianPrior):
            return estimate(terms, prior=self.prior)
        return self.prior.fit(terms)


def prior_start(prior: TastePrior) -> Posterior:
    """What a prior says before the first answer: of a population the mixture, of a vocabulary that of all embeddings.

    Raises:
        ValueError: An improper prior.
    """
    if isinstance(prior, Population):
        return MixturePosterior.of([Posterior(part.mean, part.precision) for part in prior.parts], prior.weights)
    start = prior.base if isinstance(prior, VocabularyPrior) else prior
    if not start.proper:
        raise ValueError("Expected a proper prior (a positive definite precision), got a singular one")
    return Posterior(start.mean, start.precision)
