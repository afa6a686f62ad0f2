"""From occupancies to a first set of T x K prompts: whole counts of tokens, grouped into balanced questions.

A design says how often a token should be shown; T K lanes show it a whole number of times. The whole part of every
count is taken as it is, the fractions by systematic sampling: one random number, equal strides through the cumulated
fractions, so that every token is shown its count rounded down or up. The tokens of a step are then dealt to the T
questions one lane at a time; each lane is an assignment problem that keeps the mean of every question close to the mean
of the step, because a question loses the square of that difference (`information`).

What then breaks the restrictions is searched for anew. Episodes are independent of each other but for a base that all
share, so the search is over the K x H tokens of one episode: depth first, the slot with the fewest allowed tokens
first, the proposal's token first in its slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from edpbrl_gym._arrays import AnyFloats, Booleans, Floats, Indices
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.questions.restrictions import TokenRules

__all__ = ["InfeasibleRestrictionsError", "apportion", "balanced_questions", "complete_episode", "first_tokens"]


_GROUP = 500  # questions that are dealt together: an assignment problem costs the cube of it
_MAX_NODES = 5000  # a search that needs more is given up; each node costs K x H masks


def apportion(weights: Floats, total: int, rng: np.random.Generator) -> Indices:
    """Whole counts (n,) that sum to ``total``, each within one of ``total * weights``, which is their expectation.

    One draw shuffles the tokens, one starts the strides.
    """
    share = total * weights / weights.sum()
    counts = np.floor(share + 1e-9)
    remainder = total - int(counts.sum())
    fractions = np.maximum(share - counts, 0.0)
    if remainder > 0:
        order = rng.permutation(len(weights))
        cumulated = np.cumsum(fractions[order])
        points = (rng.random() + np.arange(remainder)) * (cumulated[-1] / remainder)
        hit = np.searchsorted(cumulated, np.minimum(points, np.nextafter(cumulated[-1], 0.0)), side="right")
        np.add.at(counts, order[hit], 1)
    return counts.astype(np.int64)


def balanced_questions(features: AnyFloats, tokens: Indices, lanes: int, rng: np.random.Generator) -> Indices:
    """Deal T K tokens, with repeats, to T questions (T, K) so that the mean of each is close to the mean of all.

    The features are those of the step's tokens, in a metric where distances matter, shape (n, d).
    """
    used, places = np.unique(tokens, return_inverse=True)  # a copy of all rows could be gigabytes
    dealt = rng.permutation(places).reshape(-1, lanes)
    centred = np.asarray(features[used], dtype=np.float64)
    centred -= centred[places].mean(axis=0)
    for begin in range(0, len(dealt), _GROUP):
        part = dealt[begin : begin + _GROUP]
        total = centred[part[:, 0]]
        for lane in range(1, lanes):
            # |total + x|^2 up to what does not depend on the pairing; equal tokens cost more than any other pairing
            cost = 2.0 * total @ centred[part[:, lane]].T
            repeated = (part[:, :lane, None] == part[None, None, :, lane]).any(axis=1)
            cost[repeated] += 1.0 + 4.0 * float(np.abs(cost).max())
            question, token = linear_sum_assignment(cost)
            part[question, lane] = part[token, lane]
            total = total + centred[part[:, lane]]
    return np.asarray(used[dealt], dtype=np.int64)


def first_tokens(
    problem: DesignProblem,
    mean_rows: Floats,
    blocks: Sequence[AnyFloats],
    rules: TokenRules,
    rng: np.random.Generator,
) -> Indices:
    """Tokens (T, K, H) that show each step's tokens as often as the mean occupancy of the rows, and keep the rules.

    Raises:
        InfeasibleRestrictionsError: If no lanes keep the restrictions.
    """
    episodes, lanes = problem.episodes, problem.num_policies
    _check_enough_tokens(rules, lanes)
    tokens = np.empty((episodes, lanes, problem.horizon), dtype=np.int64)
    for step, (low, high) in enumerate(rules.ranges):
        weights = np.asarray(mean_rows[step, low:high], dtype=np.float64)
        if rules.shared(step):
            tokens[:, :, 0] = _bases(weights, episodes, rules, rng)[:, None]
            continue
        counts = apportion(weights, episodes * lanes, rng)
        copies = np.repeat(np.arange(high - low), counts)
        tokens[:, :, step] = rng.permutation(balanced_questions(blocks[step], copies, lanes, rng))
    return _lawful(tokens, rules, rng)


def _bases(weights: Floats, episodes: int, rules: TokenRules, rng: np.random.Generator) -> Indices:
    """First token of each episode where the lanes share it; on state features it bears no information."""
    restrictions = rules.restrictions
    if restrictions.base is not None:
        return np.full(episodes, restrictions.base - rules.first[0])
    if restrictions.shared_base == "all":
        return np.full(episodes, int(np.argmax(weights)))
    counts = apportion(weights, episodes, rng)
    return rng.permutation(np.repeat(np.arange(len(weights)), counts))


def _lawful(tokens: Indices, rules: TokenRules, rng: np.random.Generator) -> Indices:
    """Repair each episode; where all share one base, the first episode's repair decides on it."""
    result = np.empty_like(tokens)
    for episode, lanes in enumerate(tokens):
        result[episode] = complete_episode(rules, lanes, rng)
        if episode == 0 and rules.restrictions.shared_base == "all":
            rules = rules.with_base(int(result[0, 0, 0]))
    return result


