"""Control of threads, and of the memory that they leave: none inside small BLAS kernels, several for large products.

BLAS splits every product among its threads and waits for the last of them. On a busy machine that one may sleep for
milliseconds, a thousand times as long as the small matrices of a Newton step take. So the solvers run BLAS with one
thread, and large products are split into chunks for a pool of threads, which wait for each other only at the end.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = [
    "blas_threads",
    "for_each",
    "give_back",
    "one_blas_thread",
    "one_thread",
    "one_torch_thread",
    "share_heaps",
]

Item = TypeVar("Item")

_MAX_THREADS = 32  # each needs memory for the arrays of a chunk
_ARENA_MAX = -8  # of glibc's mallopt
_THREADS = "OMP_NUM_THREADS"  # of the environment


class _Limit:
    """One thread for BLAS. The limit is that of the process: the thread that set it (its owner) restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._limiter: Any = None
        self._previous = 1

    def threads(self) -> int:
        with self._lock:
            return self._previous if self._owner is not None else _threads_now()

    def enter(self) -> bool:
        """Enter the limit; return whether ``leave`` must be called: not if another thread is the owner."""
        with self._lock:
            if self._owner is None:
                self._owner = threading.get_ident()
                self._previous = _threads_now()
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
    """Limit BLAS in a short-lived thread: an OpenBLAS built on OpenMP has its own count for each thread."""
    _controller().limit(limits=1, user_api="blas")


_limit = _Limit()


def blas_threads() -> int:
    """Number of threads of BLAS outside `one_blas_thread`, as the environment or the caller set it; 1 if unknown."""
    return _limit.threads()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context with one thread for BLAS, in the whole process.

    Contexts may be nested. If those of several threads overlap, the first one counts: when it ends, the others continue
    with the previous number of threads, perhaps slower but still correct.
    """
    entered = _limit.enter()
    try:
        yield
    finally:
        if entered:
            _limit.leave()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """A context in which torch uses one thread, also in threads that are started inside; it is not loaded for that.

    Where it is not loaded yet, it reads the number of its threads from the environment when it is.
    """
    is_loaded = "torch" in sys.modules
    previous = sys.modules["torch"].get_num_threads() if is_loaded else _threads_of_torch()
    variable = os.environ.get(_THREADS)
    if is_loaded:
        sys.modules["torch"].set_num_threads(1)
    else:
        os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        if not is_loaded:
            if variable is None:
                del os.environ[_THREADS]
            else:
                os.environ[_THREADS] = variable
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(previous)


def _threads_of_torch() -> int:
    """How many threads torch will use when it is loaded."""
    given = os.environ.get(_THREADS, "").split(",")[0]
    return int(given) if given.isdigit() and int(given) else os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """A context with one thread each for torch, BLAS and OpenMP.

    For a unit of work: several processes share the cores, and rounding doesn't depend on their number.
    """
    from threadpoolctl import threadpool_limits

    with one_torch_thread(), threadpool_limits(limits=1):
        yield


def for_each(function: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call a function with every item, in any order, in as many threads as `blas_threads`, with one for BLAS in each.

    An exception is raised when all running calls have ended.
    """
    todo = list(items)
    count = min(len(todo), blas_threads(), _MAX_THREADS)
    if count < 2:
        for item in todo:
            function(item)
        return
    with one_blas_thread(), ThreadPoolExecutor(count, initializer=_limit_this_thread) as pool:
        try:
            for finished in [pool.submit(function, item) for item in todo]:
                finished.result()
        except BaseException:  # Ctrl-C too: do not start the remaining calls
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def give_back() -> None:
    """Return freed memory to the system; without effect where the C library is not glibc.

    Of large arrays of many sizes, glibc keeps what lies between blocks in use: a process that fits a model for one
    person after another grows by tens of megabytes each, though it holds nothing of them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def share_heaps() -> None:
    """Let all threads share two heaps, before they begin; without effect where the C library is not glibc.

    By default glibc makes eight for each core, and what one thread has freed is not used by another.
    """
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(_ARENA_MAX, 2)
