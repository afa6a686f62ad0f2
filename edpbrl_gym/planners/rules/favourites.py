"""Rules whose question holds the favourite items of posterior draws.

Sources: Thompson sampling for duels, E. Biyik, N. Huynh, M. Kochenderfer and D. Sadigh, "Active preference-based
Gaussian process regression for reward learning" (2020; the baseline), and E. Novoseller et al., "Dueling posterior
sampling for preference-based reinforcement learning" (2020). Maximum regret: N. Wilde, D. Kulic and S. Smith, "Active
preference learning using maximum regret" (2020), for pairs and with ratios of costs; differences here, since rewards
may have any sign.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.planners.rules.search import search_questions
from edpbrl_gym.planners.rules.state import LaneGroup, Lanes, PoolState

__all__ = ["dueling_thompson", "maximum_regret"]

_CLASH = 1e12  # penalty on the log value for every two draws with the same favourite: such sets come last
_SETS = 40_000  # up to so many sets of draws all are tried: those of 4 of 32


def dueling_thompson(state: PoolState, *, attempts: int = 512) -> Indices:
    """Thompson sampling for duels of K: the favourites argmax_i theta_m . x_i of draws until K items differ.

    The state's draws come first, then new ones. A posterior that is sure of the best item would never give a second
    one: after ``attempts`` new draws, >= 0, the question is filled up with the best items of theta_hat.
    """
    question = np.empty(state.num_options, dtype=np.int64)
    for group in state.groups:
        question[group.options] = group.items[_drawn_favourites(state, group, attempts)]
    return question


def maximum_regret(state: PoolState) -> Indices:
    """The favourites of the draws with the largest regret of acting on one where another is true.

    With b_m the favourite of draw m and P its posterior density, the draws (m, n) = argmax P(m) P(n)
    [theta_m . (b_m - b_n) + theta_n . (b_n - b_m)], and S = {b_m, b_n}: both tastes are likely, and to act on the wrong
    one of them costs most. For K > 2 (an extension): argmax over sets of K draws of the product of their P times the
    sum of the regrets of all pairs. Too few favourites are filled up with the best items of theta_hat. With lanes,
    option q is the favourite of its draw among the items of its lane.
    """
    draws = np.arange(len(state.draws))
    favourites = state.draw_utilities.argmax(axis=0)
    lanes = None
    if state.lanes is not None:
        of_option = np.empty((state.num_options, len(draws)), dtype=np.int64)
        for items, options in state.groups:
            of_option[options] = items[state.draw_utilities[items].argmax(axis=0)]
        places = np.arange(state.num_options)
        lanes = Lanes(np.repeat(places, len(draws)), places)
        draws, favourites = np.tile(draws, state.num_options), of_option.ravel()
    elif len(distinct(favourites)) <= state.num_options:
        return filled(distinct(favourites), state.utilities, state.num_options)
    moved = state.draws - state.mean
    logs = (-0.5 * np.vecdot(moved, moved @ state.precision))[draws]  # posterior density up to a constant
    utilities = state.draw_utilities[favourites][:, draws].T  # theta_m . b_n
    regrets = np.maximum(np.diagonal(utilities)[:, None] - utilities, 0.0)
    regrets = regrets + regrets.T
    clashes = (favourites[:, None] == favourites[None]) | (draws[:, None] == draws[None])

    def value(sets: Indices) -> Floats:
        total, penalty = np.zeros(len(sets)), np.zeros(len(sets))
        for a in range(sets.shape[1]):
            for b in range(a):
                total += regrets[sets[:, a], sets[:, b]]
                penalty += clashes[sets[:, a], sets[:, b]]
        smallest = np.finfo(np.float64).tiny
        return np.asarray(np.log(np.maximum(total, smallest)) + logs[sets].sum(axis=1) - _CLASH * penalty)

    best, _ = search_questions(value, len(logs), state.num_options, rng=state.rng, exhaustive=_SETS, lanes=lanes)
    question = np.empty(state.num_options, dtype=np.int64)
    for group in state.groups:
        choices = np.searchsorted(group.items, distinct(favourites[best[group.options]]))
        question[group.options] = group.items[filled(choices, _of_group(state.utilities, group), len(group.options))]
    return question


def distinct(items: NDArray[np.integer]) -> Indices:
    """The distinct items, in the order of their first occurrence."""
    _, first = np.unique(items, return_index=True)
    return np.asarray(items[np.sort(first)], dtype=np.int64)


def filled(items: NDArray[np.integer], utilities: Floats, size: int) -> Indices:
    """``items``, filled up to ``size`` with the best other items of theta_hat."""
    order = np.argsort(-utilities, kind="stable")
    return distinct(np.concatenate([items, order]))[:size]


def _drawn_favourites(state: PoolState, group: LaneGroup, attempts: int) -> Indices:
    """Indices of different items of a group, one for each option; groups start at different draws."""
    size = len(group.options)
    utilities = np.roll(_of_group(state.draw_utilities, group), -int(group.options[0]), axis=1)
    items = distinct(utilities.argmax(axis=0))[:size]
    posterior = None
    while len(items) < size and attempts > 0:
        posterior = Posterior(state.mean, state.precision) if posterior is None else posterior
        count = min(attempts, len(state.draws))
        attempts -= count
        favourites = (_of_group(state.items, group) @ posterior.draws(count, state.rng).T).argmax(axis=0)
        items = distinct(np.concatenate([items, favourites]))[:size]
    return filled(items, _of_group(state.utilities, group), size)


def _of_group(table: Floats, group: LaneGroup) -> Floats:
    """The rows of a group's items; the table itself, not a copy, if these are all items."""
    return table if len(group.items) == len(table) else table[group.items]
