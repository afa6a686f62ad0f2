"""Processes of this machine; one that dies is replaced, and its work is done again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from edpbrl_gym._validation import check_count

__all__ = ["LocalProcesses", "WorkersLostError"]

_log = logging.getLogger(__name__)

_LOSSES = 10  # times in a row, without any result in between, that processes may die


class WorkersLostError(RuntimeError):
    """Processes died again and again with the same work; the message says what to do."""


class LocalProcesses:
    """Processes of this machine, with one thread of BLAS each; this process alone where one will do.

    Where one of several processes dies, all are started again, and calls that had no result are made again. If that
    happens ten times without any result in between, one of the calls may be what kills its process.
    """

    def __init__(self, jobs: int | None = None) -> None:
        """Count them.

        Args:
            jobs: How many; None: one for each core that this process may use.

        Raises:
            ValueError: If jobs < 1.
        """
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.count = cores if jobs is None else check_count(jobs, "jobs")

    def map_unordered(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], folder: Path
    ) -> Iterator[Any]:
        """As ``Executor.map_unordered``; processes of this machine see the folder.

        Raises:
            WorkersLostError: If processes died ten times without a result.
        """
        processes = min(self.count, len(arguments))
        if processes <= 1:
            return (function(*values) for values in arguments)
        return _in_processes(processes, function, arguments)


def _in_processes(processes: int, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    import joblib

    waiting = dict(enumerate(arguments))
    losses = 0
    while waiting:
        # after two losses without a result one call at a time, so that the others don't die with the one that kills
        at_once = processes if losses < 2 else 1
        pool = joblib.Parallel(
            n_jobs=processes, return_as="generator_unordered", pre_dispatch=at_once, inner_max_num_threads=1
        )
        calls = [joblib.delayed(_numbered)(index, function, values) for index, values in waiting.items()]
        results = pool(calls)
        try:
            for index, result in results:
                del waiting[index]
                losses = 0
                yield result
        except BrokenProcessPool as error:
            losses += 1
            if losses == _LOSSES:
                raise WorkersLostError(
                    f"Expected processes to live until their work is done, one of {processes} died {_LOSSES} times in "
                    "a row before any of them had finished something; is there enough memory? Fewer --jobs need less. "
                    "What is finished stays, the same command goes on"
                ) from error
            _log.warning("A process died; %d calls without a result are made again", len(waiting))
            for index in list(waiting)[:at_once]:  # those under way go last, so that the others are done first
                waiting[index] = waiting.pop(index)


def _numbered(index: int, function: Callable[..., Any], values: tuple[Any, ...]) -> tuple[int, Any]:
    return index, function(*values)
