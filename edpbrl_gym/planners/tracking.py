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

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.estimation import Estimate, Posterior
from edpbrl_gym.estimation.map_estimate import answer_differences, answer_terms
from edpbrl_gym.estimation.taste_prior import Fit, TastePrior
from edpbrl_gym.likelihood import AnswerFormat, Response, Terms
from edpbrl_gym.likelihood.choice import check_options
from edpbrl_gym.planners.base import Planner

__all__ = [
    "ExactTaste",
    "TasteTracker",
    "TrackedPlanner",
    "check_prefixes",
    "endings",
]

_Kept = TypeVar("_Kept")

_SMALL_PART = 10  # the small step adds at most one new answer for every ten known ones


class TrackedPlanner(Planner):
    """A planner that stores its answers in a tracker, ``_taste``, which a subclass creates.

    Attributes:
        dimension: d of the features.
    """

    dimension: int
    prior: TastePrior
    _taste: TasteTracker

    def tell(self, options: ArrayLike, responses: Sequence[Response | int]) -> None:
        """Learn from answered questions.

        Args:
            options: Features of the options, (n, K, d), which are copied, since callers reuse their arrays.
            responses: The answers, (n,); an integer is the best option.

        Raises:
            ValueError: Shapes that don't fit, NaN, or answers that the model does not know.
        """
        shape = ("n", self.num_options, self.dimension)
        given = self.prior.feature_map(check_options(options, least=self._taste.model.least))
        features = np.array(check_array(given, "options", shape=shape))
        answers = [answer if isinstance(answer, Response) else Response.best(answer) for answer in responses]
        self._taste.tell(features, answers)

    @property
    def estimate(self) -> Estimate:
        """The taste estimated from the answers so far (the latest, where the tracker has a memory)."""
        return self._taste.estimate

    @property
    def posterior(self) -> Posterior:
        """The Gaussian posterior from the same answers."""
        return self._taste.posterior


