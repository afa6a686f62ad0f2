"""Which solvers run on which problems, and how long each may take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.solvers.cases import Case

__all__ = ["SUITES", "Run", "suite"]

TARGET = 1e-6
COMPARED = ("newton", "pairwise", "frank_wolfe", "paper")
PAPER_ITERATIONS = 100
SIZES = (500, 5_000, 50_000, 200_000, 1_000_000)
SEEDS = (2026, 2027)
SPREAD = ("clip", "clip+float16", "decaying", "clustered", "heavy-tailed", "isotropic")
SPREAD_SIZE = (5_000, 384)
FULL_LIMIT = 60.0


@dataclass(frozen=True)
class Run:
    """One solver on one problem with its limits (seconds of its own time)."""

    case: Case
    solver: str
    time_limit: float

    @property
    def max_iterations(self) -> int:
        """The paper's 100 for its algorithm, no limit for the others."""
        return PAPER_ITERATIONS if self.solver == "paper" else 1_000_000

    def order(self, folder: str) -> dict[str, Any]:
        """What `worker.solve` wants."""
        return {
            "case": self.case.settings(),
            "solver": self.solver,
            "target": TARGET,
            "time_limit": self.time_limit,
            "max_iterations": self.max_iterations,
            "folder": folder,
        }


def suite(name: str, time_limit: float | None = None) -> list[Run]:
    """The runs of a suite, "quick" or "default".

    Args:
        name: quick: a few seconds, small problems. default: about 35 minutes on one core.
        time_limit: In place of the suite's own limits of the solvers other than newton.
    """
    runs = list(dict.fromkeys(SUITES[name]()))  # some stand in several tables
    if time_limit is not None:
        runs = [run if run.solver == "newton" else replace(run, time_limit=time_limit) for run in runs]
    return runs


def _side_by_side(
    case: Case, limit: float, solvers: tuple[str, ...] = COMPARED, *, paper_limit: float | None = None
) -> Iterator[Run]:
    limits = {"newton": FULL_LIMIT, "paper": paper_limit or limit}
    for solver in solvers:
        yield Run(case, solver, limits.get(solver, limit))


def _clip(tokens: int, dimension: int, criterion: str = "D", regularization: float = 100.0, split: int = 1) -> Case:
    return Case("clip", tokens, dimension, split, criterion, regularization)


def _builtin(criterion: str, regularization: float) -> Case:
    return Case("minilm", 3869, 384, 6, criterion, regularization)


def _quick() -> Iterator[Run]:
    case = _clip(300, 16, "D")
    yield from _side_by_side(case, 0.3, (*COMPARED, "cvxpy"))
    yield from _side_by_side(replace(case, criterion="A", split=6), 0.3, ("newton", "pairwise"))
    yield from _side_by_side(replace(case, criterion="V16", tokens=3000), 0.3, ("newton", "pairwise"))
    for source in SPREAD[1:]:
        yield Run(replace(case, source=source, seed=1), "newton", 0.3)


def _default() -> Iterator[Run]:
    for criterion, limit in (("D", 20.0), ("A", 8.0), ("V16", 8.0)):  # all solvers
        paper_limit = FULL_LIMIT if criterion == "D" else None
        yield from _side_by_side(_clip(5_000, 768, criterion), limit, paper_limit=paper_limit)
    yield from _side_by_side(_clip(5_000, 768, "D", 1.0), 5.0)
    for criterion in ("A", "V16"):
        yield Run(_clip(5_000, 768, criterion, 1.0), "newton", FULL_LIMIT)
    yield from _side_by_side(_builtin("V", 100.0), 4.0, paper_limit=FULL_LIMIT)  # the paper's own setting
    yield from _side_by_side(_builtin("D", 100.0), 4.0)
    for criterion, regularization in (("A", 100.0), ("V16", 100.0), ("D", 1.0), ("A", 1.0), ("V16", 1.0), ("V", 1.0)):
        yield Run(_builtin(criterion, regularization), "newton", FULL_LIMIT)
    for criterion in ("D", "A", "V16"):  # six distinct vocabularies, and no structure at all
        yield Run(_clip(5_000, 768, criterion, split=6), "newton", FULL_LIMIT)
    for criterion, regularization in (("D", 100.0), ("A", 100.0), ("V16", 100.0), ("D", 1.0), ("A", 1.0), ("V16", 1.0)):
        case = Case("isotropic", 5_000, 768, 1, criterion, regularization)
        yield from _side_by_side(case, 5.0, ("newton", "pairwise") if criterion == "D" else ("newton",))
    yield from _scaling(limits={500: 4.0, 5_000: 6.0, 50_000: 8.0})
    for case in (_clip(100, 8), _clip(300, 16), _clip(500, 32)):  # where cvxpy fits
        for criterion in ("D", "A"):
            yield from _side_by_side(replace(case, criterion=criterion), 6.0, ("newton", "cvxpy"))
    yield Run(_clip(500, 384), "cvxpy", 6.0)  # it refuses, and says why
    yield from _spread()


def _spread() -> Iterator[Run]:
    """`newton` on features of every kind, drawn twice."""
    for source in SPREAD:
        for seed in SEEDS:
            for criterion in ("D", "A", "V16"):
                for regularization in (100.0, 1.0):
                    yield Run(Case(source, *SPREAD_SIZE, 1, criterion, regularization, seed), "newton", FULL_LIMIT)


def _scaling(limits: dict[int, float]) -> Iterator[Run]:
    """From 500 to a million tokens: D with every solver that the limits name a time for, A and V by newton alone."""
    for dimension in (384, 768):
        for tokens in SIZES:
            case = _clip(tokens, dimension)
            if (tokens, dimension) != (5_000, 768):  # stands above
                yield from _side_by_side(case, limits.get(tokens, 0.0), COMPARED if tokens in limits else ("newton",))
            if dimension == 768 and tokens in (50_000, 1_000_000):
                yield Run(replace(case, criterion="A"), "newton", FULL_LIMIT)
                yield Run(replace(case, criterion="V16"), "newton", FULL_LIMIT)


SUITES = {"quick": _quick, "default": _default}
