"""Exchange of whole trajectories, for MDPs where one action changes everything that follows.

With deterministic transitions and one initial state a trajectory is a sequence of actions that can be played. The
candidates are samples of the design's policies and of the uniform policy; before a lane is replaced, value iteration
adds the best path of all for the gradient at that moment, with the reward phi'G phi - 2 phi'G m_h (m_h the mean of the
other lanes' options at step h, G = ds/dI).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym.design.deadline import NEVER
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.query_sets.repair import InfeasibleRestrictionsError
from edpbrl_gym.design.query_sets.restrictions import TokenRules
from edpbrl_gym.design.query_sets.state import InverseState, least_gain, option_weight
from edpbrl_gym.design.result import Design
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP

__all__ = ["PathExchange", "candidate_pairs", "first_paths", "trajectory_pairs"]


_WORK = 2e8  # multiplications for the exact gains of one lane's candidates
_TRIES = 200  # attempts at lanes that keep the restrictions


def trajectory_pairs(mdp: FiniteHorizonMDP, actions: Indices) -> Indices:
    """State-action pairs of sequences of actions.

    Args:
        mdp: A `PromptMDP`, or one with deterministic transitions and one initial state.
        actions: Shape (n, H).

    Returns:
        Pairs (n, H).

    Raises:
        ValueError: If the MDP is of another kind, or an action is not admissible where it is taken.
    """
    if isinstance(mdp, PromptMDP):
        _check_actions(actions, np.broadcast_to(np.array(mdp.sizes), actions.shape) > actions)
        return np.asarray(actions + mdp.offsets[:-1], dtype=np.int64)
    successor = _successors(mdp)
    table = np.full((mdp.num_states, mdp.num_actions), -1, dtype=np.int64)
    table[mdp.pair_state, mdp.pair_action] = np.arange(mdp.num_pairs)
    states = np.full(len(actions), int(np.flatnonzero(mdp.initial)[0]))
    pairs = np.empty_like(actions)
    for step in range(mdp.horizon):
        fits = (actions[:, step] >= 0) & (actions[:, step] < mdp.num_actions)
        pairs[:, step] = table[states, np.where(fits, actions[:, step], 0)]
        legal = fits & (pairs[:, step] >= 0) & mdp.admissible[step, pairs[:, step]]
        _check_actions(actions[:, step], legal, step)
        states = successor[pairs[:, step]]
    return pairs


def _check_actions(actions: Indices, legal: NDArray[np.bool_], step: int | None = None) -> None:
    wrong = ~legal | (actions < 0)
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        at = step if step is not None else index[-1]
        raise ValueError(
            f"Expected actions that exist where they are taken, got {int(actions[index])} at step {at} "
            f"of trajectory {index[0]}."
        )


def _successors(mdp: FiniteHorizonMDP) -> Indices:
    deterministic = mdp.transitions.nnz == mdp.num_pairs and bool((mdp.transitions.data == 1.0).all())
    if not deterministic or np.count_nonzero(mdp.initial) != 1:
        raise ValueError(
            "Expected an MDP with deterministic transitions and one initial state, got a random one; its trajectories "
            "can't be chosen, only its policies: play the design's policies instead."
        )
    return mdp.transitions.indices.astype(np.int64)


def candidate_pairs(design: Design, count: int, rng: np.random.Generator) -> Indices:
    """Different trajectories as pairs (n, H): three of four from the design's policies, the others uniform.

    Raises:
        ValueError: If the MDP's trajectories can't be chosen.
    """
    mdp = design.problem.mdp
    _successors(mdp)
    share = max(1, (3 * count) // (4 * design.problem.num_policies))
    samples = [mdp.sample(policy, share, rng).pairs for policy in design.policies]
    samples.append(mdp.sample(mdp.uniform_policy(), max(1, count // 4), rng).pairs)
    return np.unique(np.concatenate(samples), axis=0).astype(np.int64)


def first_paths(problem: DesignProblem, pairs: Indices, rules: TokenRules, rng: np.random.Generator) -> Indices:
    """Random candidates for every lane that keep the restrictions: indices (T, K).

    Raises:
        InfeasibleRestrictionsError: If no such lanes are found among the candidates.
    """
    rows = problem.mdp.pair_row[pairs]
    lanes = problem.num_policies
    paths = np.empty((problem.episodes, lanes), dtype=np.int64)
    for episode in range(problem.episodes):
        for _ in range(_TRIES):
            episode_paths: list[int] = []
            while len(episode_paths) < lanes:
                candidates = np.flatnonzero(rules.allowed_lanes(rows, rows[np.array(episode_paths, dtype=np.intp)]))
                if not candidates.size:
                    break
                episode_paths.append(int(rng.choice(candidates)))
            if len(episode_paths) == lanes:
                break
        else:
            raise InfeasibleRestrictionsError(
                f"Expected K = {lanes} of {len(rows)} candidate trajectories that keep the restrictions "
                f"({rules.describe()}) in one episode, none were found in {_TRIES} tries; take more candidates, fewer "
                "lanes or fewer restrictions."
            )
        paths[episode] = episode_paths
        if episode == 0 and rules.restrictions.shared_base == "all":
            rules = rules.with_base(int(rows[episode_paths[0], 0]))
    return paths


class PathExchange:
    """Replaces one trajectory at a time as long as the criterion gains.

    Args:
        problem: The design problem; its MDP is deterministic with one initial state.
        pairs: Candidates, shape (n, H).
        paths: Index of the candidate of each lane, shape (T, K).
        state: Information and inverse; reset to these trajectories.
        rules: The restrictions, bound to the feature rows.

    Attributes:
        exchanges: Trajectories replaced so far.
    """

    encoded_texts = 0
    exhausted = False
    deadline = NEVER

    def __init__(
        self, problem: DesignProblem, pairs: Indices, paths: Indices, state: InverseState, rules: TokenRules
    ) -> None:
        self.exchanges = 0
        self._problem, self._mdp, self._state = problem, problem.mdp, state
        self._features = problem.rows(slice(None))
        self._pairs, self._paths = pairs, paths
        if rules.restrictions.shared_base == "all":
            rules = rules.with_base(int(problem.mdp.pair_row[pairs[paths[0, 0], 0]]))
        self._rules = rules
        self._weight = option_weight(paths.shape[1])
        self._successor = _successors(problem.mdp)
        self._reset()

    @property
    def tokens(self) -> Indices:
        """Actions of the trajectories, shape (T, K, H)."""
        return np.asarray(self._mdp.pair_action[self._pairs[self._paths]], dtype=np.int64)

    @property
    def value(self) -> float:
        """The criterion."""
        return self._state.value

    def _reset(self) -> float:
        options = self._features[self._rows(self._paths)].transpose(0, 2, 1, 3)  # (T, H, K, d)
        return self._state.reset(options.reshape(-1, *options.shape[2:]))

    def _rows(self, paths: Indices) -> Indices:
        return np.asarray(self._mdp.pair_row[self._pairs[paths]], dtype=np.int64)

    def sweep(self, rng: np.random.Generator) -> float:
        """Go through all lanes once; returns the value, computed anew."""
        lanes = self._paths.shape[1]
        for index in rng.permutation(self._paths.size):
            if self.deadline.passed:
                break
            self._improve_lane(*divmod(int(index), lanes))
        return self._reset()

    def _improve_lane(self, episode: int, lane: int) -> None:
        state = self._state
        other_rows = self._rows(np.delete(self._paths[episode], lane))
        options = self._features[self._rows(self._paths[episode, lane])]
        mean = self._features[other_rows].mean(axis=0)  # (H, d)
        curvature = state.curvature
        slopes = mean @ curvature @ self._features.T
        rewards = np.vecdot(self._features @ curvature, self._features) - 2.0 * slopes  # (H, N)
        self._add_best_path(rewards)
        rows = self._mdp.pair_row[self._pairs]
        score = np.take_along_axis(rewards, rows.T, axis=1).sum(axis=0)
        score[~self._rules.allowed_lanes(rows, other_rows)] = -np.inf
        score[self._paths[episode, lane]] = -np.inf
        limit = max(8, int(_WORK / (2 * len(options) * options.shape[1] ** 2)))
        best = np.argsort(-score, kind="stable")[:limit]
        best = best[np.isfinite(score[best])]
        if not best.size:
            return
        removals = np.broadcast_to(options - mean, (len(best), *options.shape))
        changes = np.concatenate([removals, self._features[rows[best]] - mean], axis=1)
        signs = np.repeat([-self._weight, self._weight], len(options))
        gains = state.gains(changes, signs)
        winner = int(np.argmax(gains))
        if gains[winner] > least_gain(state.value):
            state.change(changes[winner], signs)
            self._paths[episode, lane] = best[winner]
            self.exchanges += 1
            if state.worn:
                state.refresh()

    def _add_best_path(self, rewards: Floats) -> None:
        """Add the path of largest reward to the candidates."""
        policy, _ = self._mdp.best_response(rewards)
        state = int(np.flatnonzero(self._mdp.initial)[0])
        path = np.empty(self._mdp.horizon, dtype=np.int64)
        for step in range(self._mdp.horizon):
            path[step] = np.flatnonzero((policy[step] > 0) & (self._mdp.pair_state == state))[0]
            state = int(self._successor[path[step]])
        if not (self._pairs == path).all(axis=1).any():
            self._pairs = np.concatenate([self._pairs, path[None]])