class TasteTracker:
    """Answers, the estimate from all of them, and the posterior that plans questions.

    Args:
        prior: The prior; the scale of a Gaussian one is kept.
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
        model: AnswerFormat,
        num_options: int,
        memory: int | None = None,
    ) -> None:
        self.start = prior.started
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
        self._fits: dict[int, Fit] = {}  # the last ones, by the number of answers
        self._bases: dict[int, Posterior] = {}  # the last posterior of a fit to plan with, likewise
        self._told: dict[int, Terms] = {}  # and answers with the format's own parameters put in

    def state(self) -> dict[str, Any]:
        """All that later questions depend on, without what can be computed from it; later calls don't change it."""
        names = ("_fitted", "_seen", "_used")
        return {"answers": tuple(self._answers), **{name: getattr(self, name) for name in names}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        before, fits, bases, told = self._answers, self._fits, self._bases, self._told
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
        self._told = {count: terms for count, terms in told.items() if count <= same}

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
                posterior = posterior.after(*answer_differences(self._terms(known, self._used, self.format)))
            self._planned = posterior
        return self._planned

    def think(self) -> None:
        """Make the fit that ``planned`` will need after the next answer."""
        known: int | None = self._seen
        if known != len(self._answers) or not self._due(known + 1):
            known = self._fitted
        base = self.start if known is None else self._base(known)
        base.think()

    def current(self) -> Fit:
        """The fit of all answers."""
        return self._full_fit(len(self._answers))

    @property
    def posterior(self) -> Posterior:
        """The posterior of the fit of all answers."""
        return self.current().posterior

    @property
    def estimate(self) -> Estimate:
        """The estimate of the fit of all answers."""
        return self.current().estimate

    def _due(self, count: int) -> bool:
        known = self._fitted or 0
        return count > known and not self._is_small(count - known, known)

    def _may_follow(self, new: int, known: int) -> bool:
        """Whether a fit may leave the newest answers to the small step."""
        return new <= 1 or self._is_small(new, known)

    def _is_small(self, new: int, known: int) -> bool:
        return _SMALL_PART * new <= (known if self.memory is None else min(known, self.memory))

    @property
    def format(self) -> AnswerFormat:
        """The format, with its own parameters (thresholds of ratings) as in the fit below ``planned``."""
        return self.model.at(self._latest(self._fitted or 0).known)

    def _terms(self, first: int, end: int, model: AnswerFormat | None = None) -> Terms:
        answers = [response for _, response in self._answers[first:end]]
        return (model or self.model).terms(self._options(first, end), answers)

    def _options(self, first: int, end: int) -> Floats:
        rows = np.array([options for options, _ in self._answers[first:end]], dtype=np.float64)
        return rows.reshape(-1, self.num_options, self.dimension)

    def _base(self, count: int) -> Posterior:
        """The posterior to plan with by the fit of the first ``count`` answers."""
        base = self._bases.get(count)
        if base is None:
            base = self._computed_base(count)
            self._bases = {count: base}  # megabytes: only an undo needs the one before, and makes it again
        return base

    @one_blas_thread()
    def _computed_base(self, count: int) -> Posterior:
        quick = None if count in self._fits else self.prior.fit_planned(self._latest(count))
        return self._full_fit(count).planned if quick is None else quick

    def _full_fit(self, count: int) -> Fit:
        """The fit of the first ``count`` answers (the latest of them, with ``memory``)."""
        if count not in self._fits:
            self._fits = _with_newest(self._fits, count, self._estimated(count))
        return self._fits[count]

    def _latest(self, count: int) -> Terms:
        """The first ``count`` answers (the latest of them), with the format's own parameters put in."""
        if count not in self._told:
            first = 0 if self.memory is None else max(0, count - self.memory)
            self._told = _with_newest(self._told, count, answer_terms(self._terms(first, count)))
        return self._told[count]

    @one_blas_thread()  # threads change the last bits, and every reader must get the same estimate
    def _estimated(self, count: int) -> Fit:
        return self.prior.fit(self._latest(count))


class ExactTaste(TasteTracker):
    """All answers in every fit, of a prior that is cheap to fit: ``TastePrior.is_fixed``."""

    def state(self) -> dict[str, Any]:
        """All that later questions depend on, as values that JSON can hold and arrays."""
        planned = self.planned
        return {
            "options": self._options(0, len(self._answers)),
            "responses": [response.as_json() for _, response in self._answers],
            "used": self._used,
            "mean": planned.mean.copy(),
            "precision": planned.precision.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.reset()
        responses = [Response.from_json(response) for response in state["responses"]]
        self._answers = list(zip(np.asarray(state["options"], dtype=np.float64), responses, strict=True))
        self._used = int(state["used"])
        self._planned = Posterior(np.array(state["mean"]), np.array(state["precision"]))

    def refresh(self) -> None:
        """Bring ``planned`` up to the last answer."""
        if self.waiting:
            self._used = len(self._answers)
            self._planned = self.posterior

    @property
    def planned(self) -> Posterior:
        """The posterior to plan questions with."""
        return self.start if self._planned is None else self._planned

    @one_blas_thread()
    def _estimated(self, count: int) -> Fit:
        fit = self.prior.fit(self._terms(0, count))
        if not fit.estimate.converged:
            raise ValueError(f"Expected an estimate that converges, got {fit.estimate.reason}; use a stronger prior")
        return fit


def _with_newest(known: dict[int, _Kept], count: int, new: _Kept) -> dict[int, _Kept]:
    """The last one and a new one: what ``think`` made survives a read of the estimate."""
    return dict([*list(known.items())[-1:], (count, new)])


def check_prefixes(
    prefixes: ArrayLike, sizes: Sequence[int] | NDArray[np.int64], num_options: int
) -> NDArray[np.int64]:
    """Tokens of the lanes so far, (K, h), h < H, where the steps have ``sizes`` tokens, (H,).

    Raises:
        TypeError: Tokens that are no integers.
        ValueError: Another number of lanes, tokens that don't exist, or complete prompts.
    """
    before = check_integers(prefixes, "prefixes", shape=(num_options, "h"), low=0)
    if before.shape[1] >= len(sizes):
        raise ValueError(
            f"Expected prompts of fewer than {len(sizes)} tokens, got {before.shape[1]}; they are complete"
        )
    for step, size in enumerate(sizes[: before.shape[1]]):
        check_integers(before[:, step], f"prefixes[:, {step}]", shape=(num_options,), high=size - 1)
    return before


def endings(sizes: Sequence[int] | NDArray[np.int64], step: int) -> int:
    """In how many ways a prompt can go on after a step, given the tokens of each step, (H,)."""
    return math.prod(int(size) for size in sizes[step + 1 :])
