"""Processes of this machine that stay between calls, for a server that others wait for."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Self

from edpbrl_gym._threads import one_thread
from edpbrl_gym._validation import check_count
from edpbrl_gym.workers.processes import WorkersLostError

__all__ = ["KeptProcesses"]

_log = logging.getLogger(__name__)
_LOSSES = 3  # times in a row, without any result in between, that processes may die
_NICE = 5  # of the processes: whoever waits for this one comes first


class KeptProcesses:
    """Processes that do every call, also a single one, so that this process is free meanwhile; as an ``Executor``.

    They begin with the first call, give way to other processes, and end with this one, however it ends. Where one dies,
    all are started again, and calls that had no result are made again.

    Args:
        count: How many.

    Raises:
        ValueError: If count < 1.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = check_count(count, "count")
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes after the calls that are under way."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def map_unordered(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], folder: Path
    ) -> Iterator[Any]:
        """As ``Executor.map_unordered``; processes of this machine see the folder.

        Raises:
            WorkersLostError: If processes died three times without a result.
        """
        waiting, losses = list(arguments), 0
        while waiting:
            pool = self._started()
            try:
                futures: dict[Future[Any], tuple[Any, ...]] = {
                    pool.submit(_alone, function, values): values for values in waiting
                }
                while futures:
                    for future in wait(futures, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        waiting.remove(futures.pop(future))
                        losses = 0
                        yield result
            except BrokenProcessPool as error:
                self._forget(pool)
                losses += 1
                if losses == _LOSSES:
                    raise WorkersLostError(
                        f"Expected processes to live until their work is done, they died {_LOSSES} times in a row; is "
                        "there enough memory?"
                    ) from error
                _log.warning("A process died; %d calls without a result are made again", len(waiting))

    def _started(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._pool is None:
                spawned = multiprocessing.get_context("spawn")  # threads of this process are not copied
                self._pool = ProcessPoolExecutor(self.count, mp_context=spawned, initializer=_begin)
            return self._pool

    def _forget(self, pool: ProcessPoolExecutor) -> None:
        with self._lock:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False)


def _begin() -> None:
    """In a new process: Ctrl-C is for its parent, and it does not outlive that one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=watch, name="edpbrl-parent", daemon=True).start()


def _alone(function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    with one_thread():
        return function(*values)