class InfeasibleRestrictionsError(ValueError):
    """No lanes keep the restrictions, or none were found."""


class _NodeLimitReached(Exception):
    """The search has visited as many nodes as it may."""


def _check_enough_tokens(rules: TokenRules, lanes: int) -> None:
    """Raise InfeasibleRestrictionsError where a step has too few tokens for that many lanes."""
    restrictions = rules.restrictions
    if not (restrictions.distinct or restrictions.no_overlap):
        return
    for step, (low, high) in enumerate(rules.ranges):
        different = len(np.unique(rules.identity[low:high]))
        if different < lanes and not rules.shared(step):
            raise InfeasibleRestrictionsError(
                f"Expected at least K = {lanes} different tokens at step {step}, so that all options of a question "
                f"differ, got {different}; take fewer lanes, more tokens, or Restrictions(distinct=False)."
            )


def complete_episode(rules: TokenRules, proposal: Indices, rng: np.random.Generator) -> Indices:
    """Lanes (K, H) that keep the restrictions and as much as possible of a proposal, -1 where there is no wish.

    Raises:
        InfeasibleRestrictionsError: If there are none, or none were found within the search's limit.
    """
    if proposal.min() >= 0 and not rules.episode_violations(proposal):
        return proposal.copy()
    legal = _legal_part(rules, proposal)
    for start in (legal, np.full_like(legal, -1)):
        search = _Search(rules, start.copy(), proposal, rng)
        try:
            if search.run():
                return search.lanes
            proved = True
        except _NodeLimitReached:
            proved = False
    reason = "there are none" if proved else f"none were found in {_MAX_NODES} tries"
    raise InfeasibleRestrictionsError(
        f"Expected K = {len(proposal)} lanes of {rules.horizon} steps that keep the restrictions "
        f"({rules.describe()}), {reason}; forbid fewer pairs, allow overlap, or take fewer lanes or more tokens."
    )


def _legal_part(rules: TokenRules, proposal: Indices) -> Indices:
    """The proposal's tokens, taken one after the other as long as they are legal beside those taken before."""
    lanes = np.full_like(proposal, -1)
    for step in range(proposal.shape[1]):
        for lane in range(len(proposal)):
            wish = proposal[0 if rules.shared(step) else lane, step]
            if wish >= 0 and _mask(rules, lanes, lane, step)[wish]:
                lanes[lane, step] = wish
    if rules.shared(0) and (lanes[:, 0] < 0).any():
        lanes[:, 0] = -1  # a shared base is one wish, legal in all lanes or none
    return lanes


def _mask(rules: TokenRules, lanes: Indices, lane: int, step: int) -> Booleans:
    return rules.allowed(step, lanes[lane], np.delete(lanes, lane, axis=0))


class _Search:
    def __init__(self, rules: TokenRules, lanes: Indices, proposal: Indices, rng: np.random.Generator) -> None:
        self.rules = rules
        self.lanes = lanes
        self._proposal = proposal
        self._rng = rng
        self._nodes = 0

    def run(self) -> bool:
        """Fill the open slots; False where the tokens already placed make that impossible."""
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _NodeLimitReached
        slot = self._tightest()
        if slot is None:
            return True
        lane, step, mask = slot
        index: slice | int = slice(None) if self.rules.shared(step) else lane
        tokens = self._rng.permutation(np.flatnonzero(mask))
        wish = self._proposal[lane, step]
        if wish >= 0 and mask[wish]:
            tokens = np.concatenate(([wish], tokens[tokens != wish]))
        for token in tokens:
            self.lanes[index, step] = token
            if self.run():
                return True
            self.lanes[index, step] = -1
        return False

    def _tightest(self) -> tuple[int, int, Booleans] | None:
        """The open slot with the fewest allowed tokens; None if nothing is open."""
        best, fewest = None, np.inf
        for lane, step in np.argwhere(self.lanes < 0):
            if self.rules.shared(int(step)):
                if lane:
                    continue  # decided with lane 0
                mask = np.logical_and.reduce([_mask(self.rules, self.lanes, q, 0) for q in range(len(self.lanes))])
            else:
                mask = _mask(self.rules, self.lanes, int(lane), int(step))
            count = int(mask.sum())
            if count < fewest:
                best, fewest = (int(lane), int(step), mask), count
            if count == 0:
                break
        return best
