"""Rules that plan many questions at once without answers, and the baselines: random questions, random rollouts."""

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
    adaptive = False

    def propose(self, state: PoolState) -> Indices:
        """K items, (K,)."""
        return self.plan(state, 1)[0]

    def plan(self, state: PoolState, questions: int) -> Indices:
        """Independent questions, (T, K)."""
        return _random(check_count(questions, "questions"), state)


class Thinning:
    """Batch thinning: ask as few questions of a batch as carry the information of the whole batch.

    Source: Schlaginhaufen, Ouhamma and Kamgarpour (2025), "Efficient preference-based reinforcement learning:
    randomized exploration meets experimental design".

    Rule: W = V; keep picking argmax over the batch of x' W^-1 x, x the difference of a pair, and add x x' to W, until
    det W is that of V plus the whole batch. For K options x x' is F(S; 0), and the pick is
    argmax log det(W + F(S; 0)), the same for K = 2 where F(S; 0) = x x' / 4. Candidates may be picked
    repeatedly, which lets fewer questions reach the determinant of the batch. Where they don't, the batch is asked.

    The candidates are random questions, ``oversampling`` times as many as there are to ask; ``thin`` takes any batch.

    Args:
        oversampling: Candidates for each question, >= 1.
        repeats: Whether a candidate may be picked again.
        share: Stop at this share of the whole batch's gain in log det, in (0, 1].
    """

    name = "thinning"
    adaptive = False

    def __init__(self, *, oversampling: int = 4, repeats: bool = True, share: float = 1.0) -> None:
        self.oversampling = check_count(oversampling, "oversampling")
        self.repeats = bool(repeats)
        self.share = check_share(share)

    def propose(self, state: PoolState) -> Indices:
        """The first pick of a batch drawn for it, (K,).

        One question has as many candidates as 64 would, so that the best of them is informative.
        """
        candidates = _random(64 * self.oversampling, state)
        return thin(candidates, state.items, state.agnostic, limit=1)[0]

    def plan(self, state: PoolState, questions: int) -> Indices:
        """At most ``questions`` questions, in the order of the picks, (T, K)."""
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

    The design of a pool is solved once, with its own seed, so that it depends on the pool only.

    Args:
        subsets: Random subsets scored in each step, >= 1.
        iterations: Steps, >= 1; None: 18 d, at least 600. With too few of them much of the weight is still on the
            random subsets of the start (see ``gap`` and ``start`` of the design).
        seed: Seed of the random subsets.
    """

    name = "dopewolfe"
    adaptive = False

    def __init__(self, *, subsets: int = 64, iterations: int | None = None, seed: int = 0) -> None:
        self.subsets = check_count(subsets, "subsets")
        self.iterations = None if iterations is None else check_count(iterations, "iterations")
        self.seed = check_count(seed, "seed", minimum=0)
        self._solved: tuple[_Pool, SubsetDesign] | None = None  # with its pool

    def propose(self, state: PoolState) -> Indices:
        """One sample of the design, (K,)."""
        return self.plan(state, 1)[0]

    def plan(self, state: PoolState, questions: int) -> Indices:
        """Independent samples of the design, (T, K)."""
        return self.design(state).sample(check_count(questions, "questions"), state.rng)

    def design(self, state: PoolState) -> SubsetDesign:
        """The design of the state's pool; the first state of a pool solves it."""
        cached = self._solved
        if cached is None or not cached[0].is_of(state) or cached[1].questions.shape[1] != state.num_options:
            design = solve_subset_design(
                state.items,
                state.num_options,
                rng=np.random.default_rng([self.seed, state.num_items]),
                subsets=self.subsets,
                iterations=max(600, 18 * state.dimension) if self.iterations is None else self.iterations,
                lanes=state.lanes,
            )
            self._solved = cached = (_Pool.of(state), design)
        return cached[1]


class RolloutPool:
    """Any rule on a pool of random rollouts: the candidates are drawn once, and no search looks beyond them.

    Source: baseline; what sampling-based packages do where a trajectory is an option.

    Rule: that of ``rule``, on ``size`` random items of the pool (all of a smaller one), and on items of earlier
    questions. For prompts of several steps `RulePlanner` passes random trajectories as items.

    Args:
        rule: The rule that chooses from the candidates, or its name.
        size: Candidates, >= 2.
        seed: Seed of the candidates.
    """

    name = "rollout_pool"
    adaptive = False  # this and the objective are those of the inner rule

    def __init__(self, *, rule: str | Rule = "random_distinct", size: int = 2000, seed: int = 0) -> None:
        if isinstance(rule, str):
            from edpbrl_gym.planners.registry import make_rule  # which knows this module

            rule = make_rule(rule)
        self.rule = rule
        self.size = check_count(size, "size", minimum=2)
        self.seed = check_count(seed, "seed", minimum=0)
        self.adaptive = rule.adaptive
        self._cache: tuple[_Pool, Indices, Floats] | None = None  # the whole pool, the candidates, their features

    def propose(self, state: PoolState) -> Indices:
        """The rule's question, (K,), of the candidates and of items that were asked about before."""
        places, features = self._candidates(state)
        num_candidates = len(places)
        past_questions = np.array(state.asked, dtype=np.int64).reshape(-1, state.num_options)
        # some rules use the options of earlier questions, so these are items of the inner pool too
        outside = np.setdiff1d(past_questions, places)
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
            asked=tuple(tuple(position[int(i)] for i in row) for row in past_questions),
            lanes=_lanes_within(places[:num_candidates], state),
            past=state.past,
        )
        return places[self.rule.propose(inner)]

    def _candidates(self, state: PoolState) -> tuple[Indices, Floats]:
        if self._cache is None or not self._cache[0].is_of(state):
            rng = np.random.default_rng([self.seed, state.num_items])
            parts = []
            for group in state.groups:  # each group gets its share of the candidates
                options = len(group.lanes)
                size = max(options, min(-(-self.size * options // state.num_options), len(group.items)))
                parts.append(group.items[rng.choice(len(group.items), size, replace=False)])
            places = np.sort(np.concatenate(parts))
            self._cache = (_Pool.of(state), places, state.items[places])
        return self._cache[1], self._cache[2]


@dataclass(frozen=True, eq=False)
class _Pool:
    """Identity of a pool, for caches: the same array of items, and equal lanes."""

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
    """The lanes of a part of the pool, as positions in the ascending indices of that part."""
    if state.lanes is None:
        return None
    return tuple(np.flatnonzero(np.isin(places, items, assume_unique=True)) for items in state.lanes)
