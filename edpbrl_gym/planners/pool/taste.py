"""Posterior of the taste for the rules of the literature: an exact fit before every question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.estimation import Estimate, GaussianPrior, Posterior, estimate
from edpbrl_gym.likelihood import Response, ResponseModel

__all__ = ["ExactTaste"]


class ExactTaste:
    """The maximum a posteriori estimate of all answers under one prior, and its Laplace posterior.

    ``refresh`` updates the posterior that plans questions from all answers. Every fit starts from the prior's mean and
    so depends on the answers alone: reading the estimate in between changes nothing.

    Args:
        prior: A proper prior of theta.
        model: Format of the answers.
        num_options: K.

    Raises:
        ValueError: An improper prior.
    """

    def __init__(self, prior: GaussianPrior, model: ResponseModel, num_options: int) -> None:
        if not prior.proper:
            raise ValueError("Expected a proper prior (a positive definite precision), got a singular one")
        self.prior, self.model, self.num_options = prior, model, num_options
        self.dimension = prior.dimension
        self.reset()

    def reset(self) -> None:
        """Forget all answers."""
        self._features: list[Floats] = []
        self._responses: list[Response] = []
        self._used = 0  # answers in ``planned``
        self.planned = Posterior(self.prior.mean, self.prior.precision)
        self._fit: tuple[int, Estimate] | None = None

    def state(self) -> dict[str, Any]:
        """All that later questions depend on, as values that JSON can hold and arrays."""
        return {
            "options": self._options(),
            "responses": [response.as_json() for response in self._responses],
            "used": self._used,
            "mean": self.planned.mean.copy(),
            "precision": self.planned.precision.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.reset()
        self._features = list(np.asarray(state["options"], dtype=np.float64))
        self._responses = [Response.from_json(response) for response in state["responses"]]
        self._used = int(state["used"])
        self.planned = Posterior(np.array(state["mean"]), np.array(state["precision"]))

    def tell(self, features: Floats, responses: Sequence[Response]) -> None:
        """Store n answers about options (n, K, d).

        Raises:
            ValueError: Answers that the model does not know.
        """
        self.model.terms(features, list(responses))  # raises for an answer of the wrong kind, which is then not stored
        self._features += list(np.asarray(features, dtype=np.float64))
        self._responses += list(responses)

    def asked(self) -> None:
        """Note that a question is asked now; nothing depends on it."""

    def refresh(self) -> None:
        """Bring ``planned`` up to the last answer."""
        if len(self._responses) > self._used:
            self._used = len(self._responses)
            self.planned = self.posterior

    @property
    def waiting(self) -> int:
        """Number of answers not yet in ``planned``."""
        return len(self._responses) - self._used

    @property
    def estimate(self) -> Estimate:
        """The estimate from all answers; the prior's mean before the first.

        Raises:
            ValueError: It does not converge.
        """
        count = len(self._responses)
        if self._fit is None or self._fit[0] != count:
            self._fit = count, self._estimated(count)
        return self._fit[1]

    @property
    def posterior(self) -> Posterior:
        """Its Laplace approximation."""
        return Posterior.from_estimate(self.estimate)

    def _options(self) -> Floats:
        return np.array(self._features, dtype=np.float64).reshape(-1, self.num_options, self.dimension)

    @one_blas_thread()  # threads change the last bits, and the question must not depend on who reads the estimate
    def _estimated(self, count: int) -> Estimate:
        terms = self.model.terms(self._options()[:count], self._responses[:count])
        fit = estimate(terms, prior=self.prior)
        if not fit.converged:
            raise ValueError(f"Expected an estimate that converges, got {fit.reason}; use a stronger prior")
        return fit
