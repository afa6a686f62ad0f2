"""Whose turn it is to compute: one thread at a time, what people wait for first."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Turns"]


class Turns:
    """A lock that is given to the waiting thread with the lowest number, and among equals to the first.

    Threads of one Python process that compute at the same time only slow each other down; in turns, half of them are
    done sooner and the others no later.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: list[tuple[int, int]] = []
        self._order = itertools.count()
        self._is_taken = False

    @contextmanager
    def turn(self, priority: int) -> Iterator[None]:
        """Wait for a turn, and hold it for the block."""
        with self._condition:
            ticket = (priority, next(self._order))
            heapq.heappush(self._waiting, ticket)
            self._condition.wait_for(lambda: not self._is_taken and self._waiting[0] == ticket)
            heapq.heappop(self._waiting)
            self._is_taken = True
        try:
            yield
        finally:
            with self._condition:
                self._is_taken = False
                self._condition.notify_all()
