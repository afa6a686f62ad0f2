"""Calls on the workers of a Dask cluster.

Every call is sent as bytes, in a function that is pickled with its code: a scheduler reads all that it passes on, and
need not have this package. A worker checks what it has before it reads the bytes.
"""

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
from types import TracebackType
from typing import Any

import edpbrl_gym
from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._files import mark
from edpbrl_gym._threads import one_thread
from edpbrl_gym.workers.versions import versions

__all__ = ["ClusterError", "DaskCluster", "check_pythons", "perform"]

_log = logging.getLogger(__name__)

_LOSSES = 3  # times that the scheduler may give a call up before it counts as one that kills its workers
_PAUSE = 0.05  # seconds between two looks at what has finished
_SILENCE = 30.0  # seconds without a result after which the workers are counted again

_alone = threading.Lock()


class ClusterError(RuntimeError):
    """A cluster can't be used as asked; the message says what to do."""


class DaskCluster:
    """The workers of a Dask scheduler, as an ``Executor``; a context manager.

    A worker does one call at a time, with one thread of BLAS. It must see the folder of the work and the folder in
    which this process runs, and have the same versions as this process: all is checked on the worker before each call.

    A scheduler gives up a task when more workers than its ``distributed.scheduler.allowed-failures`` (3) have died
    with it, whether they ran it or only held it. So no worker is sent more than two calls, and a call that was given up
    is sent again under a new name, with which the scheduler counts from zero; its settings stay as they are.
    """

    def __init__(self, address: str, *, timeout: float = 10.0) -> None:
        """Connect.

        Args:
            address: Of the scheduler, such as tcp://host:8786.
            timeout: Seconds to wait for the scheduler, also where the connection is lost.

        Raises:
            ClusterError: If there is no scheduler, or scheduler and workers have another version of Python.
            ModuleNotFoundError: If Dask's ``distributed`` is not installed.
        """
        check_installed(Need("distributed", "--dask"))
        from distributed import Client

        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # our errors say it in a line
        self._address = address
        self._said: set[str] = set()
        try:
            self._client: Any = Client(address, timeout=timeout, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"Expected a Dask scheduler at {address!r} within {timeout:g} s, got none "
                f"({str(error) or type(error).__name__}); check the address that `dask scheduler` has printed"
            ) from error
        try:
            check_pythons(self._ask(self._client.get_versions))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> DaskCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, which goes on; calls that have not begun are dropped."""
        self._client.close()

    def map_unordered(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], folder: Path
    ) -> Iterator[Any]:
        """As ``Executor.map_unordered``.

        Raises:
            ClusterError: If a worker lacks a version or a folder, workers died with every try of a call, or the
                connection is lost.
        """
        with mark(folder) as name:
            yield from self._map(function, arguments, _site(folder, name))

    def _map(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], site: dict[str, Any]
    ) -> Iterator[Any]:
        from distributed import CancelledError, KilledWorker, as_completed

        task = _task()
        waiting, losses = deque(range(len(arguments))), Counter[int]()
        done, running = as_completed(loop=self._client.loop), dict[Any, int]()
        try:
            while waiting or running:
                while waiting and len(running) < 2 * max(1, self._workers()):
                    place = waiting.popleft()
                    future = self._submit(task, function, arguments[place], site)
                    running[future] = place
                    done.add(future)
                future = self._next(done)
                place = running.pop(future)
                try:
                    result = future.result()
                except KilledWorker as error:
                    losses[place] += 1
                    if losses[place] == _LOSSES:
                        raise ClusterError(
                            f"Expected a worker to live until {_name(function, arguments[place])} is done, all that "
                            f"held it died in {_LOSSES} tries ({error}); do they have enough memory? What is finished "
                            "stays, the same command goes on"
                        ) from error
                    waiting.append(place)  # after those that killed nobody
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

    def _submit(
        self, task: Callable[..., Any], function: Callable[..., Any], values: tuple[Any, ...], site: dict[str, Any]
    ) -> Any:
        import cloudpickle
        import dask

        work = cloudpickle.dumps((function, values))
        name = f"{_name(function, values)}-{uuid.uuid4().hex}"
        # few calls are under way at a time: what all of them share may be large
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            return self._client.submit(task, work, edpbrl_gym.__version__, site, key=name)

    def _next(self, done: Any) -> Any:
        """Wait for a call to end; where all workers have gone meanwhile, say so."""
        asked = time.monotonic()
        while not done.has_ready():
            time.sleep(_PAUSE)
            if time.monotonic() - asked > _SILENCE:
                self._workers()
                asked = time.monotonic()
        return next(done)

    def _workers(self) -> int:
        """How many there are now."""
        threads = self._ask(self._client.nthreads)
        if threads:
            self._said.discard("none")
        else:
            self._say("none", "The scheduler %s has no worker; the work goes on when one comes", self._address)
        several = sum(count > 1 for count in threads.values())
        if several:
            self._say(
                "threads",
                "%d of %d workers have more than one thread, they do one call at a time nevertheless; start them with "
                "--nthreads 1, one for each core",
                several,
                len(threads),
            )
        return len(threads)

    def _say(self, what: str, message: str, *values: object) -> None:
        """Log a warning, once."""
        if what not in self._said:
            self._said.add(what)
            _log.warning(message, *values)

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Ask the scheduler."""
        try:
            return question()
        except OSError as error:
            raise self._lost() from error

    def _lost(self) -> ClusterError:
        return ClusterError(
            f"Expected the scheduler {self._address} to keep our work, it is gone or has dropped it; what is finished "
            "stays, the same command goes on"
        )


