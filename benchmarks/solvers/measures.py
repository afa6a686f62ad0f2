"""The unit of all times, one float32 product of the features with a d x d matrix, and the peak memory of a process."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["peak_memory", "yardstick"]

CHUNK = 8192  # rows of the product at once; the product of a million rows is never kept
_BUDGET = 1.5  # seconds
_FEWEST, _MOST = 2, 40


def yardstick(features: NDArray[np.float32]) -> tuple[float, float]:
    """Median and least seconds of one product Phi G in float32, Phi (n, d), G (d, d), in chunks of rows.

    Measured at least twice, and again until 1.5 seconds are spent.
    """
    dimension = features.shape[1]
    matrix = np.random.default_rng(0).standard_normal((dimension, dimension)).astype(np.float32)
    matrix += matrix.T
    product = np.empty((min(CHUNK, len(features)), dimension), dtype=np.float32)
    seconds: list[float] = []
    while len(seconds) < _FEWEST or (sum(seconds) < _BUDGET and len(seconds) < _MOST):
        begun = time.perf_counter()
        for begin in range(0, len(features), CHUNK):
            rows = features[begin : begin + CHUNK]
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
