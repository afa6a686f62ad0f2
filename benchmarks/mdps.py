"""Random MDPs that build no prompts, for the benchmarks of designs.

The rows are the states. Their features are Gaussian, with variance 1/j along the j-th axis ("decaying") or 1 along all
("isotropic").
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from edpbrl_gym._arrays import Floats
from edpbrl_gym.mdp import FiniteHorizonMDP

__all__ = ["graph", "stochastic_mdp"]


def stochastic_mdp(
    states: int,
    actions: int,
    horizon: int,
    dimension: int,
    seed: int,
    spectrum: str = "decaying",
    successors: int = 10,
    *,
    concentration: float = 1.0,
    one_start: bool = False,
) -> tuple[FiniteHorizonMDP, Floats]:
    """Every action leads to some random states, with probabilities from a symmetric Dirichlet distribution.

    Where it leads to many, all policies visit nearly the same states, and a dozen Frank-Wolfe steps come within 1e-4 of
    the optimum. Where it leads to few (3 successors, concentration 0.2, one start), it takes thousands.

    Args:
        states: Number of states S.
        actions: Number of actions A in every state.
        horizon: Number of steps H.
        dimension: Number of features d.
        seed: Seed of everything random.
        spectrum: "decaying" or "isotropic".
        successors: States that an action may lead to.
        concentration: Of the Dirichlet distribution: 1 is flat, small is nearly deterministic.
        one_start: Whether the mass starts in the first state, not in all states with random probabilities.

    Returns:
        The MDP and the features of its states, shape (S, d).
    """
    rng = np.random.default_rng(seed)
    count = min(successors, states)
    targets = np.concatenate([rng.choice(states, count, replace=False) for _ in range(states * actions)])
    chances = rng.dirichlet(np.full(count, concentration), size=states * actions).ravel()
    initial = rng.dirichlet(np.ones(states))
    if one_start:
        initial = np.eye(states)[0]
    mdp = _mdp(targets, chances, states, actions, horizon, initial)
    return mdp, _features(rng, states, dimension, spectrum)


def graph(
    states: int, successors: int, horizon: int, dimension: int, seed: int, spectrum: str = "decaying"
) -> tuple[FiniteHorizonMDP, Floats]:
    """Every action leads to one of the random successors of its state; the mass starts in the first state.

    Returns:
        The MDP and the features of its states, shape (S, d).
    """
    rng = np.random.default_rng(seed)
    count = min(successors, states)
    targets = np.concatenate([rng.choice(states, count, replace=False) for _ in range(states)])
    mdp = _mdp(targets, np.ones(len(targets)), states, count, horizon, np.eye(states)[0])
    return mdp, _features(rng, states, dimension, spectrum)


def _mdp(
    targets: np.ndarray, chances: Floats, states: int, actions: int, horizon: int, initial: Floats
) -> FiniteHorizonMDP:
    pairs = states * actions
    width = len(targets) // pairs
    transitions = sparse.csr_array((chances, targets, width * np.arange(pairs + 1)), shape=(pairs, states))
    return FiniteHorizonMDP(
        pair_state=np.repeat(np.arange(states), actions),
        pair_action=np.tile(np.arange(actions), states),
        transitions=transitions,
        initial=initial,
        horizon=horizon,
        allow_unreachable=True,
    )


def _features(rng: np.random.Generator, states: int, dimension: int, spectrum: str) -> Floats:
    scales = {"decaying": np.arange(1, dimension + 1) ** -0.5, "isotropic": np.ones(dimension)}
    if spectrum not in scales:
        raise ValueError(f"Expected the spectrum {' or '.join(scales)}, got {spectrum!r}.")
    return np.asarray(rng.standard_normal((states, dimension)) * scales[spectrum])
