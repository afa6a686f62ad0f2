"""An independent check of a design: is it feasible, what is it worth, and is its certificate true?

Nothing here is shared with the solvers: the information matrix is summed step by step from centred features, the
value comes from numpy's LU-based `slogdet` and `inv`, the flow equations are written out, and the linear oracle is a
linear program over the occupancy polytope (HiGHS) in place of value iteration. The bound does not even rely on the
program being solved well: every dual vector y gives

    max <g, d>  <=  b'y + sum_h max over admissible pairs of (g - A'y)_h     because every step has mass 1.

A criterion in closed form (`Criterion.form`) is computed here by its formula; of any other its own value and gradient
are taken, once they are checked (`faults`).

With more than `MAX_COLUMNS` steps x pairs the program takes long (a million tokens at six steps: half a minute and
5 GB). If then the MDP's tables say that every step has one state, whatever the actions (as in a prompt MDP), the
polytope is a product of simplices and the oracle is the largest reward of each step over the pairs of that state.

Features in float32 are converted a few thousand rows at a time, so the memory is bounded by that and a few arrays
(H, M), whatever the size of the features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design.faults import criterion_faults
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design

__all__ = ["Verification", "verify"]


MAX_COLUMNS = 1_000_000  # of the linear program, where there is another way
_CHUNK = 2048  # rows
_FEASIBILITY_TOLERANCE = 1e-7  # largest violation of a constraint that counts as rounding
_VALUE_TOLERANCE = 1e-8  # relative to max(1, |value|)
_GAP_TOLERANCE = 1e-8  # relative to the largest reward of an episode
_ROUNDING = 8.0 * float(np.finfo(np.float64).eps)  # relative, of a moment of uncentred features
_SOLVER_TOLERANCE = 1e-10  # the tightest that HiGHS accepts


@dataclass(frozen=True)
class Verification:
    """What an independent computation says about a design.

    Attributes:
        feasible: Whether all K occupancies are non-negative, use admissible pairs only and satisfy the flow equations.
        value: Objective of the mean occupancy; -inf if its information matrix is singular.
        gap: Certified gap; inf if there is no certificate (infeasible or singular).
        upper_bound: value + gap.
        max_violation: Largest violation of a constraint, absolute.
        messages: Everything that is wrong or disagrees with the design's own claims; empty if all is confirmed.
    """

    feasible: bool
    value: float
    gap: float
    upper_bound: float
    max_violation: float
    messages: tuple[str, ...]

    @property
    def confirmed(self) -> bool:
        """Whether the design is feasible and every claim agrees."""
        return self.feasible and not self.messages


def verify(problem: DesignProblem, design: Design) -> Verification:
    """Check a design against its problem.

    Args:
        problem: The problem that the design should answer.
        design: The design of any solver.

    Returns:
        The verification.
    """
    mdp = problem.mdp
    occupancies = np.asarray(design.occupancies, dtype=np.float64)
    expected = (problem.num_policies, mdp.horizon, mdp.num_pairs)
    if occupancies.shape != expected:
        message = f"expected occupancies of shape (K, H, M) = {expected}, got {occupancies.shape}"
        return Verification(False, np.nan, np.inf, np.inf, np.inf, (message,))
    messages: list[str] = []
    violation = 0.0
    for number, occupancy in enumerate(occupancies):
        if number and np.array_equal(occupancy, occupancies[0]):
            continue
        worst, text = _violation(problem, occupancy)
        if not worst <= _FEASIBILITY_TOLERANCE:
            messages.append(f"policy {number} is infeasible: {text}")
        violation = max(violation, worst) if np.isfinite(worst) else np.inf
    if not np.isfinite(occupancies).all():
        return Verification(False, np.nan, np.inf, np.inf, violation, tuple(messages))
    feasible = violation <= _FEASIBILITY_TOLERANCE
    mean = occupancies.mean(axis=0)
    value, rewards, rounding, trouble = _value_and_rewards(problem, mean)
    messages += trouble
    gap = np.inf
    if rewards is None:
        messages.append("the information matrix is singular: the design has no finite value and no gap")
    elif feasible:
        best, trouble = _largest_return(problem, rewards)
        gap = max(0.0, best - float((rewards * mean).sum()))
        messages += trouble
        messages += _disagreements(problem, design, value, gap, rewards, rounding)
    return Verification(feasible, value, gap, value + gap, violation, tuple(messages))


def _polytope(problem: DesignProblem) -> tuple[sparse.csr_array, Floats]:
    """Flow equations A x = b for x = d flattened from (H, M); one equation for each step and state."""
    mdp = problem.mdp
    steps, pairs, states = mdp.horizon, mdp.num_pairs, mdp.num_states
    moves = sparse.coo_array(mdp.transitions)
    entries, rows, columns = [], [], []
    for step in range(steps):
        entries.append(np.ones(pairs))
        rows.append(step * states + mdp.pair_state)
        columns.append(step * pairs + np.arange(pairs))
        if step + 1 < steps:
            source, successor = moves.coords
            entries.append(-moves.data)
            rows.append((step + 1) * states + successor)
            columns.append(step * pairs + source)
    shape = (steps * states, steps * pairs)
    matrix = sparse.csr_array((np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=shape)
    return matrix, np.concatenate([mdp.initial, np.zeros((steps - 1) * states)])


def _violation(problem: DesignProblem, occupancy: Floats) -> tuple[float, str]:
    """Largest violation of an occupancy and a text that says where it is."""
    if not np.isfinite(occupancy).all():
        return np.inf, "it has NaN or infinite entries"
    mdp = problem.mdp
    violations = []
    inflow = mdp.initial
    for step, mass in enumerate(occupancy):
        residual = np.abs(np.bincount(mdp.pair_state, weights=mass, minlength=mdp.num_states) - inflow)
        state = int(residual.argmax())
        violations.append(
            (float(residual[state]), f"the flow into state {state} at step {step} is off by {residual[state]:.3g}")
        )
        inflow = mdp.transitions.T @ mass
    forbidden = float(np.abs(np.where(mdp.admissible, 0.0, occupancy)).max())
    violations.append((float(max(0.0, -occupancy.min())), f"its smallest entry is {occupancy.min():.3g}"))
    violations.append((forbidden, f"it puts mass {forbidden:.3g} on an inadmissible pair"))
    return max(violations, key=lambda item: item[0])


def _rows(problem: DesignProblem, indices: NDArray[np.intp] | None = None) -> Iterator[tuple[slice, Floats]]:
    """Chunks of the features (of the rows `indices`) in float64, with their positions."""
    count = len(problem.features) if indices is None else len(indices)
    for begin in range(0, count, _CHUNK):
        part = slice(begin, min(begin + _CHUNK, count))
        yield part, problem.features[part if indices is None else indices[part]].astype(np.float64)


def _value_and_rewards(
    problem: DesignProblem, occupancy: Floats
) -> tuple[float, Floats | None, tuple[float, float], list[str]]:
    """Objective and the reward of each pair and step (its gradient up to a constant per step), by explicit sums.

    Then what rounding may do to value and rewards (absolute) in a computation that sums uncentred features: to first
    order an error E of the matrix moves the value by tr(G E), G the weight of the rewards. And what is wrong with the
    criterion.
    """
    dimension = problem.features.shape[1]
    matrix = _prior(problem)
    longest = max(float((rows**2).sum(axis=1).max()) for _, rows in _rows(problem))
    error = np.abs(matrix).max() + problem.episodes * problem.mdp.horizon * longest
    first = [
        next(earlier for earlier in range(step + 1) if np.array_equal(occupancy[earlier], occupancy[step]))
        for step in range(len(occupancy))
    ]  # steps with the same mass share their moments and rewards
    moments = {step: _covariance(problem, occupancy[step]) for step in set(first)}
    for step in first:
        matrix = matrix + problem.episodes * moments[step][1]
    if np.linalg.slogdet(matrix)[0] <= 0 or np.linalg.cond(matrix) > 1.0 / (dimension * np.finfo(float).eps):
        return -np.inf, None, (0.0, 0.0), []
    inverse = np.linalg.inv(matrix)
    error *= _ROUNDING
    value, weight = _value_and_gradient(problem, matrix)
    of_value = error * float(np.trace(weight))
    form = problem.criterion.form
    if form is not None and form.factor is not None:  # a factor of V leaves out eigenvalues that are rounding
        of_value += dimension * float(np.finfo(float).eps * np.linalg.norm(_target(problem), 2) * np.trace(inverse))
    of_steps = {step: _rewards(problem, mean, np.asarray(weight)) for step, (mean, _) in moments.items()}
    rewards = np.stack([of_steps[step] for step in first])
    largest = float(np.abs(rewards).max(axis=1).sum())
    of_rewards = error * (np.linalg.norm(weight, 2) + np.linalg.norm(inverse, 2) * largest)
    faults = criterion_faults(problem.criterion, matrix, value, weight, rounding=of_value)
    return value, rewards, (of_value, float(of_rewards)), faults


def _value_and_gradient(problem: DesignProblem, matrix: Floats) -> tuple[float, Floats]:
    """Value of an information matrix and gradient G, by formula where the criterion has a closed form, else its own."""
    criterion = problem.criterion
    if criterion.form is None:
        return float(criterion.value(matrix)), np.asarray(criterion.gradient(matrix), dtype=np.float64)
    inverse = np.linalg.inv(matrix)
    if not criterion.form.trace:
        return float(np.linalg.slogdet(matrix)[1]), np.asarray(inverse)
    target = _target(problem)
    return -float(np.trace(target @ inverse)), np.asarray(inverse @ target @ inverse)


def _covariance(problem: DesignProblem, mass_of_pairs: Floats) -> tuple[Floats, Floats]:
    """Mean (d,) and covariance (d, d) of the features that a step shows with these masses of the pairs."""
    mass = np.bincount(problem.mdp.pair_row, weights=mass_of_pairs, minlength=len(problem.features))
    support = np.flatnonzero(mass)
    dimension = problem.features.shape[1]
    mean, covariance = np.zeros(dimension), np.zeros((dimension, dimension))
    for part, rows in _rows(problem, support):
        mean += mass[support[part]] @ rows
    for part, rows in _rows(problem, support):
        shifted = rows - mean
        covariance += shifted.T @ (mass[support[part], None] * shifted)
    return mean, covariance


def _rewards(problem: DesignProblem, mean: Floats, weight: Floats) -> Floats:
    """Rewards T (phi - m)' G (phi - m) of the pairs at a step, shape (M,)."""
    of_rows = np.empty(len(problem.features))
    for part, rows in _rows(problem):
        shifted = rows - mean
        of_rows[part] = np.sum((shifted @ weight) * shifted, axis=1)
    return np.asarray(problem.episodes * of_rows[problem.mdp.pair_row])


