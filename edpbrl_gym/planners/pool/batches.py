"""Rules that plan many questions at once, without answers, and the baselines: random questions, random rollouts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_count
from edpbrl_gym.planners.pool.base import Rule
from edpbrl_gym.planners.pool.lanes import draw_questions
from edpbrl_gym.planners.pool.state import PoolState
from edpbrl_gym.planners.pool.subsets import SubsetDesign, check_share, solve_subset_design, thin

__all__ = ["DopeWolfe", "RandomQuestions", "RolloutPool", "Thinning"]


class RandomQuestions:
    """K different items, each set equally likely.

    Source: the baseline of all papers on the subject.

    Rule: S uniform over the K-subsets of the pool.
    """

    name = "random_distinct"
    source = "baseline"
    adaptive = False
    higher = "nothing"

    def propose(self, state: PoolState) -> Indices:
        """K items, (K,)."""
        return self.plan(state, 1)[0]

    def plan(self, state: PoolState, questions: int) -> Indices:
        """So many independent questions, (T, K)."""
        return _random(check_count(questions, "questions"), state)


class Thinning:
    """Batch thinning: of a batch of candidate questions ask as few as carry the information of all of them.

    Source: Schlaginhaufen, Ouhamma and Kamgarpour (2025), "Efficient preference-based reinforcement learning:
    randomized exploration meets experimental design".

    Rule: W = V; keep picking argmax over the batch of x' W^-1 x, x the difference of a pair, and add x x' to W, until
    det W is that of V plus the whole batch. For K options x x' is F(S; 0), and the pick is
    argmax log det(W + F(S; 0)), the same for K = 2 where F(S; 0) = x x' / 4. A candidate may be picked again: it is
    what lets fewer questions reach the determinant of all. Where they don't, the batch is asked as it is.

    The candidates are random questions, ``oversampling`` times as many as there are to ask; ``thin`` takes any batch.

    Args:
        oversampling: Candidates for each question, >= 1.
        repeats: Whether a candidate may be picked again.
        share: Stop at this share of the whole batch's gain in log det, in (0, 1].
    """

    name = "thinning"
    source = (
        'Schlaginhaufen et al. (2025), "Efficient preference-based reinforcement learning: randomized exploration '
        'meets experimental design"'
    )
    adaptive = False
    higher = "log det of the information at theta = 0, with few of the questions of a batch"

    def __init__(self, *, oversampling: int = 4, repeats: bool = True, share: float = 1.0) -> None:
        self.oversampling = check_count(oversampling, "oversampling")
        self.repeats = bool(repeats)
        self.share = check_share(share)

    def propose(self, state: PoolState) -> Indices:
        """The first pick of a batch that is drawn for it, (K,).

        One question has the candidates of 64, so that the best of them is worth something.
        """
        candidates = _random(64 * self.oversampling, state)
        return thin(candidates, state.items, state.agnostic, limit=1)[0]

    def plan(self, state: PoolState, questions: int) -> Indices:
        """At most so many questions, in the order of the picks, (T, K)."""
        count = check_count(questions, "questions")
        candidates = _random(self.oversampling * count, state)
        return thin(candidates, state.items, state.agnostic, limit=count, repeats=self.repeats, share=self.share)


class DopeWolfe:
    """D-optimal design over distributions on K-subsets, by a randomised Frank-Wolfe method; its questions are samples.

    Source: Thekumparampil, Hiranandani, Kalantari, Sabach and Kveton (2025), "Comparing few to rank many: active human
    preference learning using randomized Frank-Wolfe method".

    Rule: max over distributions pi on K-subsets of log det sum_S pi_S K^2 F(S; 0), K^2 F(S; 0) = sum over the pairs of
    S of (x_i - x_j)(x_i - x_j)'. Each step scores random subsets only and moves to the best of them. T independent
    samples from pi are the questions.

    The design of a pool is solved once and kept; with its own seed, so that it depends on the pool only.

    Args:
        subsets: Random subsets scored in each step, >= 1.
        iterations: Steps, >= 1; None: 18 d, at least 600. With too few of them much of the weight is still on the
            random subsets of the start (``gap`` and ``start`` of the design tell).
        seed: Of the random subsets.
    """

    name = "dopewolfe"
    source = 'Thekumparampil et al. (2025), "Comparing few to rank many"'
    adaptive = False
    higher = "log det of the expected information at theta = 0 of a distribution of questions"

    def __init__(self, *, subsets: int = 64, iterations: int | None = None, seed: int = 0) -> None:
        self.subsets = check_count(subsets, "subsets")
        self.iterations = None if iterations is None else check_count(iterations, "iterations")
        self.seed = check_count(seed, "seed", minimum=0)
        self._solved: tuple[_Pool, SubsetDesign] | None = None  # with the pool that it is of

    def propose(self, state: PoolState) -> Indices:
        """One sample of the design, (K,)."""
        return self.plan(state, 1)[0]

    def plan(self, state: PoolState, questions: int) -> Indices:
        """So many independent samples of the design, (T, K)."""
        return self.design(state).sample(check_count(questions, "questions"), state.rng)

    def design(self, state: PoolState) -> SubsetDesign:
        """The design of the state's pool; the first state of a pool solves it."""
        kept = self._solved
        if kept is None or not kept[0].is_of(state) or kept[1].questions.shape[1] != state.num_options:
            design = solve_subset_design(
                state.items,
                state.num_options,
                rng=np.random.default_rng([self.seed, state.num_items]),
                subsets=self.subsets,
                iterations=max(600, 18 * state.dimension) if self.iterations is None else self.iterations,
                lanes=state.lanes,
            )
            self._solved = kept = (_Pool.of(state), design)
        return kept[1]


