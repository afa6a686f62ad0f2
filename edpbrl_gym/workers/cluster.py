"""Calls on the workers of a Dask cluster, which read a call only where versions and folders are the same."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, Self

from edpbrl_gym._compat import Need, check_installed, versions
from edpbrl_gym._files import mark
from edpbrl_gym._threads import one_thread

__all__ = ["ClusterError", "DaskCluster", "perform"]

_log = logging.getLogger(__name__)

_LOSSES = 3  # times that the scheduler may give a call up before it counts as one that kills its workers
_PAUSE = 0.05  # seconds between two looks at what has finished
_SILENCE = 30.0  # seconds without a result after which the workers are counted again

_alone = threading.Lock()


class ClusterError(RuntimeError):
    """A cluster can't be used as asked; the message says what to do."""


class DaskCluster:
    """The workers of a Dask scheduler, as an ``Executor``; a context manager, which leaves the cluster as it is.

    A worker does one call at a time, with one thread of BLAS. It must see the folder of the work and the folder in
    which this process runs, and have the same versions as this process: all is checked on the worker before each call.

    A scheduler gives up a task when more workers than its ``distributed.scheduler.allowed-failures`` (3) have died
    with it. So no worker is sent more than two calls, and a call that was given up is sent again under a new name.
    """

    def __init__(self, address: str, *, timeout: float = 10.0) -> None:
        """Connect to the scheduler, at an address such as tcp://host:8786, within ``timeout`` seconds.

        Raises:
            ClusterError: If there is no scheduler.
        """
        check_installed(Need("distributed", "--dask"))
        from distributed import Client

        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # our errors say it in a line
        self._address = address
        self._waits = False  # whether it has been said that there is no worker
        try:
            self._client: Any = Client(address, timeout=timeout, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"Expected a Dask scheduler at {address!r} within {timeout:g} s, got none "
                f"({str(error) or type(error).__name__}); check the address that `dask scheduler` has printed"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def map_unordered(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], folder: Path
    ) -> Iterator[Any]:
        """As ``Executor.map_unordered``.

        Raises:
            ClusterError: If a worker lacks something, workers died with every try of a call, or the connection is lost.
        """
        from distributed import CancelledError, KilledWorker, as_completed

        waiting, losses = deque(range(len(arguments))), Counter[int]()
        done, running = as_completed(loop=self._client.loop), dict[Any, int]()
        with mark(folder) as name:
            site = {"folder": str(folder), "name": name, "start": os.getcwd(), "installed": versions()}
            try:
                while waiting or running:
                    while waiting and len(running) < 2 * max(1, self._count_workers()):
                        index = waiting.popleft()
                        future = self._submit(function, arguments[index], site)
                        running[future] = index
                        done.add(future)
                    future = self._next(done)
                    index = running.pop(future)
                    try:
                        result = future.result()
                    except KilledWorker as error:
                        losses[index] += 1
                        if losses[index] == _LOSSES:
                            raise ClusterError(
                                f"Expected a worker to live until {_name(function, arguments[index])} is done, all "
                                f"that held it died in {_LOSSES} tries ({error}); do they have enough memory? What is "
                                "finished stays, the same command goes on"
                            ) from error
                        waiting.append(index)  # after those that killed nobody
                        continue
                    except CancelledError as error:
                        raise self._lost() from error
                    except OSError as error:
                        if future.status == "error":  # the call's own
                            raise
                        raise self._lost() from error
                    del future  # or the scheduler would make the result again, where the worker that has it dies
                    yield result
            finally:
                if running and self._client.status == "running":
                    self._client.cancel(list(running))

    def _submit(self, function: Callable[..., Any], values: tuple[Any, ...], site: dict[str, Any]) -> Any:
        import cloudpickle
        import dask

        work = cloudpickle.dumps((function, values))
        # few calls are under way at a time: what all of them share may be large
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            return self._client.submit(perform, work, key=f"{_name(function, values)}-{uuid.uuid4().hex}", **site)

    def _next(self, done: Any) -> Any:
        """Wait for a call to end; where all workers have gone meanwhile, say so."""
        asked = time.monotonic()
        while not done.has_ready():
            time.sleep(_PAUSE)
            if time.monotonic() - asked > _SILENCE:
                self._count_workers()
                asked = time.monotonic()
        return next(done)

    def _count_workers(self) -> int:
        try:
            count = len(self._client.nthreads())
        except OSError as error:
            raise self._lost() from error
        if not count and not self._waits:
            _log.warning("The scheduler %s has no worker; the work goes on when one comes", self._address)
        self._waits = not count
        return count

    def _lost(self) -> ClusterError:
        return ClusterError(
            f"Expected the scheduler {self._address} to keep our work, it is gone or has dropped it; what is finished "
            "stays, the same command goes on"
        )


def _name(function: Callable[..., Any], values: tuple[Any, ...]) -> str:
    """Of a call: that of its unit, where it has one."""
    return next((value.part for value in values if hasattr(value, "part")), getattr(function, "__name__", "call"))


def perform(work: bytes, *, folder: str, name: str, start: str, installed: dict[str, str]) -> Any:
    """Do a call, the pickled function and its arguments, on a worker.

    Args:
        work: The call.
        folder: Of the work; a file ``name`` is in it while the work goes on.
        name: See ``folder``.
        start: Folder in which the command was started: relative paths are of there.
        installed: Versions that the coordinator has.

    Raises:
        ClusterError: If the worker lacks one of these.
    """
    import cloudpickle
    from distributed import get_worker

    worker, others = f"the worker {get_worker().address}", versions()
    if different := sorted(one for one in {*others, *installed} if others.get(one) != installed.get(one)):
        listed = "; ".join(f"{one} is {others.get(one)} there, {installed.get(one)} here" for one in different)
        raise ClusterError(f"Expected the same versions on {worker}: {listed}; start it in the same environment")
    for needed, there in ((folder, os.path.exists(os.path.join(folder, name))), (start, os.path.isdir(start))):
        if not there:
            raise ClusterError(
                f"Expected {worker} to see the folder {needed}, it does not; choose one that all workers see under the "
                "same name (--out, --cache, EDPBRL_CACHE, and where the command is started), on the same machine or in "
                "a shared file system"
            )
    with _alone, chdir(start), one_thread():  # both are of the whole process
        try:
            function, values = cloudpickle.loads(work)
        except (ImportError, AttributeError) as error:
            raise ClusterError(
                f"Expected the code of the work on {worker}, got {error}; install it there, or start the worker with "
                "its folder in PYTHONPATH"
            ) from error
        return function(*values)
