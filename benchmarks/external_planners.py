"""Planners of BoTorch and optuna behind this package's interface, which the bench compares with its own.

Importing this module adds them to `edpbrl_gym.planners.PLANNERS`: "botorch-bald", "botorch-eubo" and "optuna". They
compare pairs (K = 2) of a finite pool of items, prompts of one step, and learn from best options only. They need the
packages of the extra ``test``. The same arguments and the same calls give the same questions; the global generators of
numpy and torch, which both packages draw from, are left as they were.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._compat import require
from edpbrl_gym._validation import check_array, check_choice_of, check_count
from edpbrl_gym.estimation import Estimate, GaussianPrior, Posterior
from edpbrl_gym.estimation.other_texts import OtherTexts
from edpbrl_gym.likelihood import BestOf, Response
from edpbrl_gym.planners import PLANNERS, Planner, PlannerEntry
from edpbrl_gym.planners.option_features import OptionFeatures
from edpbrl_gym.planners.rules import search_questions

__all__ = ["EXTERNAL", "OptunaGPPlanner", "PairwiseGPPlanner"]

_ALL_PAIRS = 200  # items of which every pair is scored
_BLOCK = 1024  # pairs scored at once: BALD draws 1,024 samples for each
_STARTS = 4  # starts of the search in larger pools
_NEAR = 1e-3  # posterior standard deviations from the maximum below which an estimate counts as converged
_FIT, _SCORE = 0, 1  # what the global generators are seeded for
_MAX_FEATURES = 10  # of optuna's box: in more dimensions the nearest item is far from the suggestion
_SAME = 1e-5  # relative distance below which features are those of an item: rounding to float32


def _load(module: str) -> Any:
    """Import a module of another package without its deprecation warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return require(module, "the planners of other packages", "test")


@contextmanager
def _private_randomness(*seed: int) -> Iterator[None]:
    """The global generators of numpy and torch seeded inside, and restored afterwards."""
    torch = _load("torch")
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    before = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(number)  # not those of the accelerators, which nothing here draws from
        np.random.seed(number)
        try:
            yield
        finally:
            np.random.set_state(before)


class _PairPlanner(Planner):
    """A planner of pairs of a pool of items.

    Args:
        options: Features of the items, those of a vocabulary of one step; of equal items only the first is shown.
        num_options: K, 2.
        seed: Seed of the other package's draws.

    Raises:
        ModuleNotFoundError: The package is not installed.
        ValueError: Several steps, fewer than two different items, or another K.
    """

    def __init__(self, options: OptionFeatures, num_options: int, seed: int) -> None:
        if len(options.sizes) != 1:
            raise ValueError(f"Expected a vocabulary of one step, a pool of items, got {len(options.sizes)} steps")
        if num_options != 2:
            raise ValueError(f"Expected num_options (K) = 2, the package compares pairs only; got {num_options}")
        self.items = check_array(options.tokens(0), "items", shape=("n", "d"))
        self._distinct = np.sort(np.unique(self.items, axis=0, return_index=True)[1]).astype(np.int64)
        if len(self._distinct) < 2:
            raise ValueError(f"Expected at least 2 different items to compare, got {len(self._distinct)}")
        self.num_options = num_options
        self.seed = check_count(seed, "seed", minimum=0)
        for package in self.needs:
            _load(package)

    @classmethod
    def default_prior(
        cls,
        token_features: NDArray[np.floating],
        blocks: Sequence[int] = (),
        *,
        pool: bool = False,
        others: OtherTexts | None = None,
    ) -> GaussianPrior:
        """N(0, I)."""
        return GaussianPrior.isotropic(token_features.shape[1], 1.0)

    def _answered_pairs(self, options: ArrayLike, responses: Sequence[Response | int]) -> Floats:
        """The chosen and the other item of each question that is not skipped or of two equal items, (m, 2, d)."""
        shape = ("n", 2, self.items.shape[1])
        rows = check_array(options, "options", shape=shape, hint="pairs of the pool's items")
        answers = [answer if isinstance(answer, Response) else Response.best(answer) for answer in responses]
        BestOf().terms(rows, answers)  # raises for answers that the packages don't know
        pairs = [
            row if answer.first == 0 else row[::-1]
            for row, answer in zip(rows, answers, strict=True)
            if answer.first is not None and (row[0] != row[1]).any()
        ]
        return np.array(pairs).reshape(-1, 2, self.items.shape[1])


