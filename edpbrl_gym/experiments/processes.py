"""Work in several processes, with its progress shown by whoever runs the experiment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from edpbrl_gym._validation import check_count

__all__ = ["Track", "do_all", "in_parallel", "no_track", "workers"]

# called with (what is being done, the steps of it, how many there are); yields the steps
Track = Callable[[str, Iterable[Any], int], Iterable[Any]]


def no_track(name: str, steps: Iterable[Any], total: int) -> Iterable[Any]:
    """The ``Track`` that shows nothing."""
    return steps


def workers(jobs: int | None) -> int:
    """Processes to use: ``jobs``, or None for one for each core this process may use.

    Raises:
        ValueError: If jobs < 1.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if jobs is None else check_count(jobs, "jobs")


def in_parallel(function: Callable[..., Any], arguments: list[tuple[Any, ...]], processes: int) -> Iterable[Any]:
    """Call a function with each of the arguments; yield results as they finish, in this process where one will do."""
    processes = min(processes, len(arguments))
    if processes <= 1:
        return (function(*given) for given in arguments)
    import joblib

    pool = joblib.Parallel(
        n_jobs=processes, return_as="generator_unordered", pre_dispatch=processes, inner_max_num_threads=1
    )
    return pool(joblib.delayed(function)(*given) for given in arguments)


def do_all(
    name: str, function: Callable[..., Any], arguments: list[tuple[Any, ...]], processes: int, track: Track
) -> None:
    """Call a function with each of the arguments, for what it writes; nothing is shown where there is nothing to do."""
    if arguments:
        for _ in track(name, in_parallel(function, arguments, processes), len(arguments)):
            pass
