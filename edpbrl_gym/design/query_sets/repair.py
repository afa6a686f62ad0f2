"""Lanes that keep the restrictions: what is legal of a proposal stays, the rest is searched for.

Episodes are independent of each other but for a base that all share, so the search is over the K x H tokens of one
episode: depth first, the slot with the fewest allowed tokens first, the proposal's token first in its slot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Indices
from edpbrl_gym.design.query_sets.restrictions import TokenRules

__all__ = ["InfeasibleRestrictionsError", "complete_episode", "check_enough_tokens"]


_MAX_NODES = 5000  # a search that needs more is given up; each node costs K x H masks


class InfeasibleRestrictionsError(ValueError):
    """No lanes keep the restrictions, or none were found."""


class _NodeLimitReached(Exception):
    """The search has visited as many nodes as it may."""


def check_enough_tokens(rules: TokenRules, lanes: int) -> None:
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
    """Lanes that keep the restrictions and as much of a proposal as possible.

    Args:
        rules: The restrictions, bound to the tokens.
        proposal: Tokens (K, H); -1 where there is no wish.
        rng: Source of the order in which other tokens are tried.

    Returns:
        Tokens (K, H).

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


def _mask(rules: TokenRules, lanes: Indices, lane: int, step: int) -> NDArray[np.bool_]:
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

    def _tightest(self) -> tuple[int, int, NDArray[np.bool_]] | None:
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
