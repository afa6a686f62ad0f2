"""The tokens of a prompt problem: blocks of them, one simplex for each distinct vocabulary, and their feature rows.

Steps with exactly the same feature rows share a block b of weight c_b = T times their number: the covariance of a
step is matrix-concave in its weights, so using the mean of their weights at all of them is no worse.

Scores depend on differences within a block only; a centre is therefore subtracted from the features before they are
rounded to float32: a common mean, however large, costs no digits. Features given in float32 are read as they are, a
chunk at a time, so they may be a memory map larger than memory.

Between copies of a token that differ by delta, scores differ in proportion to delta and the objective bends in
proportion to delta^2: all mass of such a group belongs on its best copy, but for ties. Newton's method finds that out
slowly, since its Hessian is nearly singular along such a move, and a working set with all copies is several times as
large. So the solver moves the mass at once, keeps what it moved only if the objective does not fall, and adds the best
copy of a group only. Groups (`Copies`) decide what is tried, never what is certified: every copy is priced, so what
merging costs is part of the gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.spatial import cKDTree

from edpbrl_gym._arrays import Booleans, Floats, Positions
from edpbrl_gym._threads import for_each
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.mdp import PromptMDP

__all__ = ["AXES", "CHUNK", "Chunk", "Copies", "PromptLayout", "Tokens"]


CHUNK = 2048  # rows worked on at once: 6 MB in float32 at d = 768, which bounds the memory of a product
_CENTRE_ROWS = 4096  # rows whose mean is the centre: any centre near the features serves
_SMALL = 64 * 2**20  # bytes of a centred copy that is kept; of more, subtracting in every pass costs less than memory


class Chunk(NamedTuple):
    """Tokens of a block that are worked on at once.

    Attributes:
        block: Number of their block.
        positions: Where they stand in the result.
        tokens: Which they are.
        rows: Their centred features, shape (m, d); not to be written to.
    """

    block: int
    positions: slice
    tokens: slice | Positions
    rows: NDArray


class Tokens:
    """Tokens numbered 0..n-1, block after block, with a simplex for each block.

    Args:
        features: Feature rows, float32 or float64, shape (N, d).
        rows: Rows of each block.
        scale: c_b, shape (B,).

    Attributes:
        scale: c_b, shape (B,).
        starts: First token of each block, and n, shape (B + 1,).
        slices: Tokens of each block.
    """

    def __init__(self, features: NDArray, rows: list[slice], scale: Floats) -> None:
        self._features = features
        self._rows = rows
        self.scale = scale
        self.starts: Positions = np.cumsum([0] + [block.stop - block.start for block in rows]).astype(np.intp)
        self.slices = [slice(int(a), int(b)) for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)]
        self._centre = np.stack([_centre(features[block]) for block in rows])
        self._copies: dict[np.dtype, list[NDArray]] = {}

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def dimension(self) -> int:
        """Numbers of a feature row."""
        return int(self._features.shape[1])

    def parts(self, tokens: Positions) -> list[slice]:
        """Where the tokens of each block lie in a sorted array of tokens."""
        bounds = np.searchsorted(tokens, self.starts)
        return [slice(int(begin), int(end)) for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]

    def centred(self, tokens: Positions, dtype: DTypeLike = np.float64) -> NDArray:
        """Features of some sorted tokens less the centre of their block, shape (k, d); not to be written to."""
        kind = np.dtype(dtype)
        copy = self._copies.get(kind)
        if copy and len(tokens) == len(self) and len(copy) == 1:
            return copy[0]
        result = np.empty((len(tokens), self.dimension), dtype=kind)
        for number, part in enumerate(self.parts(tokens)):
            local = tokens[part] - self.starts[number]
            if copy:
                np.take(copy[number], local, axis=0, out=result[part], mode="clip")
                continue
            for begin in range(0, len(local), CHUNK):
                end = min(begin + CHUNK, len(local))
                result[part.start + begin : part.start + end] = self._centred_rows(number, local[begin:end], kind)
        return result

    def for_each_chunk(
        self, function: Callable[[Chunk], object], dtype: DTypeLike, tokens: Positions | None = None
    ) -> None:
        """Call a function with the chunks of all tokens, or of some sorted ones, several at a time.

        Args:
            function: Called in threads of our own, each with one BLAS thread (`_threads`).
            dtype: Precision of the rows.
            tokens: Which ones; None for all.
        """
        kind = np.dtype(dtype)
        copy = self._copy(kind)

        def work(order: tuple[int, slice]) -> None:
            block, positions = order
            first = int(self.starts[block])
            chosen: slice | Positions = positions
            local: slice | Positions = slice(positions.start - first, positions.stop - first)
            if tokens is not None:
                chosen = tokens[positions]
                local = chosen - first
            rows = copy[block][local] if copy else self._centred_rows(block, local, kind)
            function(Chunk(block, positions, chosen, rows))

        orders = []
        for block, part in enumerate(self.slices if tokens is None else self.parts(tokens)):
            for begin in range(part.start, part.stop, CHUNK):
                orders.append((block, slice(begin, min(begin + CHUNK, part.stop))))
        for_each(work, orders)

    def sample(self, count: int, rng: np.random.Generator) -> Positions:
        """A random choice of about `count` tokens, at least one of every block in proportion to its size, sorted."""
        samples = []
        for block in self.slices:
            size = block.stop - block.start
            part = min(size, max(1, -(-count * size // len(self))))
            samples.append(block.start + rng.choice(size, part, replace=False))
        return np.sort(np.concatenate(samples))

    def restricted(self, tokens: Positions) -> Tokens:
        """The same blocks with some sorted tokens only, at least one of each; they are copied."""
        parts = self.parts(tokens)
        firsts = [rows.start - start for rows, start in zip(self._rows, self.starts[:-1], strict=True)]
        rows = [self._features[tokens[part] + first] for part, first in zip(parts, firsts, strict=True)]
        return Tokens(np.concatenate(rows), parts, self.scale)

    def _copy(self, kind: np.dtype) -> list[NDArray]:
        """All centred rows, block by block; empty if they are to be read from the features each time."""
        if kind not in self._copies:
            size = len(self) * self.dimension * kind.itemsize
            keep = size <= _SMALL or (kind == np.float32 and self._features.dtype != np.float32)
            self._copies[kind] = [self._copied_block(number, kind) for number in range(len(self.scale))] if keep else []
        return self._copies[kind]

    def _copied_block(self, number: int, kind: np.dtype) -> NDArray:
        size = self.slices[number].stop - self.slices[number].start
        rows = np.empty((size, self.dimension), dtype=kind)
        for begin in range(0, size, CHUNK):
            part = slice(begin, min(begin + CHUNK, size))
            rows[part] = self._centred_rows(number, part, kind)
        return rows

    def _centred_rows(self, number: int, local: slice | Positions, kind: np.dtype) -> NDArray:
        """Rows of a block less its centre: subtracted in the precision of the features, then rounded."""
        start = self._rows[number].start
        indices = slice(start + local.start, start + local.stop) if isinstance(local, slice) else start + local
        rows = self._features[indices]
        working = np.float32 if rows.dtype == kind == np.float32 else np.float64
        # the centre is a float32 number, so nothing is lost by rounding it
        return np.asarray(
            np.subtract(rows, self._centre[number].astype(working), dtype=working).astype(kind, copy=False)
        )


class PromptLayout:
    """The blocks of a prompt problem, and how weights of their tokens are an occupancy.

    Args:
        problem: A design problem with a `PromptMDP`.

    Attributes:
        tokens: The tokens.
    """

    def __init__(self, problem: DesignProblem) -> None:
        assert isinstance(problem.mdp, PromptMDP)
        self._mdp = problem.mdp
        slices = [problem.mdp.step_pairs(step) for step in range(problem.horizon)]
        blocks: list[list[int]] = []
        for step, pairs in enumerate(slices):
            for block in blocks:
                if slices[block[0]] == pairs or _equal(problem.features[slices[block[0]]], problem.features[pairs]):
                    block.append(step)
                    break
            else:
                blocks.append([step])
        self._steps = blocks
        scale = np.array([problem.episodes * len(block) for block in blocks], dtype=np.float64)
        self.tokens = Tokens(problem.features, [slices[block[0]] for block in blocks], scale)

    def occupancy(self, tokens: Positions, weights: Floats) -> Floats:
        """Occupancy (H, M) with the weights of sorted tokens at every step of their block; read-only."""
        mdp, starts = self._mdp, self.tokens.starts
        if all(mdp.step_pairs(step) == mdp.step_pairs(0) for step in range(mdp.horizon)):
            result = np.broadcast_to(self._row(0, tokens, weights), (mdp.horizon, mdp.num_pairs))
        else:
            result = np.zeros((mdp.horizon, mdp.num_pairs))
            for number, part in enumerate(self.tokens.parts(tokens)):
                for step in self._steps[number]:
                    result[step] = self._row(step, tokens[part] - starts[number], weights[part])
        result.setflags(write=False)
        return result

    def weights(self, occupancy: Floats) -> Floats:
        """Weights of all tokens, shape (n,), from an occupancy (H, M): the mean over the steps of each block."""
        result = []
        for steps in self._steps:
            mean = np.mean([occupancy[step, self._mdp.step_pairs(step)] for step in steps], axis=0)
            result.append(mean / mean.sum())
        return np.concatenate(result)

    def _row(self, step: int, local: Positions, weights: Floats) -> Floats:
        row = np.zeros(self._mdp.num_pairs)
        row[self._mdp.step_pairs(step).start + local] = weights
        return row


def _equal(first: NDArray, second: NDArray) -> bool:
    """Whether two vocabularies are the same; the first rows settle it for most."""
    if first.shape != second.shape or not (first[0] == second[0]).all():
        return False
    parts = [slice(begin, begin + CHUNK) for begin in range(0, len(first), CHUNK)]
    return all(bool((first[part] == second[part]).all()) for part in parts)


def _centre(rows: NDArray) -> Floats:
    """A centre of some rows: the mean of evenly spaced ones, rounded to float32."""
    stride = -(-len(rows) // _CENTRE_ROWS)
    return np.asarray(rows[::stride].mean(axis=0, dtype=np.float64).astype(np.float32).astype(np.float64))


_RADIUS = 0.05  # of the root mean square of a block's rows less their centre: how far copies are from the first
AXES = 8  # random ones, in whose span neighbours are looked for
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
    def find(cls, tokens: Tokens) -> Copies | None:
        """The groups of all tokens; None if few tokens have a copy."""
        leaders = np.empty(len(tokens), dtype=np.intp)
        generator = np.random.default_rng(0)
        for block in tokens.slices:
            leaders[block] = block.start + _leaders(tokens, block, generator)
        first, group = np.unique(leaders, return_inverse=True)
        return None if len(first) == len(tokens) else cls(group.astype(np.intp), first)

    def __len__(self) -> int:
        return len(self.first)

    def best(self, tokens: Positions, excess: Floats) -> Positions:
        """Where the tokens with the largest excess of each group are, in their order."""
        order = np.lexsort((-excess, self.group[tokens]))
        groups = self.group[tokens][order]
        return np.sort(order[np.flatnonzero(np.diff(groups, prepend=-1))])

    def moved(self, support: Positions, weights: Floats, tokens: Positions) -> tuple[Positions, Floats]:
        """The sorted tokens of a support and their mass, that of a group moved to the one of `tokens` in it.

        There is at most one of each group in `tokens`; the mass of a group without one stays.
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


