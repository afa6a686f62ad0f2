"""Frank-Wolfe of the package copt (not a dependency of this project: pip install copt), with our objective and oracle.

copt's own oracle of the simplex can't be used: in copt 0.9.2 `SimplexConstraint.lmo` takes two arguments and
`minimize_frank_wolfe` passes it three. The oracle is the package's, through copt's documented argument `lmo`; value and
gradient are written in numpy, in float64, on the weights of each distinct vocabulary (not on K x H copies of them). The
step size is copt's default, backtracking with an estimate of the Lipschitz constant.
"""

from __future__ import annotations

import contextlib
import io

import numpy as np

from benchmarks.solvers.cases import Block, Instance
from benchmarks.solvers.certificate import information, objective, score_factor
from benchmarks.solvers.recorder import Recorder
from edpbrl_gym._arrays import Floats

__all__ = ["MissingSolverError", "conditional_gradient"]


class MissingSolverError(RuntimeError):
    """A solver of the benchmark is not installed."""


def conditional_gradient(instance: Instance, recorder: Recorder) -> tuple[list[Block], int]:
    """Run copt's Frank-Wolfe from uniform weights; returns the design and the number of iterations.

    Raises:
        MissingSolverError: If copt can't be imported.
    """
    try:
        from copt import minimize_frank_wolfe
    except ImportError as error:
        raise MissingSolverError(f"copt can't be imported ({error}); pip install copt, and run again.") from error
    function = _Function(instance, recorder)
    recorder.start()
    start = np.concatenate([np.full(own.stop - own.start, 1.0 / (own.stop - own.start)) for own in instance.blocks])
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its estimate of the Lipschitz constant
        answer = minimize_frank_wolfe(
            function,
            start,
            function.oracle,
            jac=True,
            tol=0.0,
            max_iter=recorder.max_iterations + 1,  # the last one only evaluates
            callback=lambda state: not function.done,
        )
    return function.blocks(answer.x), function.iterations


class _Function:
    """Minus the criterion and its gradient as functions of the weights of all tokens, shape (n,)."""

    def __init__(self, instance: Instance, recorder: Recorder) -> None:
        self.instance = instance
        self.recorder = recorder
        self.features = instance.features.astype(np.float64)
        self.baseline = objective(instance, instance.case.regularization * np.eye(instance.case.dimension))
        self.value = np.nan  # at the weights of the last call
        self.iterations = -1
        self.done = False

    def blocks(self, weights: Floats) -> list[Block]:
        """The weights as blocks; rounding below zero is cut off."""
        found = []
        for own in self.instance.blocks:
            mass = np.maximum(weights[own], 0.0)
            found.append(Block(own, mass / mass.sum(), self.instance.scale))
        return found

    def __call__(self, weights: Floats) -> tuple[float, Floats]:
        """Value and gradient of minus the criterion."""
        design = [Block(own, np.maximum(weights[own], 0.0), self.instance.scale) for own in self.instance.blocks]
        means = [block.weights @ self.features[block.rows] for block in design]
        matrix = information(self.instance, design, means)
        factor = score_factor(self.instance, matrix)
        gradient = np.empty(len(weights))
        for block, mean in zip(design, means, strict=True):
            part = (self.features[block.rows] - mean) @ factor.T
            gradient[block.rows] = -block.scale * np.einsum("nr,nr->n", part, part)
        self.value = objective(self.instance, matrix)
        return -self.value, gradient

    def oracle(self, reward: Floats, weights: Floats, _: object) -> tuple[Floats, tuple, None, float]:
        """Direction to the best token of each block, in the form that copt wants; its slope is the gap."""
        direction = -weights
        best = tuple(own.start + int(np.argmax(reward[own])) for own in self.instance.blocks)
        direction[list(best)] += 1.0
        if not self.done:  # copt's last function call was at these weights
            self.iterations += 1
            self.done = self.recorder.note(float(reward @ direction) / (self.value - self.baseline), self.iterations)
        return direction, best, None, 1.0