class PairwiseGPPlanner(_PairPlanner):
    """BoTorch's `PairwiseGP` with a linear kernel, and the pair of the pool with the largest acquisition value.

    The model is that of the package's own estimates: utilities theta . x with the prior theta ~ N(0, I / lambda),
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
    """

    needs = ("botorch",)

    def __init__(
        self,
        options: OptionFeatures,
        *,
        acquisition: Literal["bald", "eubo"],
        prior: GaussianPrior,
        num_options: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__(options, num_options, seed)
        self.acquisition = check_choice_of(acquisition, "acquisition", ("bald", "eubo"))
        precision = float(prior.precision[0, 0]) if isinstance(prior, GaussianPrior) and not prior.mean.any() else 0.0
        if precision <= 0 or not np.array_equal(prior.precision, precision * np.eye(prior.dimension)):
            raise ValueError("Expected the prior N(0, I / lambda), GaussianPrior.isotropic: the package takes no other")
        self.prior_variance = 1.0 / precision
        self.name = f"botorch-{acquisition}"
        self.reset()

    def reset(self) -> None:
        """Forget all questions and answers."""
        self.asked = 0
        self._pairs: Floats = np.empty((0, 2, self.items.shape[1]))  # the chosen item first
        self._fitted: tuple[Floats, Floats] | None = None

    def ask(self, prefixes: ArrayLike) -> Indices:
        """The next pair of items, (2,), for prompts without tokens, (2, 0)."""
        rng = np.random.default_rng([self.seed, self.asked])
        count, limit = len(self._distinct), math.comb(_ALL_PAIRS, 2)
        with _private_randomness(self.seed, _SCORE, self.asked):
            pair, _ = search_questions(self._values(), count, 2, rng=rng, starts=_STARTS, exhaustive=limit)
        self.asked += 1
        return np.asarray(self._distinct[pair], dtype=np.int64)

    def tell(self, options: ArrayLike, responses: Sequence[Response | int]) -> None:
        """Learn from n answered pairs, features (n, 2, d)."""
        self._pairs = np.concatenate([self._pairs, self._answered_pairs(options, responses)])
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
        likelihood = -float(np.logaddexp(0.0, -logits).sum())
        gradient = differences.T @ np.exp(-np.logaddexp(0.0, logits)) - mean / self.prior_variance
        distance = math.sqrt(max(float(gradient @ covariance @ gradient), 0.0))
        near = distance <= _NEAR
        return Estimate(
            theta=mean.copy(),
            converged=near,
            iterations=0,
            gradient_norm=float(np.linalg.norm(gradient)),
            log_likelihood=likelihood,
            log_posterior=likelihood - float(mean @ mean) / (2.0 * self.prior_variance),
            precision=_inverse(covariance),
            reason="" if near else f"BoTorch stopped {distance:.1e} posterior standard deviations from the maximum",
        )

    @property
    def posterior(self) -> Posterior:
        """BoTorch's Laplace approximation of the posterior of theta; the prior before the first answer."""
        mean, covariance = self._posterior()
        return Posterior(mean.copy(), _inverse(covariance))

    def fitted_model(self) -> Any:
        """The `PairwiseGP` fitted to the answers, at least one."""
        torch, kernels = _load("torch"), _load("gpytorch.kernels")
        kernel = kernels.ScaleKernel(kernels.LinearKernel()).double()
        kernel.outputscale = torch.tensor(self.prior_variance, dtype=torch.float64)
        kernel.base_kernel.variance = torch.tensor(1.0, dtype=torch.float64)
        count = len(self._pairs)
        with _private_randomness(self.seed, _FIT, count), warnings.catch_warnings():
            # more items than features: the covariance of their utilities is singular, and BoTorch says so each time
            warnings.simplefilter("ignore", _load("linear_operator.utils.warnings").NumericalWarning)
            return _load("botorch.models.pairwise_gp").PairwiseGP(
                torch.tensor(self._pairs.reshape(2 * count, -1)),
                torch.arange(2 * count).reshape(count, 2),
                likelihood=_load("botorch.models.likelihoods.pairwise").PairwiseLogitLikelihood(),
                covar_module=kernel,
                consolidate_atol=0.0,  # the same item, not a similar one
            )

    def _posterior(self) -> tuple[Floats, Floats]:
        """Mean and covariance of theta, by the utilities of the unit vectors; the prior without answers."""
        dimension = self.items.shape[1]
        if not len(self._pairs):
            return np.zeros(dimension), self.prior_variance * np.eye(dimension)
        if self._fitted is None:
            torch = _load("torch")
            with torch.no_grad():
                posterior = self.fitted_model().posterior(torch.eye(dimension, dtype=torch.float64))
                covariance = posterior.covariance_matrix.numpy()
                self._fitted = posterior.mean.squeeze(-1).numpy(), (covariance + covariance.T) / 2.0
        return self._fitted

    def _values(self) -> Any:
        """The acquisition values (m,) of pairs (m, 2) of the distinct items."""
        torch, functions = _load("torch"), _load("botorch.acquisition.preference")
        items = torch.tensor(self.items[self._distinct])
        model = _linear_model()(*map(torch.tensor, self._posterior()))
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
    base: Any = _load("botorch.models.model").Model
    normal = _load("gpytorch.distributions").MultivariateNormal
    lazy = _load("linear_operator").to_linear_operator  # no Cholesky factor: a search may pair an item with itself
    posterior = _load("botorch.posteriors.gpytorch").GPyTorchPosterior

    class LinearModel(base):
        num_outputs = 1
        batch_shape = _load("torch").Size()

        def __init__(self, mean: Any, covariance: Any) -> None:
            super().__init__()
            self.theta, self.covariance = mean, covariance
            self.datapoints = mean[None]  # EUBO looks at its type

        def posterior(self, X: Any, **_: Any) -> Any:  # noqa: N803
            return posterior(normal(X @ self.theta, lazy(X @ self.covariance @ X.transpose(-1, -2))))

    return LinearModel


def _inverse(matrix: Floats) -> Floats:
    inverse = np.linalg.inv(matrix)
    return np.asarray((inverse + inverse.T) / 2.0)


class OptunaGPPlanner(_PairPlanner):
    """optuna-dashboard's `PreferentialGPSampler` on the bounding box of the items, at most 10 features.

    The sampler looks for the best point, not for the taste: it takes a sample of a Gaussian process (Matern 3/2, probit
    choices, hyperparameters fitted) given the preferences, and suggests the point of the box with the largest expected
    improvement (S. Takeno et al., "Towards Practical Preferential Bayesian Optimization with Skew Gaussian Processes",
    2023). A question shows the best item so far, which is the choice of the last answer, and the item nearest to the
    suggestion that is neither this one nor in the last question; before the first answer both are drawn at random. What
    the sampler learns is about the items shown, not about its suggestions. It estimates no theta; see ``best_item``.
    """

    name = "optuna"
    needs = ("optuna_dashboard", "botorch")

    def __init__(self, options: OptionFeatures, *, num_options: int = 2, seed: int = 0) -> None:
        super().__init__(options, num_options, seed)
        if self.items.shape[1] > _MAX_FEATURES:
            raise ValueError(f"Expected items of at most {_MAX_FEATURES} features, got {self.items.shape[1]}")
        self._optuna = _load("optuna")
        low, high = self.items.min(axis=0), self.items.max(axis=0)
        self._columns = np.flatnonzero(low < high)
        real = self._optuna.distributions.FloatDistribution
        self._space = {f"x{i}": real(float(low[i]), float(high[i])) for i in self._columns}
        self.reset()

    def reset(self) -> None:
        """Forget all questions and answers."""
        self.asked = 0
        with self._quiet():
            sampler = _load("optuna_dashboard.preferential.samplers.gp").PreferentialGPSampler(
                seed=int(np.random.SeedSequence(self.seed).generate_state(1)[0])
            )
            self._study = _load("optuna_dashboard.preferential").create_study(n_generate=2, sampler=sampler)
        self._trials: dict[int, int] = {}  # item -> number of its trial
        self._best: int | None = None
        self._last: tuple[int, ...] = ()

    def ask(self, prefixes: ArrayLike) -> Indices:
        """The best item so far and a new one, (2,), for prompts without tokens, (2, 0)."""
        with self._quiet(), _private_randomness(self.seed, self.asked):
            first = self._nearest(self._suggestion(), ()) if self._best is None else self._best
            second = self._nearest(self._suggestion(), (first, *self._last))
        self.asked += 1
        self._last = (first, second)
        return np.array([first, second], dtype=np.int64)

    def tell(self, options: ArrayLike, responses: Sequence[Response | int]) -> None:
        """Learn from n answered pairs of items of the pool, features (n, 2, d)."""
        pairs = self._answered_pairs(options, responses)
        preferences = [(self._item(better), self._item(worse)) for better, worse in pairs]
        with self._quiet():
            for better, worse in preferences:
                self._study.report_preference(self._trial(better), self._trial(worse))
                self._best = better

    def best_item(self) -> int:
        """The item that the sampler would recommend: the choice of the last answer."""
        if self._best is None:
            raise ValueError("Expected at least one answer, got none; there is no best item yet")
        return self._best

    @property
    def estimate(self) -> NoReturn:
        """Not available."""
        raise AttributeError("optuna's preferential sampler estimates no taste (theta); best_item() is its answer")

    posterior = estimate

    def _suggestion(self) -> Floats:
        """A point of the box, (varying features,)."""
        trial = self._study.ask(self._space)
        # the suggestion itself is not shown: the trial of the nearest item replaces it
        self._study._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return np.array([trial.params[name] for name in self._space])

    def _nearest(self, point: Floats, without: tuple[int, ...]) -> int:
        """The nearest item not in ``without``; where that leaves none, the nearest one that is not ``without[0]``."""
        distances = np.linalg.norm(self.items[self._distinct][:, self._columns] - point, axis=1)
        order = self._distinct[np.argsort(distances, kind="stable")]
        fresh = order[~np.isin(order, without)]
        return int(fresh[0] if len(fresh) else order[order != without[0]][0])

    def _item(self, features: Floats) -> int:
        distances = np.abs(self.items[self._distinct] - features).max(axis=1)
        nearest = int(distances.argmin())
        if distances[nearest] > _SAME * max(1.0, float(np.abs(features).max())):
            raise ValueError(f"Expected options that are items of the pool, got one {distances[nearest]:.2g} away")
        return int(self._distinct[nearest])

    def _trial(self, item: int) -> Any:
        """The trial of an item, created with the first answer about it."""
        if item not in self._trials:
            trial = self._optuna.trial.create_trial(
                state=self._optuna.trial.TrialState.COMPLETE,
                value=0.0,  # a study of preferences has none, but a complete trial must
                params=dict(zip(self._space, self.items[item, self._columns].tolist(), strict=True)),
                distributions=self._space,
            )
            self._study.add_trial(trial)
            self._trials[item] = self._study.get_trials(deepcopy=False)[-1].number
        return self._study.get_trials(deepcopy=False)[self._trials[item]]

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Without optuna's log lines for each study and its warning that the first points are random."""
        logging = self._optuna.logging
        before = logging.get_verbosity()
        logging.set_verbosity(logging.WARNING)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Dynamic search space detected")
                yield
        finally:
            logging.set_verbosity(before)


def _botorch(acquisition: str, title: str) -> PlannerEntry:
    path = f"{__name__}:PairwiseGPPlanner"
    return PlannerEntry(path, title, "external", True, {"acquisition": acquisition})


EXTERNAL: dict[str, PlannerEntry] = {
    "botorch-bald": _botorch("bald", "BoTorch, BALD"),
    "botorch-eubo": _botorch("eubo", "BoTorch, EUBO"),
    "optuna": PlannerEntry(f"{__name__}:OptunaGPPlanner", "Optuna", "external"),
}
"""Rows of the table of planners."""

PLANNERS.update(EXTERNAL)