def _leaders(tokens: Tokens, block: slice, generator: np.random.Generator) -> Positions:
    """The first token of the group of each token of a block, counted from its first, shape (n_b,)."""
    size = block.stop - block.start
    leaders = np.arange(size)
    axes = generator.standard_normal((tokens.dimension, AXES)).astype(np.float32) / np.sqrt(np.float32(AXES))
    projected = np.empty((size, AXES), dtype=np.float32)
    square = 0.0
    for begin in range(0, size, CHUNK):
        local = np.arange(begin, min(begin + CHUNK, size))
        rows = tokens.centred(block.start + local, np.float32)
        projected[local] = rows @ axes
        square += float(np.vdot(rows, rows))
    radius = _RADIUS * np.sqrt(square / size)
    if not 0.0 < radius < np.inf:
        return leaders

    tree = cKDTree(projected)
    sample = generator.permutation(size)[:_SAMPLE]
    near = tree.query(projected[sample], 2, distance_upper_bound=radius)[1]
    other = np.where(near[:, 0] == sample, near[:, 1], near[:, 0])
    paired = other < size  # what is too far counts as token `size`
    if _close(tokens, block, sample[paired], other[paired], radius).sum() < _SHARE * len(sample):
        return leaders
    leaders = _cover(_neighbours(tree, projected, radius))
    apart = np.flatnonzero(~_close(tokens, block, np.arange(size), leaders, radius))
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


def _close(tokens: Tokens, block: slice, first: Positions, second: Positions, radius: float) -> Booleans:
    """Which pairs of tokens of a block are within a radius."""
    result = np.empty(len(first), dtype=bool)
    for begin in range(0, len(first), CHUNK):
        part = slice(begin, begin + CHUNK)
        difference = _rows(tokens, block.start + first[part]) - _rows(tokens, block.start + second[part])
        result[part] = np.einsum("kd,kd->k", difference, difference) <= radius**2
    return result


def _rows(tokens: Tokens, chosen: Positions) -> NDArray:
    """Centred rows of tokens in any order."""
    distinct, place = np.unique(chosen, return_inverse=True)
    return tokens.centred(distinct, np.float32)[place]
