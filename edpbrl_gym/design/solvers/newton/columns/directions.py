"""What a change of the policy in one state does to the moments of the occupancy, for many pairs at once.

To first order the design depends on a pair (s, a) at step h through the vector z = q - w: q its moments from there on
under the current policy, w their mean over the policy's own pairs (a value iteration whose values are vectors). If a
policy takes the pairs with masses v in place of the current one's, and the states keep their masses, the moments
change by Z'v. The moments are scaled such that the Hessian of -s is the identity: with the information I = L L',
u = F (x - m_h) and F F' = I^-1 such that I^-1 V I^-1 = F diag(sigma) F',

    u_a u_b T sqrt(c (sigma_a + sigma_b)) (a < b),   u_a^2 T sqrt(c sigma_a),   and  u_a sqrt(2 T sigma_a)  by step,

c = 1 and sigma = 1 for D, c = 2 for A and V: inner products are T^2 K o K + 2 T [same step] K, T^2 2 K o A +
2 T [same step] A, as in `master`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from edpbrl_gym._arrays import Booleans, Floats, Positions
from edpbrl_gym.design.solvers.newton.columns.costs import sparse_product_pays
from edpbrl_gym.design.solvers.newton.columns.master import Local
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["Coordinates", "directions"]


@dataclass(frozen=True)
class Coordinates:
    """Scaled moments of single rows around a point.

    Attributes:
        features: Features, shape (N, d).
        means: m_h, shape (H, d).
        factor: F, shape (e, d), e <= d.
        first: Index a of each second moment, shape (p,).
        second: Index b of each second moment.
        second_scale: Its scale.
        mean_scale: Scale of each mean, shape (e,).
    """

    features: Floats
    means: Floats
    factor: Floats
    first: Positions
    second: Positions
    second_scale: Floats
    mean_scale: Floats

    @classmethod
    def at(cls, local: Local, features: Floats, episodes: int) -> Coordinates:
        """The coordinates around a point, of features with any common part taken off."""
        inverse = local.inverse_factor()
        sigma, doubled = np.ones(len(inverse)), 1.0
        if local.half is not None:
            sigma, rotation = np.linalg.eigh(local.half @ local.half.T)
            sigma = np.where(sigma > len(sigma) * np.finfo(float).eps * sigma[-1], sigma, 0.0)
            inverse, doubled = rotation.T @ inverse, 2.0
        first, second = np.triu_indices(len(sigma))
        weight = doubled * np.where(first == second, sigma[first], sigma[first] + sigma[second])
        used = weight > 0
        return cls(
            features,
            local.means,
            inverse,
            first[used],
            second[used],
            episodes * np.sqrt(weight[used]),
            np.sqrt(2.0 * episodes * sigma),
        )

    @property
    def size(self) -> int:
        """Number r of moments of all steps."""
        return len(self.first) + self.means.size

    def columns(self, step: int) -> slice:
        """Where the mean of a step is; those of earlier steps come later, so that a step uses a leading part only."""
        steps, width = self.means.shape
        low = len(self.first) + (steps - 1 - step) * width
        return slice(low, low + width)

    def moments(self, step: int) -> tuple[Floats, Floats]:
        """Second moments (N, p) and mean (N, d) of every row at a step."""
        shape = (self.features - self.means[step]) @ self.factor.T
        return shape[:, self.first] * shape[:, self.second] * self.second_scale, shape * self.mean_scale

    def predicted(self, scores: Floats, change: Floats) -> Floats:
        """Scores (H, N) after a change of the moments, shape (r,), to first order."""
        count, width = len(self.first), self.means.shape[1]
        form = np.zeros((width, width))
        form[self.first, self.second] = self.second_scale * change[:count]
        form = self.factor.T @ (form + form.T) @ self.factor / 2.0
        result = np.empty_like(scores)
        for step in range(len(scores)):
            shifted = self.features - self.means[step]
            slope = self.factor.T @ (self.mean_scale * change[self.columns(step)])
            result[step] = scores[step] - np.einsum("nd,nd->n", shifted @ form, shifted) - shifted @ slope
        return result


def directions(mdp: FiniteHorizonMDP, coordinates: Coordinates, policy: Floats, chosen: Booleans) -> Floats:
    """Changes of the moments by pairs in place of the policy, Z.

    Args:
        mdp: The MDP.
        coordinates: The moments.
        policy: Policy, defined in every state that it reaches, shape (H, M).
        chosen: The pairs, shape (H, M).

    Returns:
        One row for each chosen pair, in the order of its step and number, shape (k, r).
    """
    size, count = coordinates.size, len(coordinates.first)
    result = np.zeros((int(np.count_nonzero(chosen)), size))
    end = len(result)
    onward = np.zeros((mdp.num_states, 0))  # moments from the next step on
    for step in range(mdp.horizon - 1, -1, -1):
        pairs = np.flatnonzero((policy[step] > 0) | chosen[step])
        own = coordinates.columns(step)
        values = np.zeros((len(pairs), own.stop))
        if step < mdp.horizon - 1:
            moves = mdp.transitions[pairs]
            sparse_pays = sparse_product_pays(moves.nnz, moves.shape, onward.shape[1])
            values[:, : own.start] = (moves if sparse_pays else moves.toarray()) @ onward
        second, mean = coordinates.moments(step)
        rows = mdp.pair_row[pairs]
        values[:, :count] += second[rows]
        values[:, own] += mean[rows]
        states = mdp.pair_state[pairs]
        shape = (mdp.num_states, len(pairs))
        onward = sparse.csr_array((policy[step, pairs], (states, np.arange(len(pairs)))), shape=shape) @ values
        among = chosen[step, pairs]
        begin = end - int(np.count_nonzero(among))
        result[begin:end, : own.stop] = values[among] - onward[states[among]]
        end = begin
    return result
