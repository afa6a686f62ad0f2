"""Where block ascent begins: the exact objective has many local maxima, and all K policies equal is a saddle point.

| start | the K policies |
|---|---|
| "clusters" | shares of one occupancy, each step's rows split into K clusters of equal mass: the mean stays as it is |
| "surrogate" | one occupancy, its probabilities tilted a little in K random directions |
| "random" | deterministic policies, each the best for a random linear taste |

"Clusters" puts as much as it can of the spread of the features between the policies, where the exact information has
all of it, and as little as possible within, where it has (K - 1) / K of it. The clusters are balanced k-means in the
metric of the objective's gradient, the assignment by Sinkhorn's iteration (Cuturi, 2013).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.exact.block import CentredFeatures
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP

__all__ = ["STARTS", "clustered", "random_policies", "tilted"]


STARTS = ("clusters", "surrogate", "random")

_LLOYD = 25  # rounds of k-means
_SINKHORN = 150  # scalings of each assignment
_SHARPNESS = 20.0  # of the assignment, per standard deviation of the distances: nearly hard
_SETTLED = 1e-3  # change of the shares at which k-means stops
_EQUAL = 1e-14  # relative; points that differ less are equal
_SMALLEST_SHARE = 1e-3  # of a row in a cluster; less is none
_TILT = 0.5  # standard deviation of the log-probabilities' change at a step


def clustered(
    mdp: FiniteHorizonMDP,
    features: CentredFeatures,
    occupancy: Floats,
    factor: Floats,
    count: int,
    rng: np.random.Generator,
) -> Floats:
    """Split one occupancy into K of equal mass that differ in their mean features.

    Every step is clustered by itself; then its clusters are numbered so that as much mass as possible stays in the
    policy of the step before. Where an action decides what can be shown later the policies are turned towards
    their clusters, and the mean may change.

    Args:
        mdp: The MDP.
        features: The rows.
        occupancy: What to split, shape (H, M).
        factor: F: squared distances are ||F (x - y)||^2, shape (r, d).
        count: K.
        rng: Source of the first centres.

    Returns:
        Occupancies, shape (K, H, M).
    """
    shares = np.zeros((count, *occupancy.shape))
    rewards = np.zeros((count, mdp.horizon, mdp.num_rows))
    # elsewhere a policy may have to pass through the rows of the others
    floor = 0.0 if isinstance(mdp, PromptMDP) else _SMALLEST_SHARE
    for step, mass in enumerate(occupancy):
        pairs = np.flatnonzero(mass)
        rows, place = np.unique(mdp.pair_row[pairs], return_inverse=True)
        weights = np.bincount(place, weights=mass[pairs])
        split = _balanced_clusters(features.rows(rows) @ factor.T, weights / weights.sum(), count, rng)
        if step:
            split = split[:, _cluster_order(mdp, shares[:, step - 1], mass, pairs, split[place])]
        shares[:, step, pairs] = split[place].T * mass[pairs]
        with np.errstate(divide="ignore"):
            rewards[:, step, rows] = np.log(np.where(split < _SMALLEST_SHARE, floor, split)).T
    return np.stack([_soft_response(mdp, occupancy, reward) for reward in rewards])


def tilted(
    mdp: FiniteHorizonMDP,
    features: CentredFeatures,
    occupancy: Floats,
    factor: Floats,
    count: int,
    rng: np.random.Generator,
) -> Floats:
    """K copies of an occupancy whose log-probabilities differ by small random linear functions of F x.

    Arguments and result as in `clustered`.
    """
    result = []
    for _ in range(count):
        directions = rng.standard_normal((mdp.horizon, len(factor))) @ factor
        rewards = features.linear(directions)
        support = mdp.row_occupancy(occupancy) > 0
        for reward, rows in zip(rewards, support, strict=True):
            spread = float(reward[rows].std())
            if spread <= _EQUAL * float(np.abs(reward[rows]).max()):  # one row, or equal ones
                reward[:] = 0.0
            else:
                reward[:] = np.clip((reward - reward[rows].mean()) / spread, -4.0, 4.0) * _TILT
        result.append(_soft_response(mdp, occupancy, rewards))
    return np.stack(result)


def random_policies(mdp: FiniteHorizonMDP, features: CentredFeatures, count: int, rng: np.random.Generator) -> Floats:
    """The best policies for random linear rewards, one direction a step, shape (K, H, M)."""
    result = []
    for _ in range(count):
        rewards = features.linear(rng.standard_normal((mdp.horizon, features.dimension)))
        result.append(mdp.occupancy(mdp.best_response(rewards)[0]))
    return np.stack(result)


def _soft_response(mdp: FiniteHorizonMDP, occupancy: Floats, rewards: Floats) -> Floats:
    """Occupancy of the policy pi exp(Q - V), by soft value iteration from the policy pi of an occupancy.

    Q_h = r_h + P V_(h+1) and V_h = log sum_a pi_h exp Q_h: the maximiser of the expected reward less the divergence
    from pi (Ziebart, 2010; Todorov, 2009). In a prompt MDP simply d exp(r), scaled.

    Args:
        mdp: The MDP.
        occupancy: d, shape (H, M).
        rewards: r of each row, shape (H, N).
    """
    policy = mdp.policy_from_occupancy(occupancy)
    new_policy = np.zeros_like(policy)
    value = np.zeros(mdp.num_states)
    for step in range(mdp.horizon - 1, -1, -1):
        ahead = rewards[step, mdp.pair_row]
        if step < mdp.horizon - 1:
            ahead = ahead + mdp.transitions @ value
        best = np.full(mdp.num_states, -np.inf)
        used = policy[step] > 0
        np.maximum.at(best, mdp.pair_state[used], ahead[used])
        best[~np.isfinite(best)] = 0.0
        unscaled = policy[step] * np.exp(np.minimum(ahead - best[mdp.pair_state], 0.0))
        total = np.bincount(mdp.pair_state, weights=unscaled, minlength=mdp.num_states)
        new_policy[step] = unscaled / np.where(total > 0, total, 1.0)[mdp.pair_state]
        value = np.where(total > 0, best + np.log(np.where(total > 0, total, 1.0)), 0.0)
    return mdp.occupancy(new_policy)


def _balanced_clusters(points: Floats, weights: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Shares (n, K) of weighted points in K clusters of equal mass; each row sums to 1, so do the clusters' n-sums."""
    if len(points) == 1:
        return np.full((1, count), 1.0 / count)
    centres = _spread_centres(points, weights, count, rng)
    shares = np.full((len(points), count), 1.0 / count)
    for _ in range(_LLOYD):
        # ||x - c||^2 less what is common to all clusters
        distances = np.einsum("kr,kr->k", centres, centres) - 2.0 * points @ centres.T
        distances -= distances.mean(axis=1, keepdims=True)
        distances -= weights @ distances
        unit = float(np.sqrt(weights @ (distances**2).mean(axis=1)))
        if unit <= _EQUAL * float(np.abs(points).max()) ** 2:
            break
        last, shares = shares, _balanced(distances * (_SHARPNESS / unit), weights)
        mass = weights[:, None] * shares
        centres = (mass.T @ points) / mass.sum(axis=0)[:, None]
        if np.abs(shares - last).max() < _SETTLED:
            break
    return shares


