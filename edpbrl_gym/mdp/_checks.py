"""Checks of the arrays that describe an MDP; every message names the state, pair or step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from edpbrl_gym._arrays import Floats, Positions

__all__ = [
    "SUM_TOLERANCE",
    "check_admissible",
    "check_distribution",
    "check_sizes",
    "check_transitions",
    "reachable_states",
]


SUM_TOLERANCE = 1e-8  # for the sum of a probability vector


def check_admissible(value: ArrayLike) -> NDArray[np.bool_]:
    """Return ``admissible`` as booleans; values other than 0 and 1 raise a TypeError."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        raise TypeError(f"Expected admissible as booleans (or 0 and 1), got dtype {array.dtype} with other values.")
    return array.astype(np.bool_)


def check_sizes(initial: Floats, state: Positions, action: Positions, transitions: sparse.csr_array) -> None:
    """Raise ValueError unless the arrays describe M sorted pairs over S states."""
    if initial.ndim != 1 or initial.size == 0:
        raise ValueError(f"Expected an initial distribution of shape (S,), got {initial.shape}.")
    if state.size == 0 or action.shape != state.shape:
        raise ValueError(f"Expected pair_state and pair_action of shape (M,), got {state.shape} and {action.shape}.")
    if transitions.shape != (state.size, initial.size):
        raise ValueError(
            f"Expected transitions of shape (M, S) = {(state.size, initial.size)}, got {transitions.shape}."
        )
    if state.min() < 0 or state.max() >= initial.size or action.min() < 0:
        raise ValueError(f"Expected pair_state in 0..{initial.size - 1} and pair_action >= 0.")
    increasing = (np.diff(state) > 0) | ((np.diff(state) == 0) & (np.diff(action) > 0))
    if not increasing.all():
        raise ValueError("Expected pairs sorted by state, then action, without repeats; sort them with numpy.lexsort.")


def check_distribution(weights: Floats, name: str) -> None:
    """Raise ValueError unless the weights are finite, non-negative and sum to 1."""
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise ValueError(f"Expected {name} with finite, non-negative probabilities.")
    total = float(weights.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"Expected {name} that sums to 1, got {total:.6g}.")


def check_transitions(transitions: sparse.csr_array, state: Positions, action: Positions) -> None:
    """Raise ValueError unless every row of P is a distribution; the message names the first wrong pair."""
    if not np.isfinite(transitions.data).all() or (transitions.nnz and transitions.data.min() < 0):
        raise ValueError("Expected transitions with finite, non-negative probabilities.")
    totals = np.asarray(transitions.sum(axis=1)).ravel()
    off = np.flatnonzero(np.abs(totals - 1.0) > SUM_TOLERANCE)
    if off.size:
        pair = int(off[0])
        raise ValueError(
            f"Expected transition probabilities that sum to 1, got {totals[pair]:.6g} for state {state[pair]}, "
            f"action {action[pair]}."
        )


def reachable_states(
    initial: Floats,
    transitions: sparse.csr_array,
    pair_state: Positions,
    admissible: NDArray[np.bool_],
    *,
    allow_unreachable: bool,
) -> NDArray[np.bool_]:
    """Mask of the states that some policy reaches at each step, (H, S); the arguments are those of the MDP.

    Raises:
        ValueError: If a reachable state has no admissible pair, or (unless allowed) a state is never reached.
    """
    horizon = admissible.shape[0]
    reachable = np.zeros((horizon, initial.size), dtype=np.bool_)
    reachable[0] = initial > 0
    for step in range(horizon):
        usable = admissible[step] & reachable[step][pair_state]
        alive = np.zeros(initial.size, dtype=np.bool_)
        alive[pair_state[usable]] = True
        dead = np.flatnonzero(reachable[step] & ~alive)
        if dead.size:
            raise ValueError(f"State {dead[0]} is reachable at step {step} but has no admissible action there.")
        if step < horizon - 1:
            reachable[step + 1] = (transitions.T @ usable.astype(np.float64)) > 0
    missing = np.flatnonzero(~reachable.any(axis=0))
    if missing.size and not allow_unreachable:
        raise ValueError(
            f"State {missing[0]} can't be reached from the initial distribution within {horizon} steps "
            f"({missing.size} such states); remove it or pass allow_unreachable=True."
        )
    return reachable
