"""Small problems that the design tests share."""

from __future__ import annotations

import numpy as np

from edpbrl_gym.design import DesignProblem, make_criterion, token_difference_matrix
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP


def stochastic_mdp(seed: int, *, states=30, actions=4, horizon=4, rows="state", masked=False) -> FiniteHorizonMDP:
    rng = np.random.default_rng(seed)
    transitions = 0.98 * rng.dirichlet(np.full(states, 0.05), size=(states, actions)) + 0.02 / states
    admissible = None
    if masked:
        admissible = rng.random((horizon, states, actions)) < 0.7
        admissible[..., 0] |= ~admissible.any(axis=-1)
    initial = rng.dirichlet(np.ones(states))
    return FiniteHorizonMDP.from_dense(transitions, initial, horizon, admissible=admissible, rows=rows)


def problem_of(mdp, criterion: str, *, dimension=6, seed=0, unit=False, groups=None, **options) -> DesignProblem:
    rng = np.random.default_rng(1000 + seed)
    features = rng.standard_normal((mdp.num_rows, dimension))
    if unit:
        features /= np.linalg.norm(features, axis=1, keepdims=True)
    groups = [range(mdp.num_rows)] if groups is None else groups
    target = token_difference_matrix(features, [np.array(group) for group in groups]) if criterion == "V" else None
    settings = {"num_policies": 4, "episodes": 60, "regularization": 1.0} | options
    if "prior_precision" in options:
        del settings["regularization"]
    return DesignProblem(mdp=mdp, features=features, criterion=make_criterion(criterion, target), **settings)


def random_mdp_problem(criterion: str, seed=0, **options) -> DesignProblem:
    """The issue's size: S = 30, A = 4, H = 4, d = 6, stochastic transitions."""
    return problem_of(stochastic_mdp(seed), criterion, seed=seed, **options)


def prompt_problem(criterion: str, seed=0, *, sizes=(12, 9, 10), dimension=5, **options) -> DesignProblem:
    mdp = PromptMDP(sizes)
    groups = [range(mdp.offsets[step], mdp.offsets[step + 1]) for step in range(1, len(sizes))]
    return problem_of(mdp, criterion, dimension=dimension, seed=seed, unit=True, groups=groups, **options)


def random_occupancy(mdp: FiniteHorizonMDP, rng: np.random.Generator) -> np.ndarray:
    weights = rng.random((mdp.horizon, mdp.num_pairs)) ** 3 * mdp.admissible
    return mdp.occupancy(mdp.policy_from_occupancy(weights))


def random_rows(mdp: FiniteHorizonMDP, rng: np.random.Generator) -> np.ndarray:
    return mdp.row_occupancy(random_occupancy(mdp, rng))


def smallest_eigenvalue(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
