"""Kill worker processes, of this process or of a Dask cluster, at random points of their work."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from edpbrl_gym.workers import DaskCluster, LocalProcesses
from tests.helpers.dask_clusters import started_cluster

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


def _nothing() -> None:
    """The pool of this process replaces its workers by itself."""


class Killer(threading.Thread):
    """Kills a random worker at random points of some work.

    Args:
        done: How much of the work is done now.
        total: How much there is; a kill follows each of ``kills`` different amounts, drawn at random.
        workers: Process numbers of the workers that live now.
        killed_one: Called after each kill.
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
        workers: Callable[[], list[int]] = local_workers,
        killed_one: Callable[[], object] = _nothing,
        kills: int = KILLS,
        seed: int = 0,
    ) -> None:
        super().__init__(daemon=True)
        self._done, self._workers, self._killed_one = done, workers, killed_one
        self._random = random.Random(seed)
        self._points = sorted(self._random.sample(range(total), kills))
        self._ended = threading.Event()
        self.killed: list[int] = []
        self.points: list[int] = []

    def run(self) -> None:
        """Wait for each point, and kill."""
        for point in self._points:
            while self._done() < point and not self._ended.is_set():
                time.sleep(0.002)
            time.sleep(self._random.uniform(0.0, 0.02))
            while not self._ended.is_set():
                workers = self._workers()
                if workers:
                    pid = self._random.choice(workers)
                    try:
                        os.kill(pid, 9)
                    except ProcessLookupError:
                        continue
                    self.killed.append(pid)
                    self.points.append(self._done())
                    self._killed_one()
                    break
                time.sleep(0.01)

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


@contextmanager
def mortal_workers(where: str, folder: Path) -> Iterator[tuple[Any, dict[str, Callable[[], Any]]]]:
    """Two workers; one that dies is replaced, as pools of processes, nannies and SLURM do.

    Args:
        where: "processes" of this one, or "cluster": of a Dask scheduler.
        folder: Of the cluster.

    Returns:
        The executor, and arguments of the ``Killer`` of its workers.
    """
    if where == "processes":
        yield LocalProcesses(2), {}
        return
    with started_cluster(folder) as started, DaskCluster(started.address, timeout=60) as cluster:
        yield cluster, {"workers": started.living, "killed_one": started.start_worker}
