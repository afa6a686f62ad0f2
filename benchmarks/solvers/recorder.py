"""The clock of a run: gaps against seconds. Time spent measuring counts only where the solver needs the gap."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from benchmarks.solvers.cases import Block, Instance
from benchmarks.solvers.certificate import certificate

__all__ = ["Recorder"]

_GROWTH = 1.25  # the next off-the-clock measurement is due when the solver's time has grown by this factor


class Recorder:
    """Collects (seconds, gap relative to the gain, iteration) and says when a solver should stop.

    Args:
        instance: The problem.
        target: Stop at this relative gap.
        time_limit: Stop after so many seconds of the solver's own time.
        max_iterations: Stop after so many iterations.
    """

    def __init__(self, instance: Instance, *, target: float, time_limit: float, max_iterations: int) -> None:
        self.instance = instance
        self.target = target
        self.time_limit = time_limit
        self.max_iterations = max_iterations
        self.points: list[tuple[float, float, int]] = []
        self.preparation = 0.0
        self._paused = 0.0
        self._due = 0.0
        self._start = time.perf_counter()

    def start(self) -> None:
        """Set the clock to zero: what came before (building the problem, converting features) is `preparation`."""
        self.preparation = self.seconds
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The solver's own time so far."""
        return time.perf_counter() - self._start - self._paused

    def note(self, relative_gap: float, iteration: int) -> bool:
        """Record a gap that the solver computed itself (its cost counts); true when it should stop."""
        self.points.append((self.seconds, relative_gap, iteration))
        return self._done(iteration)

    def measure(self, design: Callable[[], Sequence[Block]], iteration: int) -> bool:
        """Record the gap of a design, off the clock; true when the solver should stop.

        Measurements get rarer as time goes on, so that they don't outweigh the run; the last design is always measured.
        """
        now = self.seconds
        if iteration and now < self._due and not self._done(iteration):
            return False
        start = time.perf_counter()
        self.points.append((now, certificate(self.instance, design()).relative_gap, iteration))
        self._paused += time.perf_counter() - start
        self._due = _GROWTH * now
        return self._done(iteration)

    def _done(self, iteration: int) -> bool:
        reached = bool(self.points) and self.points[-1][1] <= self.target
        return reached or self.seconds >= self.time_limit or iteration >= self.max_iterations
