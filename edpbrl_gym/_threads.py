"""Threads where they help: none inside small BLAS kernels, one for each chunk of the large products.

BLAS splits every product among its threads and waits for the last of them. On a busy machine that one may sleep for
milliseconds, a thousand times as long as the small matrices of a Newton step take. So the solvers run BLAS with one
thread, and large products are cut into chunks that threads of our own take one after the other: nobody waits for
anybody but at the end.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["blas_threads", "for_each", "one_blas_thread", "one_thread", "one_torch_thread"]

Item = TypeVar("Item")

_MOST = 32  # threads of our own: each holds the arrays of a chunk


class _Limit:
    """One thread for BLAS. The count is the process's: the thread that set it (its owner) is the one to restore it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._limiter: Any = None
        self._before = 1

    def threads(self) -> int:
        with self._lock:
            return self._before if self._owner is not None else _threads_now()

    def enter(self) -> bool:
        """Whether it has to be left again; not where another thread is the owner."""
        with self._lock:
            if self._owner is None:
                self._owner = threading.get_ident()
                self._before = _threads_now()
                self._limiter = _controller().limit(limits=1, user_api="blas")
                self._limiter.__enter__()
            elif self._owner != threading.get_ident():
                return False
            self._depth += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._owner = None
                self._limiter.__exit__(None, None, None)


@functools.cache
def _controller() -> Any:
    """The BLAS libraries of numpy and scipy, looked up once (a few milliseconds)."""
    import scipy.linalg  # noqa: F401  # scipy's BLAS is loaded with it
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _threads_now() -> int:
    return max((library.num_threads or 1 for library in _controller().lib_controllers), default=1)


def _limit_this_thread() -> None:
    """For a thread that ends soon: an OpenBLAS built on OpenMP has a count of its own for each thread."""
    _controller().limit(limits=1, user_api="blas")


_limit = _Limit()


def blas_threads() -> int:
    """Threads that BLAS may use outside of `one_blas_thread`: as many as environment or caller allow; 1 if unknown."""
    return _limit.threads()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context with one thread for BLAS, in the whole process.

    Contexts may be nested. Where those of several threads overlap, the first of them counts: when it ends, the others
    go on with as many threads as before, slower perhaps but right.
    """
    entered = _limit.enter()
    try:
        yield
    finally:
        if entered:
            _limit.leave()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """A context in which torch splits no product among threads, and threads begun inside have one each."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """A context with one thread for torch, BLAS and OpenMP each.

    For a unit of work: several processes share the cores, and rounding doesn't depend on how many there are.
    """
    from threadpoolctl import threadpool_limits

    with one_torch_thread(), threadpool_limits(limits=1):
        yield


def for_each(function: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call a function with every item, in as many threads as `blas_threads`, each with BLAS of one thread.

    Args:
        function: Called in any order; an exception of one call is raised here once all calls under way have ended.
        items: The items.
    """
    todo = list(items)
    count = min(len(todo), blas_threads(), _MOST)
    if count < 2:
        for item in todo:
            function(item)
        return
    with one_blas_thread(), ThreadPoolExecutor(count, initializer=_limit_this_thread) as pool:
        try:
            for finished in [pool.submit(function, item) for item in todo]:
                finished.result()
        except BaseException:  # Ctrl-C too: what has not begun must not
            pool.shutdown(wait=False, cancel_futures=True)
            raise
