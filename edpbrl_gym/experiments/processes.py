"""Who does the work of an experiment, here processes of this machine; its progress is shown by whoever runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from edpbrl_gym._validation import check_count

__all__ = ["Executor", "LocalProcesses", "Track", "no_track"]

# called with (what is being done, the steps of it, how many there are); yields the steps
Track = Callable[[str, Iterable[Any], int], Iterable[Any]]


def no_track(name: str, steps: Iterable[Any], total: int) -> Iterable[Any]:
    """The ``Track`` that shows nothing."""
    return steps


@runtime_checkable
class Executor(Protocol):
    """Who does the work of an experiment: ``LocalProcesses``, or the workers of a ``DaskCluster``."""

    def map_unordered(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], folder: Path
    ) -> Iterable[Any]:
        """Call a function with each of the arguments, and yield results as they finish.

        An exception of one call is raised here, and calls that have not begun are left out.

        Args:
            function: Of a module that other processes can import.
            arguments: Of each call.
            folder: The run folder, absolute and held by this process; the calls read and write in it.
        """
        ...


class LocalProcesses:
    """Processes of this machine, with one thread of BLAS each; this process alone where one will do.

    Attributes:
        count: How many.
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
    ) -> Iterable[Any]:
        """As ``Executor.map_unordered``; processes of this machine see the folder."""
        processes = min(self.count, len(arguments))
        if processes <= 1:
            return (function(*values) for values in arguments)
        import joblib

        pool = joblib.Parallel(
            n_jobs=processes, return_as="generator_unordered", pre_dispatch=processes, inner_max_num_threads=1
        )
        return pool(joblib.delayed(function)(*values) for values in arguments)
