"""Design problems on which rounding and degeneracy show, and dense scores to check designs of them against."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from edpbrl_gym.design import DesignProblem, make_criterion
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP
from tests.helpers.design_cases import stochastic_mdp


def deterministic_mdp(seed, *, states=20, actions=3, horizon=4, rows="state", masked=False, roots=1):
    """Every pair has one random successor; the mass starts in one or several states."""
    rng = np.random.default_rng(seed)
    transitions = np.zeros((states, actions, states))
    np.put_along_axis(transitions, rng.integers(states, size=(states, actions, 1)), 1.0, axis=2)
    admissible = None
    if masked:
        admissible = rng.random((horizon, states, actions)) < 0.7
        admissible[..., 0] |= ~admissible.any(axis=-1)
    initial = np.zeros(states)
    initial[:roots] = rng.dirichlet(np.ones(roots))
    return FiniteHorizonMDP.from_dense(
        transitions, initial, horizon, admissible=admissible, rows=rows, allow_unreachable=True
    )


def repeated_problem(features, sizes, criterion="D", target=None, **options) -> DesignProblem:
    options = {"num_policies": 2, "episodes": 60} | options
    mdp = PromptMDP.repeated(sizes, 6) if isinstance(sizes, int) else PromptMDP(sizes)
    return DesignProblem(mdp=mdp, features=features, criterion=make_criterion(criterion, target), **options)


def dense_scores(problem: DesignProblem, occupancy) -> tuple[list[np.ndarray], list[float], float]:
    """Scores of the tokens at each step, their mean under the weights, and an allowance for float64, summed."""
    features, matrix, centred = problem.features.astype(np.float64), np.array(problem.prior), []
    for mass in occupancy:
        used = np.flatnonzero(mass)
        shift = features[used[0]]  # differences of equal magnitude: exact for a large common mean
        moved = features - shift
        rows = moved - mass[used] @ moved[used]
        matrix += problem.episodes * (rows[used].T * mass[used]) @ rows[used]
        centred.append(rows)
    inverse = np.linalg.inv(matrix)
    weight = inverse
    if problem.criterion.name != "D":
        target = np.eye(len(matrix)) if problem.criterion.name == "A" else problem.criterion.matrix
        weight = inverse @ target @ inverse
    scores, levels = [], []
    for step, (mass, rows) in enumerate(zip(occupancy, centred, strict=True)):
        own = problem.mdp.step_pairs(step)
        scores.append(problem.episodes * np.einsum("nd,nd->n", rows[own] @ weight, rows[own]))
        levels.append(float(mass[own] @ scores[-1]))
    # an error E of the matrix, eps of its largest entries, moves the scores by |G| |E| and |I^-1| |E| of themselves
    error = 64 * np.finfo(float).eps * np.linalg.norm(matrix, 2)
    largest = sum(float(own.max()) for own in scores)
    rounding = error * (np.linalg.norm(weight, 2) + np.linalg.norm(inverse, 2) * largest)
    return scores, levels, float(rounding)


def gap_of(problem: DesignProblem, occupancy) -> tuple[float, float]:
    scores, levels, rounding = dense_scores(problem, occupancy)
    return sum(float(own.max()) - level for own, level in zip(scores, levels, strict=True)), rounding


@st.composite
def screened_problems(draw) -> DesignProblem:
    """Enough tokens to screen; what float32 finds hard; several blocks, one of them perhaps a single token."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    repeated = draw(st.booleans())
    sizes = draw(st.sampled_from([[90], [70, 40], [100, 1], [50, 30, 20]]))
    count, dimension = sum(sizes), draw(st.sampled_from([2, 5, 12, 150]))
    features = rng.standard_normal((count, dimension))
    features *= np.arange(1, dimension + 1) ** -draw(st.sampled_from([0.0, 1.0, 3.0]))
    features = features @ np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
    features *= draw(st.sampled_from([1.0, 30.0]))
    for kind in draw(st.lists(st.sampled_from(["equal", "nearly equal", "zero"]), max_size=2)):
        chosen, source = rng.integers(count, size=(2, count // 3))
        features[chosen] = 0.0 if kind == "zero" else features[source]
        if kind == "nearly equal":
            features[chosen] += 1e-7 * rng.standard_normal((count // 3, dimension))
    features += draw(st.sampled_from([0.0, 1.0, 1e3, 1e5])) * rng.standard_normal(dimension)
    criterion, target = draw(st.sampled_from(["D", "A", "V1", "V"])), None
    if criterion[0] == "V":
        factor = rng.standard_normal((dimension, 1 if criterion == "V1" else dimension))
        target = factor @ factor.T
    options: dict = {"regularization": draw(st.sampled_from([1e-3, 1e-1, 1.0, 1e2, 1e3]))}
    if draw(st.booleans()):
        root = rng.standard_normal((dimension, dimension))
        options = {"prior_precision": options["regularization"] * (root @ root.T + 1e-2 * np.eye(dimension))}
    single = draw(st.booleans())
    return repeated_problem(
        features.astype(np.float32) if single else features,
        count if repeated else sizes,
        criterion[0],
        target,
        **options,
    )


@st.composite
def hard_mdp_problems(draw) -> DesignProblem:
    """Duplicates, zero rows, a strong common mean, inadmissible pairs, one action, one step, any prior."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    make = draw(st.sampled_from([deterministic_mdp, stochastic_mdp]))
    mdp = make(
        seed,
        states=draw(st.sampled_from([1, 2, 6, 15])),
        actions=draw(st.sampled_from([1, 2, 4])),
        horizon=draw(st.sampled_from([1, 2, 4])),
        rows=draw(st.sampled_from(["state", "pair"])),
        masked=draw(st.booleans()),
    )
    dimension = draw(st.sampled_from([1, 2, 5]))
    features = rng.standard_normal((mdp.num_rows, dimension))
    if draw(st.booleans()):
        features += draw(st.sampled_from([1.0, 30.0])) * rng.standard_normal(dimension)
    for change in draw(st.lists(st.sampled_from(["equal", "zero"]), max_size=2)):
        chosen = rng.integers(len(features), size=max(1, len(features) // 3))
        source = features[rng.integers(len(features), size=len(chosen))]
        features[chosen] = 0.0 if change == "zero" else source
    criterion = draw(st.sampled_from(["D", "A", "V"]))
    factor = rng.standard_normal((dimension, draw(st.integers(1, dimension))))
    return DesignProblem(
        mdp=mdp,
        features=features,
        num_policies=3,
        episodes=draw(st.sampled_from([1, 60])),
        criterion=make_criterion(criterion, factor @ factor.T if criterion == "V" else None),
        regularization=draw(st.sampled_from([1e-3, 1.0, 1e2, 1e3])),
    )
