"""BoTorch's preference model and acquisition functions as a planner."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.estimation import Estimate, GaussianPrior, Posterior
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.planners.external.pool import (
    answered_pairs,
    check_items,
    check_pair,
    check_prefixes,
    load,
    private_randomness,
)
from edpbrl_gym.planners.pool.base import search_questions

__all__ = ["PairwiseGPPlanner"]


_ALL_PAIRS = 200  # items of which every pair is scored
_BLOCK = 1024  # pairs scored at once: BALD draws 1,024 samples for each
_STARTS = 4  # starts of the search in larger pools
_NEAR = 1e-3  # posterior standard deviations from the maximum below which an estimate counts as converged
_PURPOSE = "BoTorch's preference model"
_FIT, _SCORE = 0, 1  # what the global generators are seeded for


class PairwiseGPPlanner(Planner):
    """BoTorch's `PairwiseGP` with a linear kernel, and the pair of the pool with the largest acquisition value.

    The model is that of the package's own estimates: utilities theta . x with the prior theta ~ N(0, prior_variance I),
    logistic choices of pairs, and Laplace's approximation. No input is rescaled and no hyperparameter fitted, so that
    nothing but the acquisition function and the code differs.

    Acquisition functions: "bald" is `PairwiseBayesianActiveLearningByDisagreement` (N. Houlsby et al., "Bayesian Active
    Learning for Classification and Preference Learning", 2011), 1,024 samples for each pair; it takes the choices as
    probit whatever the model's likelihood. "eubo" is `AnalyticExpectedUtilityOfBestOption` (Z. J. Lin et al.,
    "Preference Exploration for Efficient Bayesian Optimization with Multiple Outcomes", 2022). All pairs are scored
    if the pool has at most 200 items; in larger ones the two items are replaced in turn by the best of the whole pool.

    With a linear kernel the posterior of the utilities of any items follows from that of the d unit vectors, which is
    the one of theta. It is taken from BoTorch once for each answer and handed to the acquisition functions: they give
    the same values as with the model itself, which would solve a system of all items shown for every pair again.

    The same arguments and the same calls give the same questions. The global generators of numpy and torch, which
    BoTorch draws from, are left as they were.

    Args:
        items: The pool, (n, d); of equal items only the first is asked about.
        acquisition: "bald" or "eubo".
        prior_variance: Prior variance of each coordinate of theta, > 0: 1 / lambda.
        num_options: K, 2.
        seed: Seed of BoTorch's draws.

    Attributes:
        name: "botorch-bald" or "botorch-eubo".
        asked: Number of questions asked.

    Raises:
        ModuleNotFoundError: BoTorch is not installed.
        ValueError: Arguments out of range.
    """

    needs = ("botorch",)

    def __init__(
        self,
        items: ArrayLike,
        *,
        acquisition: Literal["bald", "eubo"],
        prior_variance: float = 1.0,
        num_options: int = 2,
        seed: int = 0,
    ) -> None:
        self.items, self._distinct = check_items(items)
        self.acquisition = check_choice_of(acquisition, "acquisition", ("bald", "eubo"))
        self.prior_variance = check_number(prior_variance, "prior_variance", minimum=0.0, exclusive=True)
        check_pair(num_options)
        self.num_options = num_options
        self.seed = check_count(seed, "seed", minimum=0)
        self.name = f"botorch-{self.acquisition}"
        load("botorch", _PURPOSE)
        self.reset()

    @classmethod
    def default_prior(cls, token_features: NDArray[np.floating]) -> GaussianPrior:
        """N(0, I)."""
        return GaussianPrior.isotropic(token_features.shape[1], 1.0)

    def reset(self) -> None:
        """Forget all questions and answers."""
        self.asked = 0
        self._pairs: Floats = np.empty((0, 2, self.items.shape[1]))  # the chosen item first
        self._fitted: tuple[Floats, Floats] | None = None

    def ask(self, prefixes: ArrayLike) -> Indices:
        """The next pair of items, (2,), for prompts without tokens, (2, 0).

        Raises:
            ValueError: Other prefixes.
        """
        check_prefixes(prefixes)
        mean, covariance = self._posterior()
        rows = self._distinct
        with private_randomness(self.seed, _SCORE, self.asked):
            pair, _ = search_questions(
                self._values(mean, covariance),
                len(rows),
                2,
                rng=np.random.default_rng([self.seed, self.asked]),
                starts=_STARTS,
                exhaustive=math.comb(_ALL_PAIRS, 2),
            )
        self.asked += 1
        return np.asarray(rows[pair], dtype=np.int64)

    def tell(self, options: ArrayLike, responses: Sequence[Response | int]) -> None:
        """Learn from n answered pairs.

        Args:
            options: Features of the compared items, (n, 2, d).
            responses: The answers, (n,); an integer is the better option.

        Raises:
            ValueError: Shapes that don't fit, or answers other than the best option.
        """
        self._pairs = np.concatenate([self._pairs, answered_pairs(options, responses, self.items.shape[1])])
        self._fitted = None

    @property
    def estimate(self) -> Estimate:
        """The mean of BoTorch's posterior of theta; its covariance gives the precision.

        BoTorch does not report on its search for the maximum: ``iterations`` is 0, and ``converged`` says whether
        the next Newton step from theta would be shorter than a thousandth of a posterior standard deviation.
        """
        mean, covariance = self._posterior()
        differences = self._pairs[:, 0] - self._pairs[:, 1]
        logits = differences @ mean
        penalty = float(mean @ mean) / (2.0 * self.prior_variance)
        likelihood = -float(np.logaddexp(0.0, -logits).sum())
        gradient = differences.T @ _sigmoid(-logits) - mean / self.prior_variance
        distance = math.sqrt(max(float(gradient @ covariance @ gradient), 0.0))
        near = distance <= _NEAR
        return Estimate(
            theta=mean.copy(),
            converged=near,
            iterations=0,
            gradient_norm=float(np.linalg.norm(gradient)),
            log_likelihood=likelihood,
            log_posterior=likelihood - penalty,
            precision=_inverse(covariance),
            reason="" if near else f"BoTorch stopped {distance:.1e} posterior standard deviations from the maximum",
        )

    @property
    def posterior(self) -> Posterior:
        """BoTorch's Laplace approximation of the posterior of theta; the prior before the first answer."""
        mean, covariance = self._posterior()
        return Posterior(mean.copy(), _inverse(covariance))

    def fitted_model(self) -> Any:
        """The fitted `PairwiseGP`.

        Raises:
            ValueError: No answers yet.
        """
        if not len(self._pairs):
            raise ValueError("Expected at least one answer, got none; BoTorch fits no model to nothing")
        torch = load("torch", _PURPOSE)
        kernels = load("gpytorch.kernels", _PURPOSE)
        kernel = kernels.ScaleKernel(kernels.LinearKernel()).double()
        kernel.outputscale = torch.tensor(self.prior_variance, dtype=torch.float64)
        kernel.base_kernel.variance = torch.tensor(1.0, dtype=torch.float64)
        count = len(self._pairs)
        with private_randomness(self.seed, _FIT, count), warnings.catch_warnings():
            # more items than features: the covariance of their utilities is singular, and BoTorch says so each time
            warnings.simplefilter("ignore", load("linear_operator.utils.warnings", _PURPOSE).NumericalWarning)
            return load("botorch.models.pairwise_gp", _PURPOSE).PairwiseGP(
                torch.tensor(self._pairs.reshape(2 * count, -1)),
                torch.arange(2 * count).reshape(count, 2),
                likelihood=load("botorch.models.likelihoods.pairwise", _PURPOSE).PairwiseLogitLikelihood(),
                covar_module=kernel,
                consolidate_atol=0.0,  # the same item, not a similar one
            )

    def _posterior(self) -> tuple[Floats, Floats]:
        """Mean and covariance of theta, by the utilities of the unit vectors; the prior without answers."""
        if self._fitted is None:
            dimension = self.items.shape[1]
            if len(self._pairs):
                torch = load("torch", _PURPOSE)
                with torch.no_grad():
                    posterior = self.fitted_model().posterior(torch.eye(dimension, dtype=torch.float64))
                    mean = posterior.mean.squeeze(-1).numpy()
                    covariance = posterior.covariance_matrix.numpy()
                self._fitted = mean, (covariance + covariance.T) / 2.0
            else:
                self._fitted = np.zeros(dimension), self.prior_variance * np.eye(dimension)
        return self._fitted

    def _values(self, mean: Floats, covariance: Floats) -> Any:
        """The acquisition values (m,) of pairs (m, 2) of the distinct items."""
        torch = load("torch", _PURPOSE)
        functions = load("botorch.acquisition.preference", _PURPOSE)
        items = torch.tensor(self.items[self._distinct])
        model = _linear_model()(torch.tensor(mean), torch.tensor(covariance))
        if self.acquisition == "bald":
            function = functions.PairwiseBayesianActiveLearningByDisagreement(model)
        else:
            function = functions.AnalyticExpectedUtilityOfBestOption(model)

        def values(questions: Indices) -> Floats:
            with torch.no_grad():
                blocks = torch.as_tensor(questions).split(_BLOCK)
                return np.concatenate([function(items[block]).numpy() for block in blocks])

        return values


@functools.cache
def _linear_model() -> Any:
    """The BoTorch model of utilities theta . x, theta ~ N(mean, covariance)."""
    base: Any = load("botorch.models.model", _PURPOSE).Model
    normal = load("gpytorch.distributions", _PURPOSE).MultivariateNormal
    lazy = load(
        "linear_operator", _PURPOSE
    ).to_linear_operator  # no Cholesky factor: a search may pair an item with itself
    posterior = load("botorch.posteriors.gpytorch", _PURPOSE).GPyTorchPosterior
    size = load("torch", _PURPOSE).Size

    class LinearModel(base):
        num_outputs = 1
        batch_shape = size()

        def __init__(self, mean: Any, covariance: Any) -> None:
            super().__init__()
            self.theta, self.covariance = mean, covariance
            self.datapoints = mean[None]  # EUBO looks at its type

        def posterior(self, X: Any, **_: Any) -> Any:  # noqa: N803
            return posterior(normal(X @ self.theta, lazy(X @ self.covariance @ X.transpose(-1, -2))))

    return LinearModel


def _sigmoid(values: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0.0, -values)))


def _inverse(matrix: Floats) -> Floats:
    inverse = np.linalg.inv(matrix)
    return np.asarray((inverse + inverse.T) / 2.0)
