"""The solvers by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.solvers.cases import Block, Instance
from benchmarks.solvers.conditional_gradient import conditional_gradient
from benchmarks.solvers.library import library_frank_wolfe, library_newton, library_reference
from benchmarks.solvers.multiplicative import multiplicative
from benchmarks.solvers.paper import paper_frank_wolfe
from benchmarks.solvers.recorder import Recorder

__all__ = ["SOLVERS", "Solver"]

Solver = Callable[[Instance, Recorder], tuple[list[Block], int]]

SOLVERS: dict[str, Solver] = {
    "newton": library_newton,
    "pairwise": partial(library_frank_wolfe, variant="pairwise"),
    "frank_wolfe": partial(library_frank_wolfe, variant="plain"),
    "paper": partial(paper_frank_wolfe, precision="float64"),
    "paper-float32": partial(paper_frank_wolfe, precision="float32"),
    "multiplicative": multiplicative,
    "copt": conditional_gradient,
    "cvxpy": library_reference,
}
