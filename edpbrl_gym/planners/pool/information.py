"""Rules that make the information about theta large: designs, adaptive or not, and uncertainty of differences.

A question with options x_1..x_K and probabilities p has the Fisher information F = Y' W Y, Y the K - 1 differences
x_k - x_1 and W = diag(p) - p p' without the first row and column. With G = Y H^-1 Y' everything needs matrices of size
K - 1 only: det(H + F) = det(H) det(I + W G), and (H + F)^-1 = H^-1 - H^-1 Y' (I + W G)^-1 W Y H^-1.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_array
from edpbrl_gym.design.criteria import positive_semidefinite_factor
from edpbrl_gym.planners.pool.base import QuestionValue, ScoreRule
from edpbrl_gym.planners.pool.products import ItemProducts
from edpbrl_gym.planners.pool.state import PoolState, positive_definite_factor

__all__ = [
    "AdaptiveA",
    "AdaptiveD",
    "AdaptiveV",
    "DirectedFisher",
    "GreedyD",
    "MaximumUncertainty",
    "NaiveDesign",
]


class GreedyD(ScoreRule):
    """Greedy D-optimal design at theta = 0: argmax log det(V + F(S; 0)), V the prior and all F(S_t; 0) before.

    For K = 2 it asks the pair with the largest distance |x_i - x_j| in the metric V^-1. It needs no answers, so
    its questions can be planned in advance.

    Source: A. Schlaginhaufen, R. Ouhamma and M. Kamgarpour, "Efficient Preference-Based Reinforcement Learning:
    Randomized Exploration Meets Experimental Design" (2025), for pairs; K options by the information of the logit.
    """

    name = "greedy_d"
    adaptive = False

    def prepare(self, state: PoolState) -> QuestionValue:
        """Gain log det(V + F(S; 0)) - log det V."""
        products = state.agnostic_products
        size = state.num_options
        weights = _weights(np.full((size, 1), 1.0 / size))

        def value(questions: Indices) -> Floats:
            return _log_det(weights, products.differences(questions))

        return value


class AdaptiveD(ScoreRule):
    """Sequential D-optimal design at the estimate: argmax log det(H + F(S; theta_hat)).

    Source: classical; K. Chaloner and I. Verdinelli, "Bayesian Experimental Design: A Review" (1995), and for choices
    Z. Sandor and M. Wedel, "Designing Conjoint Choice Experiments Using Managers' Prior Beliefs" (2001).
    """

    name = "adaptive_d"

    def prepare(self, state: PoolState) -> QuestionValue:
        """Gain log det(H + F(S; theta_hat)) - log det H."""
        products = state.products

        def value(questions: Indices) -> Floats:
            return _log_det(_weights(state.probabilities(questions)), products.differences(questions))

        return value


class _VarianceRule(ScoreRule):
    """argmin tr(Sigma (H + F)^-1): the value of a question is the reduction from tr(Sigma H^-1)."""

    def prepare(self, state: PoolState) -> QuestionValue:
        """Reduction tr(Sigma H^-1) - tr(Sigma (H + F(S; theta_hat))^-1)."""
        products = state.products
        targets = ItemProducts(self._targets(state))

        def value(questions: Indices) -> Floats:
            weights = _weights(state.probabilities(questions))
            target = targets.differences(questions)
            return _trace_reduction(weights, products.differences(questions), target)

        return value

    @abstractmethod
    def _targets(self, state: PoolState) -> Floats:
        """Rows r_i with r_i . r_j = x_i' H^-1 Sigma H^-1 x_j, (n, r)."""


class AdaptiveA(_VarianceRule):
    """Sequential A-optimal design at the estimate: argmin tr (H + F(S; theta_hat))^-1, the error of theta itself.

    Source: classical; K. Chaloner and I. Verdinelli, "Bayesian Experimental Design: A Review" (1995).
    """

    name = "adaptive_a"

    def _targets(self, state: PoolState) -> Floats:
        return state.solved


class AdaptiveV(_VarianceRule):
    """Sequential V-optimal design at the estimate: argmin tr(Sigma (H + F(S; theta_hat))^-1).

    Sigma is the second moment of the pool, so that this is the mean posterior variance of the utilities of the items,
    or a given matrix, such as the paper's of the differences of tokens (`design.criteria.token_difference_matrix`).

    Source: classical; K. Chaloner and I. Verdinelli, "Bayesian Experimental Design: A Review" (1995).

    Args:
        sigma: (d, d), symmetric positive semidefinite; None: the mean of x x' over the pool.
        **search: ``starts``, ``exhaustive`` and ``repeats``, see `ScoreRule`.

    Raises:
        ValueError: Sigma of another shape, not symmetric, or with a negative eigenvalue.
    """

    name = "adaptive_v"

    def __init__(self, *, sigma: ArrayLike | None = None, **search: Any) -> None:
        super().__init__(**search)
        matrix = None if sigma is None else check_array(sigma, "sigma", shape=("d", "d"))
        self._fixed_root = None if matrix is None else positive_semidefinite_factor(matrix, "sigma")
        self._pool: Floats | None = None  # the pool of ``_root``

    def _targets(self, state: PoolState) -> Floats:
        return np.asarray(state.solved @ self._factor(state))

    def _factor(self, state: PoolState) -> Floats:
        """B with Sigma = B B'; cached for a pool, which is the same in all questions."""
        if self._fixed_root is not None:
            if len(self._fixed_root) != state.dimension:
                raise ValueError(
                    f"Expected sigma of dimension {state.dimension} (the items'), got {len(self._fixed_root)}"
                )
            return self._fixed_root
        if self._pool is not state.items:
            moment = state.items.T @ state.items / state.num_items
            self._root = positive_semidefinite_factor(moment, "the pool's second moment")
            self._pool = state.items
        return self._root