def _balanced(costs: Floats, weights: Floats) -> Floats:
    """Soft assignment of points with masses to K clusters of mass 1/K: shares (n, K) with rows that sum to 1."""
    kernel = np.exp(costs.min(axis=1, keepdims=True) - costs)
    scale = np.ones(costs.shape[1])
    for _ in range(_SINKHORN):
        rows = weights / np.maximum(kernel @ scale, np.finfo(float).tiny)
        scale = 1.0 / (costs.shape[1] * np.maximum(kernel.T @ rows, np.finfo(float).tiny))
        scale /= scale.max()
    shares = kernel * scale
    return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(float).tiny))


def _spread_centres(points: Floats, weights: Floats, count: int, rng: np.random.Generator) -> Floats:
    """First centres as in k-means++ (Arthur and Vassilvitskii, 2007)."""
    indices = [int(rng.choice(len(points), p=weights))]
    nearest = np.full(len(points), np.inf)
    while len(indices) < count:
        nearest = np.minimum(nearest, ((points - points[indices[-1]]) ** 2).sum(axis=1))
        chance = weights * nearest
        total = float(chance.sum())
        indices.append(int(rng.choice(len(points), p=chance / total if total > 0 else weights)))
    return points[indices]


def _cluster_order(
    mdp: FiniteHorizonMDP, before: Floats, mass: Floats, pairs: NDArray[np.intp], split: Floats
) -> NDArray[np.intp]:
    """Order of a step's clusters (columns of `split`) that keeps most mass in the policies of the step before.

    Args:
        mdp: The MDP.
        before: Mass of each policy at the step before, shape (K, M).
        mass: Mass of all policies at this step, shape (M,).
        pairs: Where it is positive, shape (n,).
        split: Shares of these pairs in the clusters, shape (n, K).
    """
    arriving = np.stack([mdp.transitions.T @ policy for policy in before])  # (K, S)
    of_state = np.bincount(mdp.pair_state, weights=mass, minlength=mdp.num_states)[mdp.pair_state[pairs]]
    overlap = (arriving[:, mdp.pair_state[pairs]] * (mass[pairs] / of_state)) @ split
    return np.asarray(linear_sum_assignment(-overlap)[1])
