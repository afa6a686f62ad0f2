"""Processes forked from this one as it is, each with a state of its own; one that dies is replaced in milliseconds.

``LocalProcesses`` does calls that know nothing of each other. Here the caller chooses which process does a call, so
that one which has prepared something is asked again. The first process, the nursery, is forked before there are
threads, and every other one from it: what was loaded before is there at once, and shared in memory until it is changed.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from edpbrl_gym._threads import one_thread

__all__ = ["ForkedWorker", "Nursery", "NurseryGoneError", "WorkerDiedError", "can_fork"]

Handler = Callable[[Any], Any]
_SET_NAME = 15  # of Linux's prctl: how the process is called in lists
_NICE = 10  # of work that nobody waits for


class WorkerDiedError(RuntimeError):
    """A process died, or was silent for too long, before it had answered."""


class NurseryGoneError(RuntimeError):
    """There are no more processes to be had: the one that forks them has died."""


def can_fork() -> bool:
    """Whether processes can be forked from this one: on Linux, as long as no GPU is used."""
    torch = sys.modules.get("torch")
    return sys.platform == "linux" and not (torch is not None and torch.cuda.is_initialized())


class ForkedWorker:
    """A process that answers requests one after the other; it ends with this process, however that ends.

    Attributes:
        pid: Of the process.
    """

    def __init__(self, connection: Connection, pid: int) -> None:
        self._connection, self.pid = connection, pid

    def call(self, request: Any, *, patience: float) -> Any:
        """What the handler returns for a request; raises what it raises. One call at a time.

        Raises:
            WorkerDiedError: There was no answer within ``patience`` seconds, or never will be.
        """
        try:
            self._connection.send(request)
            if not self._connection.poll(patience):
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                raise WorkerDiedError(f"Expected an answer within {patience:g} s, got none")
            is_well, answer = self._connection.recv()
        except (OSError, EOFError) as error:
            self.close()
            raise WorkerDiedError("Expected a process that answers, it has died") from error
        except WorkerDiedError:
            self.close()
            raise
        if not is_well:
            raise answer
        return answer

    def close(self) -> None:
        """Let the process end after the request that it works on."""
        self._connection.close()


class Nursery:
    """Forks processes; to be made before this one has threads.

    Args:
        make: Makes the handler of requests, in the new process.
        prepare: Called in the first process before it forks others, which then share what it has loaded. Errors are
            ignored there; they come again where the result is needed.

    Raises:
        ValueError: Processes can't be forked from this one.
    """

    def __init__(self, make: Callable[[], Handler], prepare: Callable[[], object] = lambda: None) -> None:
        if not can_fork():
            raise ValueError("Expected Linux and no GPU for worker processes, got another system or a GPU")
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        gc.collect()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _become(theirs.fileno())
                with suppress(Exception), one_thread():  # pools of threads don't survive a fork
                    prepare()
                _fork_on_request(theirs, make)
            finally:
                os._exit(0)
        theirs.close()

    def worker(self, *, nice: bool = False) -> ForkedWorker:
        """A new process; with ``nice`` one that leaves the cores to others.

        Raises:
            NurseryGoneError: There will be no more.
            OSError: There is none for now, such as for want of memory.
        """
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                socket.send_fds(self._control, [b"n" if nice else b"w"], [theirs.fileno()])
                answer = self._control.recv(16)
        except OSError:
            answer = b""
        finally:
            theirs.close()
        if not answer or int(answer) < 0:
            ours.close()
            if answer:
                raise OSError(-int(answer), os.strerror(-int(answer)))
            raise NurseryGoneError("Expected a process that forks others, it has died")
        return ForkedWorker(Connection(ours.detach()), int(answer))

    def close(self) -> None:
        """End the nursery; its processes end when they are closed."""
        self._control.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _become(*kept: int) -> None:
    """What a new process does first: nothing of the parent's stays open, and signals are for the parent."""
    for number in (signal.SIGINT, signal.SIGTERM):  # to a whole group or service; the parent ends first
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    signal.set_wakeup_fd(-1)
    start = 3
    for one in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(start, one)
        start = one + 1
    ctypes.CDLL(None).prctl(_SET_NAME, b"edpbrl-worker")


def _fork_on_request(control: socket.socket, make: Callable[[], Handler]) -> None:
    gc.freeze()  # the collector then writes to no page that is shared
    while True:
        kind, [handle], _, _ = _received(control)
        if not kind:
            return
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or 1)
        if pid == 0:
            control.close()
            if kind == b"n":
                os.nice(_NICE)
            _answer(Connection(handle), make)
            os._exit(0)
        os.close(handle)
        control.send(str(pid).encode())


def _received(control: socket.socket) -> tuple[bytes, list[int], int, Any]:
    kind, handles, flags, address = socket.recv_fds(control, 1, 1)
    return kind, handles or [-1], flags, address


def _answer(connection: Connection, make: Callable[[], Handler]) -> None:
    """Answer requests until the other end is closed."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with one_thread():
        handle = make()
        while True:
            try:
                request = connection.recv()
            except (OSError, EOFError):
                return
            try:
                answer: tuple[bool, Any] = True, handle(request)
            except Exception as error:
                answer = False, _sendable(error)
            try:
                connection.send(answer)
            except OSError:
                return


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
