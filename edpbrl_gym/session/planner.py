"""Who decides what is asked next: the planner protocol, and the planner that asks at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array, check_count, check_integers
from edpbrl_gym.choice import check_options
from edpbrl_gym.estimation import Estimate, GaussianPrior
from edpbrl_gym.estimation.evidence import choose_prior
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.terms import estimate_terms
from edpbrl_gym.responses import BestOf, Response, ResponseModel, Terms

__all__ = ["Planner", "RandomPlanner", "Restorable"]


@runtime_checkable
class Planner(Protocol):
    """Chooses the next token of each of the K options, and learns from the answers.

    A planner must be deterministic: with the same arguments and the same calls of ``ask`` and ``tell`` it asks the same
    questions, whether or not anyone looks at its estimate in between. A session depends on it to go back and to be
    resumed. It may have a ``name``, a ``model`` (format of the answers), ``reset()``, and what ``Restorable`` says.
    """

    def ask(self, prefixes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens (K,) of step h that extend the prompts ``prefixes``, (K, h)."""
        ...

    def tell(self, options: NDArray[np.float32], responses: Sequence[Response]) -> object:
        """Learn from n answered questions, options (n, K, d)."""
        ...

    @property
    def estimate(self) -> Estimate:
        """The taste from all answers told so far."""
        ...

    @property
    def posterior(self) -> Posterior:
        """Laplace's approximation of the posterior at the estimate, from the same answers."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """A planner that can be put back to where it was; others are led there again, question by question."""

    def state(self) -> dict[str, Any]:
        """All that has changed since the planner was made: arrays, and values that JSON can hold, by name.

        Later calls must not change what was returned.
        """
        ...

    def restore(self, state: dict[str, Any]) -> object:
        """Go on from a state of a planner with the same arguments."""
        ...


class RandomPlanner:
    """Asks uniformly drawn legal tokens, independently for each option; estimates with the prior's scale from the data.

    The baseline of every comparison. The estimate is computed when it is looked at, not at every answer.

    Args:
        sizes: Tokens of each step, (H,).
        prior: Base prior, or several by name: which, and its overall variance, are chosen by the evidence of the
            answers (``choose_prior``). The first is what holds before any answer.
        num_options: K.
        seed: Of the draws; question i uses stream i of it.
        model: Format of the answers.

    Raises:
        ValueError: No steps, K < 2, a negative seed, or an improper prior.
    """

    name = "random"

    def __init__(
        self,
        sizes: ArrayLike,
        *,
        prior: GaussianPrior | Mapping[str, GaussianPrior],
        num_options: int = 4,
        seed: int = 0,
        model: ResponseModel | None = None,
    ) -> None:
        self.sizes = check_integers(sizes, "sizes", shape=("H",), low=1)
        if not len(self.sizes):
            raise ValueError("Expected the sizes of at least one step, got none")
        self.priors = {"prior": prior} if isinstance(prior, GaussianPrior) else dict(prior)
        if not self.priors or not all(one.proper for one in self.priors.values()):
            raise ValueError("Expected at least one prior, all of them proper (positive definite precision)")
        self.dimension = next(iter(self.priors.values())).dimension
        self.num_options = check_count(num_options, "num_options (K)", minimum=2)
        self.seed = check_count(seed, "seed", minimum=0)
        self.model: ResponseModel = BestOf() if model is None else model
        self.reset()

    def reset(self) -> None:
        """Forget all questions and answers."""
        self._asked = 0
        self._options = np.empty((0, self.num_options, self.dimension), dtype=np.float32)
        self._responses: tuple[Response, ...] = ()
        self._fitted: tuple[Estimate, Posterior] | None = None

    def ask(self, prefixes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens (K,) of the step after the prompts ``prefixes``, (K, h).

        Raises:
            ValueError: Another number of prompts than K, or complete prompts.
        """
        step = check_integers(prefixes, "prefixes", shape=(self.num_options, "h")).shape[1]
        if step >= len(self.sizes):
            raise ValueError(f"Expected prompts of fewer than {len(self.sizes)} tokens to extend, got {step} tokens")
        rng = np.random.default_rng([self.seed, self._asked])
        self._asked += 1
        return rng.integers(self.sizes[step], size=self.num_options)

    def tell(self, options: NDArray[np.float32], responses: Sequence[Response]) -> None:
        """Keep n answered questions, options (n, K, d).

        Raises:
            ValueError: Features of another dimension than the prior's, or answers that the model doesn't know.
        """
        shape = ("n", self.num_options, self.dimension)
        rows = check_array(check_options(options, dtype=np.float32), "options", shape=shape, dtype=np.float32)
        self.model.terms(rows, list(responses))  # an answer of the wrong kind must not stay
        self._options = np.concatenate([self._options, rows])
        self._responses = (*self._responses, *responses)
        self._fitted = None

    @property
    def estimate(self) -> Estimate:
        """The estimate from all answers, with the prior's scale chosen by their evidence."""
        return self._fit()[0]

    @property
    def posterior(self) -> Posterior:
        """Its Laplace posterior; the prior before the first answer."""
        return self._fit()[1]

    def _fit(self) -> tuple[Estimate, Posterior]:
        if self._fitted is None:
            terms = self.model.terms(self._options, self._responses)
            found = choose_prior(terms, candidates=self.priors).fit.estimate if len(terms) else self._before(terms)
            self._fitted = found, Posterior(found.theta, found.precision)
        return self._fitted

    def _before(self, no_terms: Terms) -> Estimate:
        """The estimate before the first answer: the first prior's mode."""
        return estimate_terms(no_terms, prior=next(iter(self.priors.values())))

    def state(self) -> dict[str, Any]:
        """What has been asked and told."""
        return {
            "asked": self._asked,
            "options": self._options,
            "responses": [response.as_json() for response in self._responses],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state of a planner with the same arguments."""
        self._asked = int(state["asked"])
        self._options = np.asarray(state["options"], dtype=np.float32)
        self._responses = tuple(Response.from_json(response) for response in state["responses"])
        self._fitted = None
