"""Who does work that is divided into calls: the protocol that rendering, encoding, judging and experiments share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

__all__ = ["Executor", "Track", "no_track"]

# called with (what is being done, the steps of it, how many there are); yields the steps
Track = Callable[[str, Iterable[Any], int], Iterable[Any]]


def no_track(name: str, steps: Iterable[Any], total: int) -> Iterable[Any]:
    """The ``Track`` that shows nothing."""
    return steps


@runtime_checkable
class Executor(Protocol):
    """Who does calls: ``workers.LocalProcesses``, or the workers of a ``workers.DaskCluster``.

    A worker may die in a call, which is then done again by another one: a call must leave what it has finished where
    the next one finds it, and give the same result however often it is begun.
    """

    def map_unordered(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], folder: Path
    ) -> Iterator[Any]:
        """Call a function that other processes can import with each of the arguments; yield results as they finish.

        An exception of one call is raised here, and calls that have not begun are left out. The calls read and write in
        a folder, an absolute path that all workers see.
        """
        ...
