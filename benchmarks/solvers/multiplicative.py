"""The multiplicative algorithm of optimal design, with a prior.

    w_n <- w_n s_n^p / sum_m w_m s_m^p        in each block,    p = 1 for D, 1/2 for A and V,

s_n the derivative of the criterion with respect to the weight of token n in the lifted form, where the information is
linear in the weights (rows (x_n ; e_b)): c_b (x_n - m_b)' I^-1 (x_n - m_b) + 1 for D, c_b ||B' I^-1 (x_n - m_b)||^2 for
A and V. The prior is a constant term of the information; the objective still rises in every step. Silvey, Titterington
and Torsney (1978), Torsney (1983); the powers and monotonicity: Yu (2010), Annals of Statistics 38(3).

Its scores cover all tokens, so it knows its gap without further work. It runs in float64.
"""

from __future__ import annotations

import numpy as np

from benchmarks.solvers.cases import Block, Instance
from benchmarks.solvers.certificate import information, objective, score_factor
from benchmarks.solvers.recorder import Recorder
from edpbrl_gym._arrays import Floats

__all__ = ["multiplicative"]


CHUNK = 4096


def multiplicative(instance: Instance, recorder: Recorder) -> tuple[list[Block], int]:
    """Run from uniform weights; returns the design and the number of iterations."""
    features = instance.features.astype(np.float64)
    recorder.start()
    power = 1.0 if instance.kind == "D" else 0.5
    constant = 1.0 if instance.kind == "D" else 0.0
    prior = instance.case.regularization * np.eye(instance.case.dimension)
    baseline = objective(instance, prior)
    weights = [np.full(own.stop - own.start, 1.0 / (own.stop - own.start)) for own in instance.blocks]
    iteration = 0
    while True:
        design = [Block(own, mass, instance.scale) for own, mass in zip(instance.blocks, weights, strict=True)]
        means = [mass @ features[own] for own, mass in zip(instance.blocks, weights, strict=True)]
        matrix = information(instance, design, means)
        factor = score_factor(instance, matrix)
        gap = 0.0
        raised = []
        for own, mass, mean in zip(instance.blocks, weights, means, strict=True):
            scores = instance.scale * _scores(features[own], mean, factor)
            gap += max(0.0, float(scores.max() - mass @ scores))
            lifted = mass * (scores + constant) ** power
            raised.append(lifted / lifted.sum())
        if recorder.note(gap / (objective(instance, matrix) - baseline), iteration):
            return design, iteration
        weights = raised
        iteration += 1


def _scores(features: Floats, mean: Floats, factor: Floats) -> Floats:
    result = np.empty(len(features))
    for begin in range(0, len(features), CHUNK):
        part = (features[begin : begin + CHUNK] - mean) @ factor.T
        result[begin : begin + CHUNK] = np.einsum("nr,nr->n", part, part)
    return result
