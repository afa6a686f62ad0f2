"""Groups of nearly equal tokens: of each, one carries mass until the value says otherwise.

Between copies that differ by delta, scores differ in proportion to delta and the objective bends in proportion to
delta^2: all mass of a group belongs on its best copy, but for ties. Newton's method finds that out slowly, since its
Hessian is nearly singular along such a move, and a working set with all copies is several times as large. So the solver
moves the mass at once, keeps what it moved only if the objective does not fall, and adds the best copy of a group only.

Groups decide what is tried, never what is certified: every copy is priced, so what merging costs is part of the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from edpbrl_gym._arrays import Booleans, Floats, Positions
from edpbrl_gym.design.solvers.newton.tokens.blocks import CHUNK, TokenBlocks

__all__ = ["Copies"]


_RADIUS = 0.05  # of the root mean square of a block's rows less their centre: how far copies are from the first
_AXES = 8  # random ones, in whose span neighbours are looked for
_SAMPLE = 256  # tokens of a block that tell whether it is worth looking
_SHARE = 0.05  # of them that have a neighbour
_NEAREST = 16  # neighbours that are looked at first; four times as many where groups are larger
_LARGEST = 4_000_000  # neighbours of all tokens together


@dataclass(frozen=True)
class Copies:
    """Groups of nearly equal tokens.

    Attributes:
        group: Of each token, numbered in the order of their first tokens, shape (n,).
        first: First token of each group, shape (m,).
    """

    group: Positions
    first: Positions

    @classmethod
    def find(cls, blocks: TokenBlocks) -> Copies | None:
        """The groups of all tokens; None if few tokens have a copy."""
        leaders = np.empty(len(blocks), dtype=np.intp)
        generator = np.random.default_rng(0)
        for block in blocks.slices:
            leaders[block] = block.start + _leaders(blocks, block, generator)
        first, group = np.unique(leaders, return_inverse=True)
        return None if len(first) == len(blocks) else cls(group.astype(np.intp), first)

    def __len__(self) -> int:
        return len(self.first)

    def best(self, tokens: Positions, excess: Floats) -> Positions:
        """Where the tokens with the largest excess of each group are, in their order."""
        order = np.lexsort((-excess, self.group[tokens]))
        groups = self.group[tokens][order]
        return np.sort(order[np.flatnonzero(np.diff(groups, prepend=-1))])

    def moved(self, support: Positions, weights: Floats, tokens: Positions) -> tuple[Positions, Floats]:
        """Mass of some tokens, with that of a group on the one of `tokens` that belongs to it, if there is one.

        Args:
            support: Sorted tokens with mass, shape (k,).
            weights: Their mass.
            tokens: At most one of each group.

        Returns:
            Sorted tokens, and their mass.
        """
        target = np.full(len(self), -1)
        target[self.group[tokens]] = tokens
        aim = target[self.group[support]]
        ends, place = np.unique(np.where(aim >= 0, aim, support), return_inverse=True)
        return ends, np.asarray(np.bincount(place, weights), dtype=np.float64)

    def filled(self, tokens: Positions) -> Positions:
        """Sorted tokens with the first one of every group that has none of them."""
        lacking = np.ones(len(self), dtype=bool)
        lacking[self.group[tokens]] = False
        return np.union1d(tokens, self.first[lacking])


def _leaders(blocks: TokenBlocks, block: slice, generator: np.random.Generator) -> Positions:
    """The first token of the group of each token of a block, counted from its first, shape (n_b,)."""
    size = block.stop - block.start
    leaders = np.arange(size)
    if blocks.dimension <= _AXES:  # all tokens are near to others
        return leaders
    axes = generator.standard_normal((blocks.dimension, _AXES)).astype(np.float32) / np.sqrt(np.float32(_AXES))
    projected = np.empty((size, _AXES), dtype=np.float32)
    square = 0.0
    for begin in range(0, size, CHUNK):
        tokens = np.arange(begin, min(begin + CHUNK, size))
        rows = blocks.centred(block.start + tokens, np.float32)
        projected[tokens] = rows @ axes
        square += float(np.vdot(rows, rows))
    radius = _RADIUS * np.sqrt(square / size)
    if not 0.0 < radius < np.inf:
        return leaders

    tree = cKDTree(projected)
    sample = generator.permutation(size)[:_SAMPLE]
    near = tree.query(projected[sample], 2, distance_upper_bound=radius)[1]
    other = np.where(near[:, 0] == sample, near[:, 1], near[:, 0])
    paired = other < size  # what is too far counts as token `size`
    if _close(blocks, block, sample[paired], other[paired], radius).sum() < _SHARE * len(sample):
        return leaders
    leaders = _cover(_neighbours(tree, projected, radius))
    apart = np.flatnonzero(~_close(blocks, block, np.arange(size), leaders, radius))
    leaders[apart] = apart  # near in the random axes only
    return leaders


def _neighbours(tree: cKDTree, points: NDArray, radius: float) -> Positions:
    """The nearest neighbours of each point within the radius, itself among them; the others are `len(points)`."""
    count = _NEAREST
    while True:
        nearest = np.asarray(tree.query(points, min(count, len(points)), distance_upper_bound=radius)[1])
        full = np.mean(nearest[:, -1] < len(points))
        if full <= _SHARE or count >= len(points) or 4 * count * len(points) > _LARGEST:
            return nearest
        count *= 4


def _cover(neighbours: Positions) -> Positions:
    """For each token the earliest one that has it as a neighbour and has not been taken by an earlier one itself."""
    size = len(neighbours)
    result = np.arange(size)
    free = np.ones(size + 1, dtype=bool)
    free[size] = False
    for leader in np.flatnonzero(np.count_nonzero(neighbours < size, axis=1) > 1).tolist():
        if free[leader]:
            members = neighbours[leader]
            members = members[free[members]]
            free[members] = free[leader] = False
            result[members] = leader
            result[leader] = leader
    return result


def _close(blocks: TokenBlocks, block: slice, first: Positions, second: Positions, radius: float) -> Booleans:
    """Which pairs of tokens of a block are within a radius."""
    result = np.empty(len(first), dtype=bool)
    for begin in range(0, len(first), CHUNK):
        part = slice(begin, begin + CHUNK)
        difference = _rows(blocks, block.start + first[part]) - _rows(blocks, block.start + second[part])
        result[part] = np.einsum("kd,kd->k", difference, difference) <= radius**2
    return result


def _rows(blocks: TokenBlocks, tokens: Positions) -> NDArray:
    """Centred rows of tokens in any order."""
    distinct, place = np.unique(tokens, return_inverse=True)
    return blocks.centred(distinct, np.float32)[place]