class RolloutPool:
    """Any rule on a pool of random rollouts: the candidates are drawn once, and no search looks beyond them.

    Source: baseline; what sampling-based packages do where a trajectory is an option.

    Rule: that of ``rule``, on ``size`` random items of the pool (all of a smaller one), and on items asked about before
    by anybody. About prompts of several steps `RulePlanner` gives it random trajectories for items.

    Args:
        rule: The rule that chooses from the candidates: its name, or itself.
        size: Candidates, >= 2.
        seed: Of the candidates.
    """

    name = "rollout_pool"
    source = "baseline"
    adaptive = False  # these two are those of the rule inside
    higher = "nothing"

    def __init__(self, *, rule: str | Rule = "random_distinct", size: int = 2000, seed: int = 0) -> None:
        if isinstance(rule, str):
            from edpbrl_gym.planners.registry import make_rule  # which knows this module

            rule = make_rule(rule)
        self.rule = rule
        self.size = check_count(size, "size", minimum=2)
        self.seed = check_count(seed, "seed", minimum=0)
        self.adaptive = rule.adaptive
        self.higher = rule.higher
        self._drawn: tuple[_Pool, Indices, Floats] | None = None  # the whole pool, the candidates, their features

    def propose(self, state: PoolState) -> Indices:
        """The rule's question, (K,), of the candidates and of items that were asked about before."""
        places, features = self._candidates(state)
        known = len(places)
        asked = np.array(state.asked, dtype=np.int64).reshape(-1, state.num_options)
        # some rules look at the options asked before, so these are items of the inner pool too
        outside = np.setdiff1d(asked, places)
        if len(outside):
            places = np.concatenate([places, outside])
            features = state.items[places]
        position = {int(place): index for index, place in enumerate(places)}
        inner = PoolState(
            items=features,
            mean=state.mean,
            precision=state.precision,
            draws=state.draws,
            agnostic=state.agnostic,
            num_options=state.num_options,
            rng=state.rng,
            asked=tuple(tuple(position[int(i)] for i in row) for row in asked),
            lanes=_lanes_within(places[:known], state),
            past=state.past,
        )
        return places[self.rule.propose(inner)]

    def _candidates(self, state: PoolState) -> tuple[Indices, Floats]:
        if self._drawn is None or not self._drawn[0].is_of(state):
            rng = np.random.default_rng([self.seed, state.num_items])
            parts = []
            for group in state.groups:  # each gets its share of the candidates
                options = len(group.lanes)
                size = max(options, min(-(-self.size * options // state.num_options), len(group.items)))
                parts.append(group.items[rng.choice(len(group.items), size, replace=False)])
            places = np.sort(np.concatenate(parts))
            self._drawn = (_Pool.of(state), places, state.items[places])
        return self._drawn[1], self._drawn[2]


@dataclass(frozen=True, eq=False)
class _Pool:
    """What is kept with a pool: its items are known again as the same array, whatever that holds."""

    items: Floats
    lanes: tuple[Indices, ...] | None

    @classmethod
    def of(cls, state: PoolState) -> _Pool:
        return cls(state.items, state.lanes)

    def is_of(self, state: PoolState) -> bool:
        if self.items is not state.items or (self.lanes is None) != (state.lanes is None):
            return False
        return all(np.array_equal(a, b) for a, b in zip(self.lanes or (), state.lanes or (), strict=True))


def _random(count: int, state: PoolState) -> Indices:
    return draw_questions(count, state.num_items, state.num_options, state.rng, lanes=state.lanes)


def _lanes_within(places: Indices, state: PoolState) -> tuple[Indices, ...] | None:
    """The lanes of a part of the pool, as places in the ascending indices of that part."""
    if state.lanes is None:
        return None
    return tuple(np.flatnonzero(np.isin(places, items, assume_unique=True)) for items in state.lanes)
