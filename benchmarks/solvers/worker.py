"""One solver on one problem, in a process of its own: its memory, its caches and its lazy imports are nobody else's."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

from benchmarks.solvers.cases import Case, Instance
from benchmarks.solvers.competitors import SOLVERS
from benchmarks.solvers.conditional_gradient import MissingSolverError
from benchmarks.solvers.general import certified, make_instance
from benchmarks.solvers.measures import peak_memory, yardstick
from benchmarks.solvers.recorder import Recorder

__all__ = ["solve"]

_SHORT = 1.0  # a run shorter than this is repeated, and the fastest counts
_REPEATS = 7
_POINTS = 120  # of a trajectory that are kept


def solve(order: dict[str, Any]) -> dict[str, Any]:
    """Run and measure.

    Args:
        order: "case" (fields of `Case`), "solver", "target", "time_limit" (seconds), "max_iterations", "folder".

    Returns:
        A line of the results: see `results`.
    """
    case = Case(**order["case"])
    folder = Path(order["folder"])
    before = peak_memory()
    instance = make_instance(case, folder)
    limits = {key: order[key] for key in ("target", "time_limit", "max_iterations")}
    line: dict[str, Any] = {"case": case.settings(), "solver": order["solver"], "limits": limits}
    try:
        runs, design, memory = _timed(order["solver"], instance, limits)
    except MissingSolverError as error:
        return line | {"status": "missing", "message": str(error)}
    except ValueError as error:  # a solver that refuses the problem says why
        return line | {"status": "refused", "message": str(error)}
    best = min(runs, key=lambda run: run["seconds"])
    checked = certified(instance, design)
    median, least = yardstick(instance.features)
    return line | {
        "status": "reached" if checked.relative_gap <= limits["target"] else "stopped",
        "seconds": best["seconds"],
        "preparation": best["preparation"],
        "runs": [run["seconds"] for run in runs],
        "iterations": best["iterations"],
        "points": [(float(f"{t:.4g}"), float(f"{gap:.4g}"), step) for t, gap, step in _thinned(best["points"])],
        "reported_gap": best["points"][-1][1],
        "certified_gap": checked.relative_gap,
        "value": checked.value,
        "support": sum(int((block.weights > 0).sum()) for block in design) * len(instance.blocks) // len(design),
        "memory": memory,
        "memory_before": before,
        "feature_bytes": int(instance.features.nbytes),
        "yardstick": median,
        "yardstick_least": least,
        "machine": f"{platform.machine()}, {_processor()}",
    }


def _timed(name: str, instance: Instance, limits: dict[str, Any]) -> tuple[list[dict[str, Any]], list, int]:
    """Solve, several times if it is fast; returns the runs, the design of the last and the peak memory of the first."""
    runs: list[dict[str, Any]] = []
    memory = 0
    begun = time.perf_counter()
    while True:
        recorder = Recorder(instance, **limits)
        design, iterations = SOLVERS[name](instance, recorder)
        memory = memory or peak_memory()
        seconds, gap, _ = recorder.points[-1]
        runs.append(
            {
                "seconds": seconds,
                "preparation": recorder.preparation,
                "iterations": iterations,
                "points": recorder.points,
            }
        )
        spent = time.perf_counter() - begun
        if gap > limits["target"] or seconds >= _SHORT or len(runs) >= _REPEATS or spent > _REPEATS * _SHORT:
            return runs, design, memory


def _thinned(points: list[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    """The points with a gap below all before them, and the last; of very many, about 120 evenly spaced in log time.

    Those are all that the time to a gap depends on.
    """
    kept = points[:1]
    for point in points[1:-1]:
        if point[1] < kept[-1][1]:
            kept.append(point)
    if len(kept) > _POINTS:
        ratio = (kept[-1][0] / max(kept[0][0], 1e-3)) ** (1.0 / _POINTS)
        spaced = kept[:1]
        for point in kept[1:]:
            crosses = any(point[1] <= level < spaced[-1][1] for level in (1e-1, 1e-2, 1e-4, 1e-6))
            if crosses or point[0] >= ratio * max(spaced[-1][0], 1e-3):
                spaced.append(point)
        kept = spaced
    return [*kept, points[-1]] if len(points) > 1 else kept


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def main(order: str) -> None:
    """Run the order, a JSON text, and print the line."""
    print(json.dumps(solve(json.loads(order))))