def _name(function: Callable[..., Any], values: tuple[Any, ...]) -> str:
    """Of a call, for messages and the dashboard: that of its unit, where it has one."""
    return next((value.part for value in values if hasattr(value, "part")), getattr(function, "__name__", "call"))


def check_pythons(found: Any) -> None:
    """Refuse another minor version of Python: code of one can't be read by another.

    Args:
        found: What ``Client.get_versions`` returns.

    Raises:
        ClusterError: If the scheduler or a worker has another one.
    """

    def python(one: Any) -> str:
        return ".".join(one["host"]["python"].split(".")[:2])

    here = python(found["client"])
    for name, one in {"the scheduler": found["scheduler"], **found["workers"]}.items():
        if python(one) != here:
            raise ClusterError(
                f"Expected Python {here} in the whole cluster, as here; {name} has {python(one)}; start it in the "
                "same environment"
            )


# -- on a worker -------------------------------------------------------------------------------------------------------


def _task() -> Callable[..., Any]:
    """What a worker calls. It is pickled with its code, since no module has it by its name: see the module."""

    def task(work: bytes, version: str, site: dict[str, Any]) -> Any:
        try:
            import edpbrl_gym

            installed = edpbrl_gym.__version__
        except ImportError as error:
            installed = str(error)
        if installed != version:
            from distributed import get_worker

            raise RuntimeError(
                f"Expected edpbrl-gym {version} on the worker {get_worker().address}, as here, got {installed}; start "
                "it in the same environment"
            )
        from edpbrl_gym.workers.cluster import perform

        return perform(work, **site)

    return task


def _site(folder: Path, name: str) -> dict[str, Any]:
    """What every worker must have as this process has it: arguments of ``perform``."""
    return {"folder": str(folder), "name": name, "start": os.getcwd(), "installed": versions()}


def perform(work: bytes, *, folder: str, name: str, start: str, installed: dict[str, str]) -> Any:
    """Do a call on a worker.

    Args:
        work: The pickled function and its arguments.
        folder: The folder of the work.
        name: A file in it, there while the work goes on.
        start: Folder in which the command was started: relative paths are of there.
        installed: Versions that the coordinator has.

    Returns:
        What the function returns.

    Raises:
        ClusterError: If the worker lacks one of these.
    """
    import cloudpickle

    with _alone:  # the count of BLAS threads and the working folder are those of the whole process
        _check_worker(Path(folder), name, start, installed)
        with chdir(start), one_thread():
            try:
                function, values = cloudpickle.loads(work)
            except (ImportError, AttributeError) as error:
                raise ClusterError(
                    f"Expected the code of the work on {_worker()}, got {error}; install it there, or start the "
                    "worker with its folder in PYTHONPATH"
                ) from error
            return function(*values)


def _check_worker(folder: Path, name: str, start: str, installed: dict[str, str]) -> None:
    others = versions()
    different = sorted(one for one in {*others, *installed} if others.get(one) != installed.get(one))
    if different:
        listed = "; ".join(f"{one} is {others.get(one)} there, {installed.get(one)} here" for one in different)
        raise ClusterError(f"Expected the same versions on {_worker()}: {listed}; start it in the same environment")
    if not (folder / name).exists():
        raise ClusterError(
            f"Expected {_worker()} to see the folder {folder}, it does not; choose one that all workers see under the "
            "same name (--out, --cache, EDPBRL_CACHE), on the same machine or in a shared file system"
        )
    if not os.path.isdir(start):
        raise ClusterError(
            f"Expected {_worker()} to see the folder {start}, of which relative paths are, it does not; start the "
            "command in a folder that all workers see"
        )


def _worker() -> str:
    """The worker, for messages."""
    from distributed import get_worker

    return f"the worker {get_worker().address}"
