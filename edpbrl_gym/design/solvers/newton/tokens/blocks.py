"""The tokens of a prompt problem as blocks, one simplex for each distinct vocabulary (`layout`), and their scores.

Scores depend on differences within a block only; a centre is therefore subtracted from the features before they are
rounded to float32: a common mean, however large, costs no digits.

Features given in float32 are read as they are, a chunk at a time, so they may be a memory map larger than memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.metric import PriorMetric
from edpbrl_gym.design.solvers.newton.tokens.backend import ArrayBackend, NumpyBackend
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm

__all__ = ["TokenBlocks"]


CHUNK = 2048  # rows scored at once: bounds the memory of the product
_ROUNDING = 1e-5  # relative allowance for float32 products; they err by about 1e-6
_CENTRE_ROWS = 4096  # rows whose mean is the centre: any centre near the features serves


class _Chunk(NamedTuple):
    """Tokens of a block that are scored at once."""

    block: int
    positions: slice  # in the result
    tokens: slice | Positions


class TokenBlocks:
    """Tokens numbered 0..n-1, block after block, with a simplex for each block.

    Args:
        features: Feature rows, float32 or float64, shape (N, d).
        rows: Rows of each block.
        scale: c_b, shape (B,).
        metric: Inverse of the prior precision; None if that is singular (then forms need base = 0).
        backend: Where the products over all tokens run.

    Attributes:
        scale: c_b, shape (B,).
        starts: First token of each block, and n, shape (B + 1,).
    """

    def __init__(
        self,
        features: NDArray,
        rows: list[slice],
        scale: Floats,
        metric: PriorMetric | None = None,
        backend: ArrayBackend | None = None,
    ) -> None:
        self._features = features
        self._rows = rows
        self._metric = metric
        self._backend = backend or NumpyBackend()
        self.scale = scale
        self.starts: Positions = np.cumsum([0] + [block.stop - block.start for block in rows]).astype(np.intp)
        self._centre = np.stack([_centre(features[block]) for block in rows])
        self._rounded: dict[np.dtype, list[Any]] = {}
        self._factors: dict[np.dtype, Any] = {}
        self._norms: Floats | None = None  # of all tokens, float32 computations

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def dimension(self) -> int:
        """Numbers of a feature row."""
        return int(self._features.shape[1])

    @property
    def slices(self) -> list[slice]:
        """Tokens of each block."""
        return [self.tokens(number) for number in range(len(self.scale))]

    def tokens(self, number: int) -> slice:
        """Tokens of block `number`."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def block(self, tokens: Positions) -> Positions:
        """Block of each of some tokens."""
        return np.searchsorted(self.starts, tokens, side="right") - 1

    def parts(self, tokens: Positions) -> list[slice]:
        """Where the tokens of each block lie in a sorted array of tokens."""
        bounds = np.searchsorted(tokens, self.starts)
        return [slice(int(begin), int(end)) for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]

    def centred(self, tokens: Positions, dtype: DTypeLike = np.float64) -> NDArray:
        """Features of some sorted tokens less the centre of their block, shape (k, d); not to be written to."""
        kind = np.dtype(dtype)
        resident = self._rounded.get(kind) if isinstance(self._backend, NumpyBackend) else None
        if resident and len(tokens) == len(self) and len(resident) == 1:
            return np.asarray(resident[0])
        result = np.empty((len(tokens), self._features.shape[1]), dtype=kind)
        for number, part in enumerate(self.parts(tokens)):
            local = tokens[part] - self.starts[number]
            if resident:
                np.take(resident[number], local, axis=0, out=result[part], mode="clip")
                continue
            for begin in range(0, len(local), CHUNK):
                chunk = local[begin : begin + CHUNK]
                result[part][begin : begin + CHUNK] = self._centred_rows(number, chunk, kind)
        return result

    def scores(
        self, form: ScoreForm, means: Floats, dtype: DTypeLike = np.float32, tokens: Positions | None = None
    ) -> Floats:
        """Scores c_b ||x - m_b||^2 in the metric of a form.

        Args:
            form: The metric.
            means: Mean of the centred features in each block under the current weights, shape (B, d).
            dtype: Precision of the products.
            tokens: Sorted tokens to score; None scores all.

        Returns:
            Scores, float64, shape (n,) or (len(tokens),).
        """
        kind = np.dtype(dtype)
        result = np.empty(len(self) if tokens is None else len(tokens))
        for number, mean in enumerate(means):
            scorer = _Scorer(form, mean, self._metric, self._backend, kind)

            def score(chunk: _Chunk, scorer: _Scorer = scorer) -> None:
                rows = self._native(chunk, kind)
                scores = self._backend.numpy(scorer(rows, self._norms_of(form, rows, kind, chunk)))
                result[chunk.positions] = scores
                result[chunk.positions] *= self.scale[chunk.block]

            self._backend.for_each(score, self._chunks(number, form, kind, tokens))
        return result

    def bounds(
        self, form: ScoreForm, terms: int, means: Floats, levels: Floats, tokens: Positions | None = None
    ) -> tuple[Floats, Floats]:
        """Upper bounds of the scores: from the first terms of a form, and from all where that exceeds a level.

        The bounds contain an allowance for float32. Leaving out negative terms of a form bounds it from above.

        Args:
            form: The metric.
            terms: Most negative terms of the first bound.
            means: Mean of the centred features in each block, shape (B, d).
            levels: A token whose first bound is at most the level of its block keeps it, shape (B,).
            tokens: Sorted tokens to bound; None bounds all.

        Returns:
            Bounds, shape (n,) or (len(tokens),), and the scores where all terms were computed, nan elsewhere.
        """
        kind = np.dtype(np.float32)
        size = len(self) if tokens is None else len(tokens)
        result, complete = np.empty(size), np.empty(size)
        split = form.split(terms)
        head, rest = (form, None) if split is None else split
        for number, mean in enumerate(means):
            first = _Scorer(head, mean, self._metric, self._backend, kind)
            second = None if rest is None else _Scorer(rest, mean, self._metric, self._backend, kind)
            slack = _Slack(head, rest, mean, self._metric)

            def bound(
                chunk: _Chunk, first: _Scorer = first, second: _Scorer | None = second, slack: _Slack = slack
            ) -> None:
                rows, scale = self._native(chunk, kind), self.scale[chunk.block]
                norms = self._norms_of(form, rows, kind, chunk)
                lengths = np.sqrt(self._backend.numpy((rows * rows).sum(1)).astype(np.float64))
                scores = self._backend.numpy(first(rows, norms)).astype(np.float64)
                extra = slack(scores, lengths, None if norms is None else self._backend.numpy(norms))
                if second is not None:
                    above = scores * scale + extra * scale > levels[chunk.block]
                    positions = np.flatnonzero(above)
                    if len(positions):
                        scores[positions] += self._backend.numpy(second(rows[positions], None))
                scores *= scale
                complete[chunk.positions] = scores if second is None else np.where(above, scores, np.nan)
                result[chunk.positions] = (1.0 + _ROUNDING) * scores + scale * extra

            self._backend.for_each(bound, self._chunks(number, form, kind, tokens))
        return result, complete

    def norms(self, rows: Any, kind: np.dtype) -> Any:
        """Squared norms of native rows in the metric of the prior, native, shape (m,)."""
        assert self._metric is not None
        if self._metric.isotropic:
            return (rows * rows).sum(1) / self._metric.isotropic
        return self._backend.factor_squares(rows + 0, self._prior_factor(kind), "lower")

    def _prior_factor(self, kind: np.dtype) -> Any:
        """L^-1 of the prior precision L L', native; None where it is lambda I."""
        assert self._metric is not None
        if self._metric.isotropic:
            return None
        if kind not in self._factors:
            inverse = self._metric.factor_inverse(self._features.shape[1])
            self._factors[kind] = self._backend.array(inverse, kind)
        return self._factors[kind]

    def sample(self, count: int, rng: np.random.Generator) -> Positions:
        """A random choice of about `count` tokens, at least one of every block in proportion to its size, sorted."""
        samples = []
        for block in self.slices:
            size = block.stop - block.start
            part = min(size, max(1, -(-count * size // len(self))))
            samples.append(block.start + rng.choice(size, part, replace=False))
        return np.sort(np.concatenate(samples))

    def restricted(self, tokens: Positions) -> TokenBlocks:
        """The same blocks with some sorted tokens only, at least one of each; they are copied."""
        parts = self.parts(tokens)
        rows = np.concatenate(
            [
                self._features[tokens[part] - self.starts[number] + self._rows[number].start]
                for number, part in enumerate(parts)
            ]
        )
        return TokenBlocks(rows, parts, self.scale, self._metric, self._backend)

    def _chunks(self, number: int, form: ScoreForm, kind: np.dtype, tokens: Positions | None) -> list[_Chunk]:
        """The chunks of a block, with all that they share made ready: they may be worked on at the same time."""
        self._resident(kind)
        if form.base != 0:
            self._prior_factor(kind)
            if kind == np.float32 and self._norms is None:
                self._norms = np.full(len(self), np.nan)
        part = self.tokens(number) if tokens is None else self.parts(tokens)[number]
        chunks = []
        for begin in range(part.start, part.stop, CHUNK):
            positions = slice(begin, min(begin + CHUNK, part.stop))
            chunks.append(_Chunk(number, positions, positions if tokens is None else tokens[positions]))
        return chunks

    def _native(self, chunk: _Chunk, kind: np.dtype) -> Any:
        """Centred native rows of a chunk."""
        first = self.starts[chunk.block]
        tokens = chunk.tokens
        local = slice(tokens.start - first, tokens.stop - first) if isinstance(tokens, slice) else tokens - first
        resident = self._resident(kind)
        if resident:
            return resident[chunk.block][local]
        return self._backend.array(self._centred_rows(chunk.block, local, kind), kind)

    def _norms_of(self, form: ScoreForm, rows: Any, kind: np.dtype, chunk: _Chunk) -> Any:
        """Norms of the rows of a chunk for a form that needs them; those of float32 are kept."""
        if form.base == 0:
            return None
        if kind != np.float32:
            return self.norms(rows, kind)
        assert self._norms is not None
        if np.isnan(self._norms[chunk.tokens]).any():
            self._norms[chunk.tokens] = self._backend.numpy(self.norms(rows, kind))
        return self._backend.array(self._norms[chunk.tokens], kind)

    def _resident(self, kind: np.dtype) -> list[Any]:
        """All centred rows on the device, block by block; empty if they are to be read from the features each time."""
        if kind not in self._rounded:
            size = len(self) * self._features.shape[1] * kind.itemsize
            resident = self._backend.resident(size, kind) or (kind == np.float32 and self._features.dtype != np.float32)
            blocks = range(len(self.scale)) if resident else range(0)
            self._rounded[kind] = [self._rounded_block(number, kind) for number in blocks]
        return self._rounded[kind]

    def _rounded_block(self, number: int, kind: np.dtype) -> Any:
        tokens = self.tokens(number)
        rows = self._backend.empty((tokens.stop - tokens.start, self._features.shape[1]), kind)
        for begin in range(0, len(rows), CHUNK):
            part = slice(begin, min(begin + CHUNK, len(rows)))
            rows[part] = self._backend.array(self._centred_rows(number, part, kind), kind)
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


class _Slack:
    """What float32 may take off a score ||F z||^2 or base ||z||^2 - ||A z||^2, from the lengths of the rows.

    A product F x errs by at most gamma ||F||_F ||x||, which may be more than a given share of ||F x||: where F is
    ill-conditioned, long rows have small scores.
    """

    def __init__(self, head: ScoreForm, rest: ScoreForm | None, mean: Floats, metric: PriorMetric | None) -> None:
        self._base, self._metric = head.base, metric
        self._gamma = float(np.finfo(np.float32).eps) * (2.0 + np.sqrt(len(mean)) / 8.0)
        self._length = float(np.linalg.norm(mean))
        self._size = float(np.sqrt(sum(_size(form) for form in (head, rest) if form is not None)))
        self._constant = self._solution_norm = self._inverse = 0.0
        if head.base != 0:
            assert metric is not None
            solution = metric.solve(mean[None])[0]
            self._constant, self._solution_norm = float(solution @ mean), float(np.linalg.norm(solution))
            if not metric.isotropic:
                self._inverse = float(np.linalg.norm(metric.factor_inverse(len(mean))))

    def __call__(self, scores: Floats, lengths: Floats, norms: NDArray | None) -> Floats:
        """Allowance for scores (without c), shape (m,)."""
        eta = self._gamma * self._size * (lengths + self._length)
        if norms is None:
            return np.asarray((2.0 * np.sqrt(np.maximum(scores, 0.0)) + eta) * eta)
        extra = _ROUNDING * self._base * (norms + self._constant)
        assert self._metric is not None
        if not self._metric.isotropic:
            roots = np.sqrt(norms.astype(np.float64))
            off = self._gamma * self._inverse * lengths
            extra += self._base * ((2.0 * roots + off) * off + 2.0 * self._gamma * self._solution_norm * lengths)
            extra += 2.0 * np.sqrt(self._base) * (roots + np.sqrt(self._constant)) * eta
        return np.asarray(extra)


def _size(form: ScoreForm) -> float:
    """Sum of |a_j| ||p_j||^2."""
    lengths = np.einsum("rd,rd->r", form.directions, form.directions)
    return float(lengths.sum() if form.coefficients is None else np.abs(form.coefficients) @ lengths)


class _Scorer:
    """A form at one mean, in the precision and on the device of the rows that it scores."""

    def __init__(
        self, form: ScoreForm, mean: Floats, metric: PriorMetric | None, backend: ArrayBackend, kind: np.dtype
    ) -> None:
        self._form, self._backend = form, backend
        self._mean = None
        self.constant = 0.0  # squared norm of the mean in the metric of the prior
        if form.triangle is not None:
            self._mean = backend.array(mean, kind)
            self._factor = backend.array(form.directions, kind)
            return
        directions = form.directions
        shift = directions @ mean
        if form.base != 0:
            assert metric is not None
            solution = metric.solve(mean[None])[0]
            self.constant = float(solution @ mean)
            directions = np.concatenate([directions, solution[None]])
        self._directions = backend.array(directions, kind)
        self._shift = backend.array(shift, kind)
        self._coefficients = None if form.coefficients is None else backend.array(form.coefficients, kind)

    def __call__(self, rows: Any, norms: Any) -> Any:
        """Squared norms of native rows less the mean; `norms` are theirs in the metric of the prior."""
        with self._backend.full_precision():
            return self._squares(rows, norms)

    def _squares(self, rows: Any, norms: Any) -> Any:
        if self._mean is not None:
            return self._backend.factor_squares(rows - self._mean, self._factor, self._form.triangle)
        projected = rows @ self._directions.T
        terms = projected[:, : len(self._shift)] - self._shift
        terms *= terms
        total = terms.sum(1) if self._coefficients is None else terms @ self._coefficients
        if norms is None:
            return total
        return total + self._form.base * (norms - 2.0 * projected[:, -1] + self.constant)


def _centre(rows: NDArray) -> Floats:
    """A centre of some rows: the mean of evenly spaced ones, rounded to float32."""
    stride = -(-len(rows) // _CENTRE_ROWS)
    return np.asarray(rows[::stride].mean(axis=0, dtype=np.float64).astype(np.float32).astype(np.float64))
