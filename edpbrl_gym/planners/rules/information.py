"""Rules that make the information about theta large: designs, adaptive or not, and uncertainty of differences.

A question with options x_1..x_K and probabilities p has the Fisher information F = Y' W Y, Y the K - 1 differences
x_k - x_1 and W = diag(p) - p p' without the first row and column. With G = Y H^-1 Y' everything needs matrices of size
K - 1 only: det(H + F) = det(H) det(I + W G), and (H + F)^-1 = H^-1 - H^-1 Y' (I + W G)^-1 W Y H^-1.

Sources: the adaptive D-, A- and V-optimal designs are classical: K. Chaloner and I. Verdinelli, "Bayesian Experimental
Design: A Review" (1995), and for choices Z. Sandor and M. Wedel, "Designing Conjoint Choice Experiments Using Managers'
Prior Beliefs" (2001). Greedy D: A. Schlaginhaufen, R. Ouhamma and M. Kamgarpour, "Efficient Preference-Based
Reinforcement Learning: Randomized Exploration Meets Experimental Design" (2025), for pairs. Naive D: the design of
regression, V. Fedorov, "Theory of Optimal Experiments" (1972), applied to options. Maximum uncertainty: N. Das,
S. Chakraborty, A. Pacchiano and S. R. Chowdhury, "Active Preference Optimization for Sample Efficient RLHF" (2024), for
pairs. Directed Fisher information and its direction from draws: D. Lindner, M. Turchetta, S. Tschiatschek, K. Ciosek
and A. Krause, "Information Directed Reward Learning for Reinforcement Learning" (2021), with the information of the
logit in place of that of a Gaussian answer.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from edpbrl_gym._arrays import Floats, Indices, positive_semidefinite_factor
from edpbrl_gym.planners.rules.favourites import distinct, filled
from edpbrl_gym.planners.rules.search import QuestionValue
from edpbrl_gym.planners.rules.state import ItemProducts, PoolState, positive_definite_factor

__all__ = ["adaptive_a", "adaptive_d", "adaptive_v", "apo", "directed_fisher", "greedy_d", "idrl", "naive"]


def greedy_d(state: PoolState) -> QuestionValue:
    """Greedy D-optimal design at theta = 0: argmax log det(V + F(S; 0)), V the prior and all F(S_t; 0) before.

    For K = 2 it asks the pair with the largest distance |x_i - x_j| in the metric V^-1. It needs no answers, so its
    questions can be planned in advance.
    """
    products = state.agnostic_products
    weights = _weights(np.full((state.num_options, 1), 1.0 / state.num_options))
    return lambda questions: _log_det(weights, products.differences(questions))


def adaptive_d(state: PoolState) -> QuestionValue:
    """Sequential D-optimal design at the estimate: argmax log det(H + F(S; theta_hat))."""
    products = state.products
    return lambda questions: _log_det(_weights(state.probabilities(questions)), products.differences(questions))


def adaptive_a(state: PoolState) -> QuestionValue:
    """Sequential A-optimal design at the estimate: argmin tr (H + F(S; theta_hat))^-1, the error of theta itself."""
    return _reduction(state, ItemProducts(state.solved).differences)


def adaptive_v(state: PoolState) -> QuestionValue:
    """Sequential V-optimal design at the estimate: argmin tr(Sigma (H + F(S; theta_hat))^-1).

    Sigma is the second moment of the pool, the mean of x x', so that this is the mean posterior variance of the
    utilities of the items.
    """
    moment = "the pool's second moment"
    root = state.kept(
        moment, lambda: positive_semidefinite_factor(state.items.T @ state.items / state.num_items, moment)
    )
    return _reduction(state, ItemProducts(np.asarray(state.solved @ root)).differences)


def naive(state: PoolState) -> QuestionValue:
    """D-optimal design that takes the options as seen one by one: argmax log det(V + (1/K) sum_k x_k x_k').

    An ablation; V is the prior and the same sum over all questions before. The mean of the options, which a comparison
    cannot reveal, counts as if it were observed, so that large, similar options may win.
    """
    second = state.agnostic  # F(S; 0) is the options' second moment less that of their mean
    past = state.items[state.asked_items] if state.past is None else state.past
    if len(past):
        means = past.mean(axis=1)
        second = second + means.T @ means
    root = positive_definite_factor(second, "agnostic")
    products = ItemProducts(solve_triangular(root, state.items.T, lower=True, check_finite=False).T.copy())
    weights = np.eye(state.num_options)[:, :, None] / state.num_options
    return lambda questions: _log_det(weights, products.gram(questions))


def apo(state: PoolState) -> QuestionValue:
    """Active preference optimisation: the pair with the largest |x_i - x_j| in the metric H^-1.

    For K options: the sum of that over their pairs.
    """
    products = state.products
    first, second = np.triu_indices(state.num_options, 1)
    return lambda questions: np.asarray(np.sqrt(products.squared_distances(questions)[first, second]).sum(axis=0))


def directed_fisher(state: PoolState) -> QuestionValue:
    """The question that is most informative about one direction v: argmin v' (H + F(S; theta_hat))^-1 v.

    For a pair with the difference x and kappa = p (1 - p), the reduction is kappa (x' H^-1 v)^2 / (1 + kappa x' H^-1
    x). v is the difference of the two best items at theta_hat (items that tie in random order).
    """
    order = state.rng.permutation(state.num_items)
    best, second = order[np.argsort(-state.utilities[order], kind="stable")[:2]]
    return _directed(state, np.asarray(state.items[best] - state.items[second]))


def idrl(state: PoolState) -> QuestionValue:
    """Information directed reward learning: directed Fisher information about the most uncertain comparison.

    Candidates for the best item are the favourites of the draws. Of these the pair (i, j) with the largest
    Var[theta . (x_i - x_j)] is the comparison; with w = x_i - x_j the question is argmin over S of
    w' (H + F(S; theta_hat))^-1 w, the variance that remains after an answer. Where all draws have the same favourite,
    the pair is the best two items of theta_hat.
    """
    candidates = distinct(state.draw_utilities.argmax(axis=0))
    candidates = candidates if len(candidates) > 1 else filled(candidates, state.utilities, 2)
    first, second = np.triu_indices(len(candidates), k=1)
    pairs = np.stack([candidates[first], candidates[second]], axis=1)
    one, other = pairs[state.products.squared_distances(pairs)[1, 0].argmax()]
    return _directed(state, np.asarray(state.items[one] - state.items[other]))


def _directed(state: PoolState, v: Floats) -> QuestionValue:
    along = state.items @ state.solve(v)  # x_i' H^-1 v

    def target(questions: Indices) -> Floats:
        projections = along[questions.T]
        lead = projections[1:] - projections[0]
        return np.asarray(lead[:, None] * lead[None])

    return _reduction(state, target)


def _reduction(state: PoolState, target: QuestionValue) -> QuestionValue:
    """The reduction of tr(Sigma H^-1), from Y H^-1 Sigma H^-1 Y' of questions, (K - 1, K - 1, m)."""
    products = state.products

    def value(questions: Indices) -> Floats:
        weights = _weights(state.probabilities(questions))
        return _trace_reduction(weights, products.differences(questions), target(questions))

    return value


def _weights(probabilities: Floats) -> Floats:
    """W = diag(p) - p p' without the first option, (K - 1, K - 1, m), of probabilities (K, m)."""
    rest = probabilities[1:]
    weights = -rest[:, None] * rest[None]
    diagonal = np.arange(len(rest))
    weights[diagonal, diagonal] += rest
    return np.asarray(weights)


def _inner(weights: Floats, gram: Floats) -> Floats:
    """I + W G, (m, k, k)."""
    product = np.einsum("ijm,jkm->mik", np.broadcast_to(weights, gram.shape), gram)
    diagonal = np.arange(len(gram))
    product[:, diagonal, diagonal] += 1.0
    return np.asarray(product)


def _log_det(weights: Floats, gram: Floats) -> Floats:
    """The logarithm of det(I + W G) of W and G, (k, k, m); the determinant is that of I + W^1/2 G W^1/2, >= 1."""
    return np.asarray(np.linalg.slogdet(_inner(weights, gram))[1])


def _trace_reduction(weights: Floats, gram: Floats, target: Floats) -> Floats:
    """tr((I + W G)^-1 W T), with T in the place of Sigma: the reduction of tr(Sigma H^-1), (m,)."""
    moved = np.einsum("ijm,jkm->mik", np.broadcast_to(weights, gram.shape), target)
    return np.asarray(np.trace(np.linalg.solve(_inner(weights, gram), moved), axis1=1, axis2=2))
