"""Rules that look for the best item, through the favourite items of posterior draws."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.planners.pool.base import QuestionValue, ScoreRule, search_questions
from edpbrl_gym.planners.pool.information import DirectedFisher
from edpbrl_gym.planners.pool.lanes import LaneGroup
from edpbrl_gym.planners.pool.state import PoolState

__all__ = ["DuelingThompson", "Idrl", "MaximumRegret"]


_CLASH = 1e12  # penalty on the log value for every two draws with the same favourite: such sets come last
_SETS = 40_000  # up to so many sets of draws all are tried: those of 4 of 32


class DuelingThompson:
    """Thompson sampling for duels of K.

    Source: Biyik, Huynh, Kochenderfer and Sadigh (2020), "Active preference-based Gaussian process regression for
    reward learning" (the baseline); Novoseller et al. (2020), "Dueling posterior sampling for preference-based
    reinforcement learning".

    Rule: theta_1, theta_2, ... from the posterior, S = {argmax_i theta_m . x_i}, until S holds K different items. The
    state's draws come first, then new ones. A posterior that is sure of the best item would never give a second one:
    after ``attempts`` new draws the question is filled up with the best items of theta_hat.

    Args:
        attempts: Maximum number of new draws, >= 0.
    """

    name = "dueling_thompson"
    adaptive = True

    def __init__(self, *, attempts: int = 512) -> None:
        self.attempts = check_count(attempts, "attempts", minimum=0)

    def propose(self, state: PoolState) -> Indices:
        """The favourites of K draws, each among the items that the option may be, (K,)."""
        question = np.empty(state.num_options, dtype=np.int64)
        for group in state.groups:
            question[group.lanes] = group.items[self._favourites(state, group)]
        return question

    def _favourites(self, state: PoolState, group: LaneGroup) -> Indices:
        """Indices of different items of a group, one for each option; groups start at different draws."""
        size = len(group.lanes)
        utilities = np.roll(_part(state.draw_utilities, group, state), -int(group.lanes[0]), axis=1)
        items = _distinct(utilities.argmax(axis=0))[:size]
        attempts, posterior = self.attempts, None
        while len(items) < size and attempts > 0:
            posterior = Posterior(state.mean, state.precision) if posterior is None else posterior
            count = min(attempts, len(state.draws))
            attempts -= count
            table = _part(state.items, group, state)
            favourites = (table @ posterior.draws(count, state.rng).T).argmax(axis=0)
            items = _distinct(np.concatenate([items, favourites]))[:size]
        return _filled(items, _part(state.utilities, group, state), size)


class Idrl(ScoreRule):
    """Information directed reward learning.

    Source: Lindner et al. (2021), "Information directed reward learning for reinforcement learning".

    Rule: candidates for the best item are the favourites of the draws. Of these the pair (i, j) with the largest
    Var[theta . (x_i - x_j)] is the comparison that is most uncertain; with w = x_i - x_j the question is
    argmin over S of w' (H + F(S; theta_hat))^-1 w, the variance that remains after an answer. Where all draws have
    the same favourite, the pair is the best two items of theta_hat.

    With w given, this is the rule `DirectedFisher` of that direction.
    """

    name = "idrl"
    adaptive = True

    def direction(self, state: PoolState) -> Floats:
        """w, the difference of the two candidates, (d,)."""
        candidates = _distinct(state.draw_utilities.argmax(axis=0))
        candidates = candidates if len(candidates) > 1 else _filled(candidates, state.utilities, 2)
        first, second = np.triu_indices(len(candidates), k=1)
        pairs = np.stack([candidates[first], candidates[second]], axis=1)
        best = pairs[state.products.squared_distances(pairs)[1, 0].argmax()]
        return np.asarray(state.items[best[0]] - state.items[best[1]])

    def prepare(self, state: PoolState) -> QuestionValue:
        """See the base class."""
        return DirectedFisher(direction=self.direction(state)).prepare(state)


class MaximumRegret:
    """Maximum regret.

    Source: Wilde, Kulic and Smith (2020), "Active preference learning using maximum regret" (pairs, with ratios of
    costs; differences here, since rewards may have any sign).

    Rule: with b_m the favourite of draw m and P its posterior density, the draws
    (m, n) = argmax P(m) P(n) [theta_m . (b_m - b_n) + theta_n . (b_n - b_m)], and S = {b_m, b_n}: both tastes are
    likely, and to act on the wrong one of them costs most. For K > 2 (an extension): argmax over sets of K draws of the
    product of their P times the sum of the regrets of all pairs.

    The other reading of the formula compares the same favourite under two tastes,
    max(theta_m . b_m - theta_n . b_m, 0) + max(theta_n . b_n - theta_m . b_n, 0) (``form="same_item"``). Without the
    clipping both have the same sum (theta_m - theta_n) . (b_m - b_n); only there can it change anything, as no regret
    is negative.

    Args:
        form: "regret" or "same_item".
        weights: "density" of the posterior, or "equal": the frequency of independent draws already reflects the
            density, and in many dimensions the density of a few draws outweighs every regret.
    """

    name = "maximum_regret"
    adaptive = True

    def __init__(
        self,
        *,
        form: Literal["regret", "same_item"] = "regret",
        weights: Literal["density", "equal"] = "density",
    ) -> None:
        self.form = check_choice_of(form, "form", ("regret", "same_item"))
        self.weights = check_choice_of(weights, "weights", ("density", "equal"))

    def propose(self, state: PoolState) -> Indices:
        """The favourites of the chosen draws, (K,), filled up with the best items of theta_hat.

        With lanes, option q is the favourite of its draw among the items of lane q.
        """
        draws = np.arange(len(state.draws))
        favourites = state.draw_utilities.argmax(axis=0)
        lanes = None
        if state.lanes is not None:
            lanes = tuple(q * len(draws) + draws for q in range(state.num_options))
            lane_favourites = [items[state.draw_utilities[items].argmax(axis=0)] for items in state.lanes]
            draws, favourites = np.tile(draws, len(lanes)), np.concatenate(lane_favourites)
        elif len(_distinct(favourites)) <= state.num_options:
            return _filled(_distinct(favourites), state.utilities, state.num_options)
        logs = self.log_weights(state)[draws]
        regrets = self.regrets(state, favourites, draws)
        clashes = (favourites[:, None] == favourites[None]) | (draws[:, None] == draws[None])

        def value(sets: Indices) -> Floats:
            total, penalty = np.zeros(len(sets)), np.zeros(len(sets))
            for a in range(sets.shape[1]):
                for b in range(a):
                    total += regrets[sets[:, a], sets[:, b]]
                    penalty += clashes[sets[:, a], sets[:, b]]
            return np.asarray(
                np.log(np.maximum(total, np.finfo(np.float64).tiny)) + logs[sets].sum(axis=1) - _CLASH * penalty
            )

        best, _ = search_questions(value, len(logs), state.num_options, rng=state.rng, exhaustive=_SETS, lanes=lanes)
        question = np.empty(state.num_options, dtype=np.int64)
        for group in state.groups:
            choices = np.searchsorted(group.items, _distinct(favourites[best[group.lanes]]))
            filled = _filled(choices, _part(state.utilities, group, state), len(group.lanes))
            question[group.lanes] = group.items[filled]
        return question

    def log_weights(self, state: PoolState) -> Floats:
        """Log density P of each draw up to a constant, (M,)."""
        if self.weights == "equal":
            return np.zeros(len(state.draws))
        moved = state.draws - state.mean
        return np.asarray(-0.5 * np.vecdot(moved, moved @ state.precision))

    def regrets(self, state: PoolState, favourites: Indices, draws: Indices | None = None) -> Floats:
        """Both terms of the bracket for every two favourites, (M, M), of the draws' favourites (M,).

        Args:
            state: State with the draws.
            favourites: Items, (M,).
            draws: The draw of each favourite, (M,); None: favourite m is that of draw m.
        """
        table = state.draw_utilities[favourites]
        table = table.T if draws is None else table[:, draws].T  # theta_m . b_n
        best = np.diagonal(table)
        regret = best[:, None] - (table if self.form == "regret" else table.T)
        regret = np.maximum(regret, 0.0)
        return np.asarray(regret + regret.T)


def _distinct(items: NDArray[np.integer]) -> Indices:
    """The distinct items, in the order of their first occurrence."""
    _, first = np.unique(items, return_index=True)
    return np.asarray(items[np.sort(first)], dtype=np.int64)


def _filled(items: NDArray[np.integer], utilities: Floats, size: int) -> Indices:
    """``items``, filled up to ``size`` with the best other items of theta_hat."""
    order = np.argsort(-utilities, kind="stable")
    return _distinct(np.concatenate([items, order]))[:size]


def _part(table: Floats, group: LaneGroup, state: PoolState) -> Floats:
    """The rows of a group's items; the table itself, not a copy, if these are all items."""
    return table if len(group.items) == state.num_items else table[group.items]
