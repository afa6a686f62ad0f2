"""Posterior of the taste, updated answer by answer without making the person wait.

A fit chooses scales and weights of several priors from all answers, which takes longer the more answers there are. It
depends on the answers alone, not on earlier fits, so that reading the estimate changes nothing. Between two fits the
posterior is the prior of the next few answers (assumed density filtering: Opper & Winther, 1999), one small estimate
(under a population one for each part of the mixture). A fit is due when the answers have grown by more than a tenth; it
then uses those that were there when the last question was asked, so that it can run while the person thinks
(``think``), and a small step adds the last answer.

Which answers a fit uses is decided by counting; the fit itself is made when its result is read. So whether ``think``
was called, or whether questions are planned or taken over from a record (``Planner.follow``), changes when the work is
done, not its result, and a record of n answers costs one fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

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
_Kept = TypeVar("_Kept")

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
        self._fitted: int | None = None  # number of answers of the fit below ``planned``; None: the prior's start
        self._seen = 0  # answers when the last question was asked
        self._used = 0  # answers in ``planned``
        self._planned: Posterior | None = None
        self._fits: dict[int, _Fit] = {}  # the last ones, by the number of answers
        self._bases: dict[int, Posterior] = {}  # the last posteriors of fits to plan with, likewise

    def state(self) -> dict[str, Any]:
        """All that later questions depend on, without what can be computed from it; later calls don't change it."""
        names = ("_fitted", "_seen", "_used")
        return {"answers": tuple(self._answers), **{name: getattr(self, name) for name in names}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        before, fits, bases = self._answers, self._fits, self._bases
        self.reset()
        self._answers = list(state["answers"])
        for name in ("_fitted", "_seen", "_used"):
            setattr(self, name, state[name])
        pairs = enumerate(zip(before, self._answers, strict=False))
        same = next(
            (number for number, (one, other) in pairs if one is not other), min(len(before), len(self._answers))
        )
        self._fits = {count: fit for count, fit in fits.items() if count <= same}
        self._bases = {count: base for count, base in bases.items() if count <= same}

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
            self._fitted = self._seen if self._may_follow(count - self._seen, self._seen) else count
        self._planned, self._used = None, count

    @property
    def planned(self) -> Posterior:
        """The posterior to plan questions with."""
        if self._planned is None:
            posterior = self.start if self._fitted is None else self._base(self._fitted)
            known = self._fitted or 0
            if self._used > known:
                posterior = after_answers(posterior, self._terms(known, self._used))
            self._planned = posterior
        return self._planned

    def think(self) -> None:
        """Make the fit that ``planned`` will need after the next answer."""
        known: int | None = self._seen
        if known != len(self._answers) or not self._due(known + 1):
            known = self._fitted
        base = self.start if known is None else self._base(known)
        for part in base.parts if isinstance(base, MixturePosterior) else (base,):
            _ = part.inverse_factor  # from which the small step begins

    def current(self) -> _Fit:
        """The fit of all answers."""
        return self._full_fit(len(self._answers))

    @property
    def posterior(self) -> Posterior:
        """The posterior of the fit of all answers."""
        fit = self.current()
        return Posterior.from_estimate(fit) if isinstance(fit, Estimate) else fit.posterior

    @property
    def estimate(self) -> Estimate:
        """The estimate of the fit of all answers."""
        fit = self.current()
        return fit if isinstance(fit, Estimate) else fit.estimate

    def _due(self, count: int) -> bool:
        known = self._fitted or 0
        return count > known and not self._is_small(count - known, known)

    def _may_follow(self, new: int, known: int) -> bool:
        """Whether a fit may leave the newest answers to the small step."""
        return new <= 1 or self._is_small(new, known)

    def _is_small(self, new: int, known: int) -> bool:
        return _SMALL_PART * new <= (known if self.memory is None else min(known, self.memory))

    def _terms(self, first: int, end: int) -> Terms:
        answers = self._answers[first:end]
        features = np.array([options for options, _ in answers]).reshape(-1, self.num_options, self.dimension)
        return self.model.terms(features, [response for _, response in answers])

    def _base(self, count: int) -> Posterior:
        """The posterior to plan with by the fit of the first ``count`` answers."""
        if count not in self._bases:
            self._bases = _with_newest(self._bases, count, self._computed_base(count))
        return self._bases[count]

    @one_blas_thread()
    def _computed_base(self, count: int) -> Posterior:
        if count not in self._fits and isinstance(self.prior, VocabularyPrior):
            return self.prior.fit_planned(self._latest(count))  # a part of the fit
        fit = self._full_fit(count)
        return Posterior.from_estimate(fit) if isinstance(fit, Estimate) else fit.planned

    def _full_fit(self, count: int) -> _Fit:
        """The fit of the first ``count`` answers (the latest of them, with ``memory``)."""
        if count not in self._fits:
            self._fits = _with_newest(self._fits, count, self._estimated(count))
        return self._fits[count]

    def _latest(self, count: int) -> Terms:
        return self._terms(0 if self.memory is None else max(0, count - self.memory), count)

    @one_blas_thread()  # threads change the last bits, and every reader must get the same estimate
    def _estimated(self, count: int) -> _Fit:
        terms = self._latest(count)
        if isinstance(self.prior, GaussianPrior):
            return estimate(terms, prior=self.prior)
        return self.prior.fit(terms)


def _with_newest(known: dict[int, _Kept], count: int, new: _Kept) -> dict[int, _Kept]:
    """The last one and a new one: what ``think`` made survives a read of the estimate."""
    return dict([*list(known.items())[-1:], (count, new)])


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