def _prior(problem: DesignProblem) -> Floats:
    """Prior precision, (d, d)."""
    if problem.prior_precision is not None:
        return np.array(problem.prior_precision)
    return float(problem.regularization or 0.0) * np.eye(problem.features.shape[1])


def _target(problem: DesignProblem) -> Floats:
    """V of a trace as it was given, else B B' of its form."""
    matrix, form = getattr(problem.criterion, "matrix", None), problem.criterion.form
    if matrix is not None:
        return np.asarray(matrix)
    factor = None if form is None else form.factor
    return np.eye(problem.features.shape[1]) if factor is None else factor @ factor.T


def _largest_return(problem: DesignProblem, rewards: Floats) -> tuple[float, list[str]]:
    """Upper bound on max <rewards, d> over the polytope, and what went wrong."""
    if rewards.size > MAX_COLUMNS:
        pairs_by_step = _pairs_of_single_states(problem)
        if pairs_by_step is not None:
            return sum(float(reward[pairs].max()) for reward, pairs in zip(rewards, pairs_by_step, strict=True)), []
    return _linear_program(problem, rewards)


def _pairs_of_single_states(problem: DesignProblem) -> list[NDArray[np.bool_]] | None:
    """For each step the usable pairs of the one state that it can be in, from the tables; None if it has several."""
    mdp = problem.mdp
    pairs = []
    arrived = mdp.initial
    for admissible in mdp.admissible:
        states = np.flatnonzero(arrived)
        if len(states) != 1:
            return None
        usable = admissible & (mdp.pair_state == states[0])
        pairs.append(usable)
        arrived = mdp.transitions.T @ usable.astype(np.float64)
    return pairs


