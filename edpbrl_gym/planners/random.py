"""The planner that asks at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array, check_count, check_integers
from edpbrl_gym.estimation import Estimate, Posterior
from edpbrl_gym.estimation.taste_prior import Fit, TastePrior
from edpbrl_gym.likelihood import AnswerFormat, BestOf, Response
from edpbrl_gym.likelihood.choice import check_options
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.planners.tracking import check_prefixes, endings

__all__ = ["RandomPlanner"]


class RandomPlanner(Planner):
    """Asks uniformly drawn legal tokens, independently for each option; estimates with the prior's scale from the data.

    The baseline of every comparison. The estimate is computed when it is read, not at every answer.

    Args:
        sizes: Tokens of each step, (H,).
        prior: Prior of the vocabulary or a Gaussian one, whose overall variance is chosen by the evidence of the
            answers; or a population.
        num_options: K.
        seed: Seed of the draws; question i uses its stream i.
        model: Format of the answers.
        distinct: Draw K different options for every question, as people should see: no prompt twice, and K different
            tokens wherever the step has them. Prompts that are not yet complete are equal where the steps so far have
            fewer than K combinations. False, for the baseline of the benchmarks, draws independently and may show an
            option twice.

    Raises:
        ValueError: No steps, too few options for the format, a negative seed, an improper prior, or distinct options of
            a vocabulary with fewer than K prompts.
    """

    name = "random"
    adaptive = False

    def __init__(
        self,
        sizes: ArrayLike,
        *,
        prior: TastePrior,
        num_options: int = 4,
        seed: int = 0,
        model: AnswerFormat | None = None,
        distinct: bool = False,
    ) -> None:
        self.sizes = check_integers(sizes, "sizes", shape=("H",), low=1)
        if not len(self.sizes):
            raise ValueError("Expected the sizes of at least one step, got none")
        self.prior = prior
        self.dimension = prior.started.dimension
        self.model: AnswerFormat = BestOf() if model is None else model
        self.num_options = check_count(num_options, "num_options (K)", minimum=self.model.least)
        self.seed = check_count(seed, "seed", minimum=0)
        self.distinct = distinct
        if distinct and self.sizes[0] * endings(self.sizes, 0) < self.num_options:
            raise ValueError(
                f"Expected at least K = {self.num_options} different prompts, so that all options of a question can "
                f"differ, got {self.sizes.tolist()} tokens for the steps; ask with fewer options or add tokens"
            )
        self.reset()

    def reset(self) -> None:
        self.asked = 0
        self._options = np.empty((0, self.num_options, self.dimension), dtype=np.float32)
        self._responses: tuple[Response, ...] = ()
        self._fitted: Fit | None = None

    def ask(self, prefixes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens (K,) of the step after the prompts ``prefixes``, (K, h).

        Raises:
            ValueError: Another number of prompts than K, complete prompts, or with ``distinct`` more equal prompts than
                can end differently.
        """
        prompts = check_prefixes(prefixes, self.sizes, self.num_options)
        step = prompts.shape[1]
        rng = np.random.default_rng([self.seed, self.asked])
        self.asked += 1
        if self.distinct and self.sizes[step] >= self.num_options:
            return rng.choice(self.sizes[step], size=self.num_options, replace=False)
        if self.distinct:
            return self._distinct_tokens(rng, prompts, int(self.sizes[step]))
        return rng.integers(self.sizes[step], size=self.num_options)

    def follow(self, prefixes: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        self.asked += 1

    def _distinct_tokens(self, rng: np.random.Generator, prompts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Tokens (K,) of a step with fewer than K, as different as they can be among prompts that are equal so far."""
        tokens = np.empty(self.num_options, dtype=np.int64)
        _, group = np.unique(prompts, axis=0, return_inverse=True)
        for number in range(group.max() + 1):
            lanes = np.flatnonzero(group.ravel() == number)
            if lanes.size > size * endings(self.sizes, prompts.shape[1]):
                raise ValueError(
                    f"Expected at most {size * endings(self.sizes, prompts.shape[1])} equal prompts, as many as can "
                    f"still end differently, got {lanes.size}; ask with fewer options or add tokens"
                )
            rounds = [rng.permutation(size) for _ in range(-(-lanes.size // size))]
            tokens[lanes] = np.concatenate(rounds)[: lanes.size]
        return tokens

    def tell(self, options: NDArray[np.float32], responses: Sequence[Response]) -> None:
        """Store n answered questions, options (n, K, d).

        Raises:
            ValueError: Features of another dimension than the prior's, or answers that the model doesn't know.
        """
        shape = ("n", self.num_options, self.dimension)
        given = self.prior.feature_map(check_options(options, dtype=np.float32, least=self.model.least))
        rows = check_array(given, "options", shape=shape, dtype=np.float32)
        self.model.terms(rows, list(responses))  # raises for an answer of the wrong kind, which is then not stored
        self._options = np.concatenate([self._options, rows])
        self._responses = (*self._responses, *responses)
        self._fitted = None

    @property
    def estimate(self) -> Estimate:
        """The estimate from all answers, with the prior's scale chosen by their evidence."""
        return self._fit().estimate

    @property
    def posterior(self) -> Posterior:
        """Its Gaussian posterior; the prior before the first answer."""
        return self._fit().posterior

    def _fit(self) -> Fit:
        if self._fitted is None:
            self._fitted = self.prior.with_scale().fit(self.model.terms(self._options, self._responses))
        return self._fitted

    def state(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "options": self._options,
            "responses": [response.as_json() for response in self._responses],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.asked = int(state["asked"])
        self._options = np.asarray(state["options"], dtype=np.float32)
        self._responses = tuple(Response.from_json(response) for response in state["responses"])
        self._fitted = None