class NaiveDesign(ScoreRule):
    """D-optimal design that takes the options as seen one by one: argmax log det(V + (1/K) sum_k x_k x_k').

    An ablation; V is the prior and the same sum over all questions before. The mean of the options, which a
    comparison cannot reveal, counts as if it were observed, so that large, similar options may win.

    Source: none; the design of regression (V. Fedorov, "Theory of Optimal Experiments", 1972) applied to options.
    """

    name = "naive"
    adaptive = False

    def prepare(self, state: PoolState) -> QuestionValue:
        """Gain log det(V + (1/K) sum_k x_k x_k') - log det V."""
        size = state.num_options
        second = state.agnostic  # F(S; 0) is the options' second moment less that of their mean
        past = state.asked_options
        if len(past):
            means = past.mean(axis=1)
            second = second + means.T @ means
        root = positive_definite_factor(second, "agnostic")
        products = ItemProducts(solve_triangular(root, state.items.T, lower=True, check_finite=False).T.copy())
        weights = np.eye(size)[:, :, None] / size

        def value(questions: Indices) -> Floats:
            return _log_det(weights, products.gram(questions))

        return value


class MaximumUncertainty(ScoreRule):
    """Active preference optimisation: the pair with the largest |x_i - x_j| in the metric H^-1.

    For K options: the sum of that over their pairs.

    Source: N. Das, S. Chakraborty, A. Pacchiano and S. R. Chowdhury, "Active Preference Optimization for Sample
    Efficient RLHF" (2024), for pairs.
    """

    name = "apo"

    def prepare(self, state: PoolState) -> QuestionValue:
        """Sum over the pairs i < j of |x_i - x_j| in H^-1."""
        products = state.products
        first, second = np.triu_indices(state.num_options, 1)

        def value(questions: Indices) -> Floats:
            return np.asarray(np.sqrt(products.squared_distances(questions)[first, second]).sum(axis=0))

        return value


class DirectedFisher(ScoreRule):
    """The question that is most informative about one direction v: argmin v' (H + F(S; theta_hat))^-1 v.

    For a pair with the difference x and kappa = p (1 - p), the reduction is kappa (x' H^-1 v)^2 / (1 + kappa x' H^-1
    x). v is the difference of the two items that seem best, or fixed.

    Source: D. Lindner, M. Turchetta, S. Tschiatschek, K. Ciosek and A. Krause, "Information Directed Reward Learning
    for Reinforcement Learning" (2021), with the information of the logit in place of that of a Gaussian answer.

    Args:
        direction: v, (d,); None: the difference of the two best items at theta_hat (items that tie in random order).
        **search: ``starts``, ``exhaustive`` and ``repeats``, see `ScoreRule`.
    """

    name = "directed_fisher"

    def __init__(self, *, direction: ArrayLike | None = None, **search: Any) -> None:
        super().__init__(**search)
        self.direction = None if direction is None else check_array(direction, "direction", shape=("d",))

    def prepare(self, state: PoolState) -> QuestionValue:
        """Reduction v' H^-1 v - v' (H + F(S; theta_hat))^-1 v."""
        direction = _top_two(state) if self.direction is None else self.direction
        if direction.shape != (state.dimension,):
            raise ValueError(f"Expected direction of dimension {state.dimension} (the items'), got {len(direction)}")
        products = state.products
        along = state.items @ state.solve(direction)  # x_i' H^-1 v

        def value(questions: Indices) -> Floats:
            weights = _weights(state.probabilities(questions))
            projections = along[questions.T]
            lead = projections[1:] - projections[0]
            return _trace_reduction(weights, products.differences(questions), lead[:, None] * lead[None])

        return value


def _top_two(state: PoolState) -> Floats:
    """Difference of the two items with the largest utility at theta_hat, (d,)."""
    order = state.rng.permutation(state.num_items)
    ranked = order[np.argsort(-state.utilities[order], kind="stable")[:2]]
    return np.asarray(state.items[ranked[0]] - state.items[ranked[1]])


def _weights(probabilities: Floats) -> Floats:
    """W = diag(p) - p p' without the first option, (K - 1, K - 1, m), of probabilities (K, m)."""
    rest = probabilities[1:]
    weights = -rest[:, None] * rest[None]
    places = np.arange(len(rest))
    weights[places, places] += rest
    return np.asarray(weights)


def _inner(weights: Floats, gram: Floats) -> Floats:
    """I + W G, (m, k, k)."""
    product = np.einsum("ijm,jkm->mik", np.broadcast_to(weights, gram.shape), gram)
    places = np.arange(len(gram))
    product[:, places, places] += 1.0
    return np.asarray(product)


def _log_det(weights: Floats, gram: Floats) -> Floats:
    """The logarithm of det(I + W G) of W and G, (k, k, m); the determinant is that of I + W^1/2 G W^1/2, >= 1."""
    return np.asarray(np.linalg.slogdet(_inner(weights, gram))[1])


def _trace_reduction(weights: Floats, gram: Floats, target: Floats) -> Floats:
    """tr((I + W G)^-1 W T), with T in the place of Sigma: the reduction of tr(Sigma H^-1), (m,)."""
    moved = np.einsum("ijm,jkm->mik", np.broadcast_to(weights, gram.shape), target)
    return np.asarray(np.trace(np.linalg.solve(_inner(weights, gram), moved), axis1=1, axis2=2))