def _linear_program(problem: DesignProblem, rewards: Floats) -> tuple[float, list[str]]:
    """The bound from the dual of a linear program."""
    equations, right = _polytope(problem)
    admissible = problem.mdp.admissible.ravel()
    scale = float(np.abs(rewards).max()) or 1.0
    cost = -rewards.ravel()[admissible] / scale
    columns = sparse.csc_array(equations[:, np.flatnonzero(admissible)])
    options = {
        "primal_feasibility_tolerance": _SOLVER_TOLERANCE,
        "dual_feasibility_tolerance": _SOLVER_TOLERANCE,
    }
    answer = linprog(cost, A_eq=columns, b_eq=right, bounds=(0, None), method="highs", options=options)
    if answer.status != 0:
        return np.inf, [f"the linear program of the oracle was not solved: {answer.message}"]
    prices = np.asarray(answer.eqlin.marginals)
    reduced = np.full(rewards.size, np.inf)
    reduced[admissible] = cost - columns.T @ prices
    return -scale * float(right @ prices + reduced.reshape(rewards.shape).min(axis=1).sum()), []


def _without_data(problem: DesignProblem) -> tuple[float, float]:
    """Value of the criterion without data, -inf if the prior is singular, and what rounding may do to it (absolute).

    As for the design an error E of the matrix, here of the prior, moves the value by tr(G E). A prior that the
    criterion takes for singular counts as such.
    """
    prior = _prior(problem)
    dimension = len(prior)
    if np.linalg.eigvalsh(prior)[0] <= 0 or np.linalg.cond(prior) > 1.0 / (dimension * np.finfo(float).eps):
        return -np.inf, 0.0
    value, weight = _value_and_gradient(problem, prior)
    return value, _ROUNDING * float(np.linalg.norm(prior, 2) * np.trace(weight))


