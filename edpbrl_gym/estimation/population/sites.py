"""Variational Gaussians of many people at once, each given by what its answers contribute: its sites.

A person's n questions have k differences of utilities each, v = c + D w with w ~ N(0, I), so that their covariance is
K = D D'. The Gaussian of v closest to the posterior (`edpbrl_gym.estimation.variational`) is N(c + K a, V) with
V = (K^-1 + W)^-1: n k numbers a and one matrix k x k for each question in W = diag(W_1, ..., W_n) (Opper & Archambeau,
2009). At the optimum a is the expected score and W the expected information. The sites change little with the prior,
so those of one prior are a good start under the next. Neither K nor W need be invertible: all is computed from
V = D (I + D' W D)^-1 D'.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation.variational import normal_points

__all__ = ["Sites", "fit_sites", "gain", "reduced", "rows_of"]

_SHORTEST = 1.0 / 64.0  # share of a step that is tried; where none raises the bound, the person's fit ends
_JITTER = 1e-10  # of a covariance, relative to its mean variance: equal questions make it singular


class Sites(NamedTuple):
    """The Gaussians of B people, and the expectations under them.

    Attributes:
        scores: a, (B, n, k).
        information: W, (B, n, k, k).
        bounds: Lower bounds on the log evidence, (B,).
        right: b = W (v - c) - p, from which the next scores follow, (B, n, k).
        target: The next information, (B, n, k, k).
    """

    scores: Floats
    information: Floats
    bounds: Floats
    right: Floats
    target: Floats


def reduced(rows: Floats) -> Floats:
    """Rows of at most n k numbers with the same covariances as the rows (B, n, k, r)."""
    count, questions, others, rank = rows.shape
    if rank <= questions * others:
        return rows
    flat = rows.reshape(count, -1, rank)
    return rows_of(np.matmul(flat, flat.transpose(0, 2, 1)), others)


def rows_of(kernels: Floats, others: int) -> Floats:
    """Rows (B, n, k, n k) whose covariances are K, (B, n k, n k)."""
    count, size, _ = kernels.shape
    spread = kernels.diagonal(axis1=1, axis2=2).mean(axis=1)
    safe = kernels + (_JITTER * spread + 1e-300)[:, None, None] * np.eye(size)
    return np.asarray(np.linalg.cholesky(safe)).reshape(count, size // others, others, size)


def gain(rows: Floats, information: Floats) -> Floats:
    """Q = (K + W^-1)^-1 = W - W V W, (B, n k, n k): answers take C D' Q D C from a covariance C of w."""
    count, questions, others, _ = rows.shape
    white, _ = _whitened(rows, information)
    half = np.matmul(information, white).reshape(count, questions * others, -1)
    found = -np.matmul(half, half.transpose(0, 2, 1))
    split = found.reshape(count, questions, others, questions, others)
    for question in range(questions):
        split[:, question, :, question] += information[:, question]
    return found


def fit_sites(
    rows: Floats,
    offsets: Floats,
    *,
    start: Sites | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 200,
) -> Sites:
    """The variational Gaussians of several people.

    Newton steps with the expected gradient and Hessian, shortened where the bound falls.

    Args:
        rows: D, (B, n, k, r), best ``reduced``.
        offsets: c, (B, n, k); -inf for absent alternatives, whose rows are 0.
        start: Sites of the same answers, such as those under another prior; None: the prior.
        tolerance: Rise of a person's bound in the last step, in nats.
        max_iterations: Largest number of steps.
    """
    shape = offsets.shape
    points = normal_points(shape[2]).T
    scores, information = np.zeros(shape), np.zeros((*shape, shape[2]))
    if start is not None:
        scores, information = start.scores, start.information
    state = _evaluated(rows, offsets, points, scores, information, *_whitened(rows, information))
    active = np.arange(len(offsets))
    for _ in range(max_iterations):
        if not len(active):
            break
        old = Sites(*(array[active] for array in state))
        new = _step(rows[active], offsets[active], points, old)
        rise = new.bounds - old.bounds
        better = rise > 0.0  # below 0 where the integration error of the points allows no further rise
        for array, values in zip(state, new, strict=True):
            array[active[better]] = values[better]
        active = active[rise > tolerance]
    return state


