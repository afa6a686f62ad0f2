"""The solvers by name. The library's own certify themselves in every iteration, and that is on the clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.solvers.cases import Block, Instance
from benchmarks.solvers.paper import paper_frank_wolfe
from benchmarks.solvers.recorder import Recorder
from edpbrl_gym.design import IterationState, frank_wolfe, newton, reference
from edpbrl_gym.design.solvers.frank_wolfe import Variant

__all__ = ["SOLVERS", "Solver"]

Solver = Callable[[Instance, Recorder], tuple[list[Block], int]]


def _frank_wolfe(instance: Instance, recorder: Recorder, *, variant: Variant) -> tuple[list[Block], int]:
    """`frank_wolfe`, plain or pairwise; returns the design and the number of iterations."""
    problem = instance.design_problem()
    recorder.start()
    design = frank_wolfe(
        problem,
        max_iterations=recorder.max_iterations,
        tolerance=recorder.target,
        callback=lambda state: _note(recorder, state),
        variant=variant,
    )
    recorder.note(design.relative_gap, design.iterations)
    return instance.of_design(design), design.iterations


def _newton(instance: Instance, recorder: Recorder) -> tuple[list[Block], int]:
    """`newton`; returns the design and the number of iterations."""
    problem = instance.design_problem()
    recorder.start()
    design = newton(problem, tolerance=recorder.target, callback=lambda state: _note(recorder, state))
    recorder.note(design.relative_gap, design.iterations)
    return instance.of_design(design), design.iterations


def _reference(instance: Instance, recorder: Recorder) -> tuple[list[Block], int]:
    """`reference` (cvxpy with Clarabel) on the merged problem; returns the design and the number of iterations."""
    problem = instance.design_problem(merged=True)
    recorder.start()
    design = reference(problem)
    recorder.note(design.relative_gap, design.iterations)
    return instance.of_design(design), design.iterations


def _note(recorder: Recorder, state: IterationState) -> bool:
    recorder.note(state.relative_gap, state.iteration)
    return recorder.seconds >= recorder.time_limit


SOLVERS: dict[str, Solver] = {
    "newton": _newton,
    "pairwise": partial(_frank_wolfe, variant="pairwise"),
    "frank_wolfe": partial(_frank_wolfe, variant="plain"),
    "paper": paper_frank_wolfe,
    "cvxpy": _reference,
}
