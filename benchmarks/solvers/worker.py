"""One solver on one problem, in a process of its own: its memory, its caches and its lazy imports are nobody else's."""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.solvers.cases import Case, Instance
from benchmarks.solvers.certificate import certificate
from benchmarks.solvers.competitors import SOLVERS
from benchmarks.solvers.recorder import Recorder

__all__ = ["peak_memory", "solve", "yardstick"]

_CHUNK = 8192  # rows of the product at once; the product of a million rows is never kept
_BUDGET = 1.5  # seconds that the unit is measured for
_FEWEST, _MOST = 2, 40  # measurements of it
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
    instance = Instance(case, folder)
    limits = {key: order[key] for key in ("target", "time_limit", "max_iterations")}
    line: dict[str, Any] = {"case": case.settings(), "solver": order["solver"], "limits": limits}
    try:
        runs, design, memory = _timed(order["solver"], instance, limits)
    except ValueError as error:  # a solver that refuses the problem says why
        return line | {"status": "refused", "message": str(error)}
    best = min(runs, key=lambda run: run["seconds"])
    checked = certificate(instance, design)
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


def yardstick(features: NDArray[np.float32]) -> tuple[float, float]:
    """Median and least seconds of one product Phi G in float32, Phi (n, d), G (d, d), in chunks of rows.

    Measured at least twice, and again until 1.5 seconds are spent.
    """
    dimension = features.shape[1]
    matrix = np.random.default_rng(0).standard_normal((dimension, dimension)).astype(np.float32)
    matrix += matrix.T
    product = np.empty((min(_CHUNK, len(features)), dimension), dtype=np.float32)
    seconds: list[float] = []
    while len(seconds) < _FEWEST or (sum(seconds) < _BUDGET and len(seconds) < _MOST):
        begun = time.perf_counter()
        for begin in range(0, len(features), _CHUNK):
            rows = features[begin : begin + _CHUNK]
            np.matmul(rows, matrix, out=product[: len(rows)])
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds)), min(seconds)


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes (mapped files count as far as they are in memory)."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss of Linux would include the parent's memory at the time of the fork
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _timed(name: str, instance: Instance, limits: dict[str, Any]) -> tuple[list[dict[str, Any]], list, int]:
    """Solve, several times if it is fast; the runs, the design of the fastest, and the peak memory of the first."""
    runs: list[dict[str, Any]] = []
    memory = 0
    begun = time.perf_counter()
    while True:
        recorder = Recorder(instance, **limits)
        latest, iterations = SOLVERS[name](instance, recorder)
        memory = memory or peak_memory()
        seconds, gap, _ = recorder.points[-1]
        if all(seconds < run["seconds"] for run in runs):
            design = latest
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