def _step(rows: Floats, offsets: Floats, points: Floats, old: Sites) -> Sites:
    white, log_determinant = _whitened(rows, old.target)
    scores = old.right - _products(old.target, _covered(white, old.right))  # (I + W K)^-1 b
    new = _evaluated(rows, offsets, points, scores, old.target, white, log_determinant)
    length = 0.5
    low = np.flatnonzero(~(new.bounds >= old.bounds))
    while len(low) and length >= _SHORTEST:
        last = Sites(*(array[low] for array in old))
        tried = last.scores + length * (scores[low] - last.scores)
        information = last.information + length * (last.target - last.information)
        trial = _evaluated(rows[low], offsets[low], points, tried, information, *_whitened(rows[low], information))
        for array, values in zip(new, trial, strict=True):
            array[low] = values
        low = low[~(trial.bounds >= last.bounds)]
        length /= 2
    return new


def _evaluated(
    rows: Floats,
    offsets: Floats,
    points: Floats,
    scores: Floats,
    information: Floats,
    white: Floats,
    log_determinant: Floats,
) -> Sites:
    blocks = np.matmul(white, white.transpose(0, 1, 3, 2))  # those of V
    shifts = _covered(rows, scores)  # K a
    values = np.matmul(_roots(blocks), points)  # (B, n, k, S)
    values += (shifts + offsets)[..., None]
    largest = np.maximum(values.max(axis=2), 0.0)
    values -= largest[:, :, None]
    np.exp(values, out=values)
    total = values.sum(axis=2) + np.exp(-largest)
    log_likelihoods = -(np.log(total) + largest).mean(axis=2).sum(axis=1)
    values /= total[:, :, None]
    average = values.mean(axis=3)
    target = np.matmul(values, values.transpose(0, 1, 3, 2)) / -points.shape[1]
    diagonal = np.arange(offsets.shape[2])
    target[..., diagonal, diagonal] += average
    right = _products(target, shifts) - average
    trace = (information * blocks).sum(axis=(1, 2, 3))
    quadratic = (scores * shifts).sum(axis=(1, 2))
    bounds = log_likelihoods - 0.5 * (quadratic + log_determinant - trace)
    return Sites(scores.copy(), information.copy(), bounds, right, target)  # written to in place


def _whitened(rows: Floats, information: Floats) -> tuple[Floats, Floats]:
    """Rows whose covariances are V, (B, n, k, r), and log det(I + K W), (B,)."""
    count, questions, others, rank = rows.shape
    flat = rows.reshape(count, questions * others, rank)
    system = np.matmul(flat.transpose(0, 2, 1), np.matmul(information, rows).reshape(flat.shape))
    system.reshape(count, -1)[:, :: rank + 1] += 1.0
    lower = np.asarray(np.linalg.cholesky(system))
    inverse = np.empty(lower.shape)
    for person in range(count):  # numpy has no triangular inverse
        inverse[person] = lapack.dtrtri(lower[person].T, lower=0)[0].T  # in Fortran's order
    log_determinant = 2.0 * np.log(lower.diagonal(axis1=1, axis2=2)).sum(axis=1)
    return np.matmul(flat, inverse.transpose(0, 2, 1)).reshape(rows.shape), log_determinant


def _covered(rows: Floats, vectors: Floats) -> Floats:
    """D D' b, (B, n, k), for the rows D."""
    flat = rows.reshape(len(rows), -1, rows.shape[3])
    inner = np.matmul(flat.transpose(0, 2, 1), vectors.reshape(len(rows), -1, 1))
    return np.matmul(flat, inner).reshape(vectors.shape)


def _products(blocks: Floats, vectors: Floats) -> Floats:
    return np.matmul(blocks, vectors[..., None])[..., 0]


def _roots(matrices: Floats) -> Floats:
    """Lower triangular S with S S' the positive semidefinite matrices, (..., k, k); zero columns where singular."""
    found = np.zeros(matrices.shape)
    for column in range(matrices.shape[-1]):
        done = found[..., column, :column]
        rest = matrices[..., column:, column] - np.matmul(found[..., column:, :column], done[..., None])[..., 0]
        pivot = rest[..., 0]
        safe = pivot > 1e-14 * matrices[..., column, column]
        scale = np.where(safe, 1.0 / np.sqrt(np.where(safe, pivot, 1.0)), 0.0)
        found[..., column:, column] = rest * scale[..., None]
    return found