def _disagreements(
    problem: DesignProblem,
    design: Design,
    value: float,
    gap: float,
    rewards: Floats,
    rounding: tuple[float, float],
) -> list[str]:
    """Where the design's own numbers differ from the recomputed ones by more than rounding."""
    per_value = _VALUE_TOLERANCE * max(1.0, abs(value)) + rounding[0]
    per_gap = _GAP_TOLERANCE * float(np.abs(rewards).max(axis=1).sum()) + rounding[1]
    dimension = problem.features.shape[1]
    without, of_without = _without_data(problem)
    gain = value - without
    # a certified gap contains an allowance for the rounding of value and gap
    checks = [
        ("value", design.value, value, per_value, per_value),
        ("gap", design.gap, gap, per_gap, per_gap + per_value),
        ("upper_bound", design.upper_bound, value + gap, per_value + per_gap, per_value + per_gap),
    ]
    if np.isfinite(gain) and gain > 0:
        per_gain = 2 * per_value + _VALUE_TOLERANCE * abs(without) + of_without
        checks.append(("gain", design.gain, gain, per_gain, per_gain))
        if gain > 2 * per_gain:  # else it is a quotient of rounding errors
            below = 2 * (per_gap + per_gain * gap / gain) / gain
            checks.append(("relative_gap", design.relative_gap, gap / gain, below, below + 2 * per_value / gain))
    if problem.criterion.logarithmic:
        efficiency, above, below = np.exp(-gap / dimension), per_gap / dimension, (per_gap + per_value) / dimension
    else:
        efficiency = max(0.0, 1.0 - gap / abs(value))
        above = below = (per_gap + per_value) / abs(value)
    if problem.criterion.form is None:  # which may have an efficiency of its own
        efficiency = problem.criterion.efficiency(value, value + gap, dimension)
    checks.append(("efficiency", design.efficiency, float(efficiency), below + 1e-12, above + 1e-12))
    return [
        f"the design claims {name} = {claimed:.10g}, recomputed {true:.10g}"
        for name, claimed, true, below, above in checks
        if not -below <= claimed - true <= above
    ]
