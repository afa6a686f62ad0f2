"""The gap of any design, computed alike for every solver, in float64, without the library's code.

A block b is the steps that show the same tokens with the same weights w_bn, c_b is T times their number, and the gap is
how far the design is from the optimum at most:

    I = sum_b c_b sum_n w_bn (x_n - m_b)(x_n - m_b)' + lambda I,      m_b = sum_n w_bn x_n
    score_bn = c_b (x_n - m_b)' G (x_n - m_b),      G = I^-1 (D), I^-1 V I^-1 (A, V)
    gap = sum_b ( max_n score_bn - sum_n w_bn score_bn ),      relative gap = gap / (s(I) - s(lambda I))

over all tokens, chunk by chunk, so that features larger than memory can be certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from benchmarks.solvers.cases import Block, Instance
from edpbrl_gym._arrays import Floats

__all__ = ["Certificate", "certificate", "gain_of", "information", "objective", "score_factor"]


CHUNK = 4096


@dataclass(frozen=True)
class Certificate:
    """Value and gap of a design, and what the gap is divided by: its gain over the prior alone."""

    value: float
    gain: float
    gap: float

    @property
    def relative_gap(self) -> float:
        """Gap relative to the gain."""
        return self.gap / self.gain


def certificate(instance: Instance, design: Sequence[Block]) -> Certificate:
    """Certify a design over all tokens in float64.

    Raises:
        ValueError: If the weights of a block are not a probability distribution.
    """
    for block in design:
        if block.weights.min() < 0 or abs(block.weights.sum() - 1.0) > 1e-9:
            raise ValueError(
                f"Expected weights that are at least 0 and sum to 1, got a smallest of {block.weights.min():.3g} and a "
                f"sum of 1 + {block.weights.sum() - 1.0:.3g}."
            )
    means = [_mean(instance, block) for block in design]
    matrix = information(instance, design, means)
    value = objective(instance, matrix)
    gain = gain_of(instance, value)
    return Certificate(value, gain, _gap(instance, design, means, _triangular(score_factor(instance, matrix))))


def gain_of(instance: Instance, value: float) -> float:
    """What gaps are divided by, see `Certificate`."""
    case = instance.case
    return value - objective(instance, case.regularization * np.eye(case.dimension))


def information(instance: Instance, design: Sequence[Block], means: Sequence[Floats]) -> Floats:
    """Information matrix, prior included, shape (d, d)."""
    dimension = instance.case.dimension
    total = instance.case.regularization * np.eye(dimension)
    for block, mean in zip(design, means, strict=True):
        support = np.flatnonzero(block.weights)
        for begin in range(0, len(support), CHUNK):
            chosen = support[begin : begin + CHUNK]
            rows = instance.features[block.rows.start + chosen] - mean
            rows *= np.sqrt(block.scale * block.weights[chosen])[:, None]
            total += rows.T @ rows
    return total


def objective(instance: Instance, matrix: Floats) -> float:
    """The criterion at an information matrix: log det I, or -tr V I^-1."""
    if instance.kind == "D":
        return 2.0 * float(np.log(np.diag(np.linalg.cholesky(matrix))).sum())
    return -float(np.vdot(instance.target_factor, np.linalg.solve(matrix, instance.target_factor)))


def score_factor(instance: Instance, matrix: Floats) -> Floats:
    """F with G = F'F: L^-1 for D (I = L L'), B' I^-1 for A and V = B B'; shape (r, d)."""
    if instance.kind == "D":
        return np.asarray(np.linalg.inv(np.linalg.cholesky(matrix)))
    return np.asarray(np.linalg.solve(matrix, instance.target_factor).T)


def _mean(instance: Instance, block: Block) -> Floats:
    support = np.flatnonzero(block.weights)
    mean = np.zeros(instance.case.dimension)
    for begin in range(0, len(support), CHUNK):
        chosen = support[begin : begin + CHUNK]
        mean += block.weights[chosen] @ instance.features[block.rows.start + chosen].astype(np.float64)
    return mean


def _triangular(factor: Floats) -> Floats:
    """Triangular R with R'R = F'F where F has d rows: half the work for every token. Else F itself."""
    return np.asarray(np.linalg.qr(factor, mode="r")) if factor.shape[0] == factor.shape[1] else factor


def _gap(instance: Instance, design: Sequence[Block], means: Sequence[Floats], factor: Floats) -> float:
    total = 0.0
    known: dict[tuple[int, int, bytes, bytes], float] = {}  # steps with the same tokens and weights cost one pass
    for block, mean in zip(design, means, strict=True):
        key = (block.rows.start, block.rows.stop, mean.tobytes(), block.weights.tobytes())
        if key not in known:
            known[key] = _excess(instance.features[block.rows], block.weights, mean, factor)
        total += block.scale * known[key]
    return max(0.0, total)


def _excess(features: NDArray[np.float32], weights: Floats, mean: Floats, factor: Floats) -> float:
    """Largest score less the mean score, for c_b = 1."""
    largest, mean_score = -np.inf, 0.0
    triangle = factor.shape[0] == factor.shape[1]
    factor = np.asfortranarray(factor)
    for begin in range(0, len(features), CHUNK):
        shifted = features[begin : begin + CHUNK] - mean
        part = blas.dtrmm(1.0, factor, shifted.T, overwrite_b=True) if triangle else factor @ shifted.T
        scores = np.einsum("rn,rn->n", part, part)
        largest = max(largest, float(scores.max()))
        mean_score += float(weights[begin : begin + CHUNK] @ scores)
    return largest - mean_score
