"""Kill worker processes of this process at random points of their work."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

import psutil

KILLS = int(os.environ.get("EDPBRL_TEST_KILLS", "1"))  # of each kind of work


def local_workers() -> list[int]:
    """Process numbers of the workers of this process."""
    children = psutil.Process().children()
    return [child.pid for child in children if any("popen_loky" in part for part in _command(child))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class Killer(threading.Thread):
    """Kills a random worker at random points of some work.

    Args:
        done: How much of the work is done now.
        total: How much there is; a kill follows each of ``kills`` different amounts, drawn at random.
        kills: How many.
        seed: Of the amounts, workers and delays.

    Attributes:
        killed: Numbers of the killed processes, in order.
        points: Amounts of work that were done at the kills.
    """

    def __init__(
        self,
        done: Callable[[], int],
        total: int,
        *,
        kills: int = KILLS,
        seed: int = 0,
    ) -> None:
        super().__init__(daemon=True)
        self._done = done
        self._random = random.Random(seed)
        self._points = sorted(self._random.sample(range(total), kills))
        self._ended = threading.Event()
        self.killed: list[int] = []
        self.points: list[int] = []

    def run(self) -> None:
        for point in self._points:
            while self._done() < point and not self._ended.is_set():
                time.sleep(0.002)
            time.sleep(self._random.uniform(0.0, 0.02))
            while not self._ended.is_set():
                workers = local_workers()
                if workers:
                    pid = self._random.choice(workers)
                    try:
                        os.kill(pid, 9)
                    except ProcessLookupError:
                        continue
                    self.killed.append(pid)
                    self.points.append(self._done())
                    break
                time.sleep(0.01)

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
