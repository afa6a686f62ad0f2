"""Watches a study that is served: counts what fails, looks at disk and memory, and tells the ``alerts``."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from edpbrl_gym.study.alerts import Alerts
from edpbrl_gym.study.queue import StudyQueue

__all__ = ["LEAST_DISK", "LEAST_MEMORY", "Watch", "available_memory", "free_disk", "used_memory"]

LEAST_DISK, LEAST_MEMORY = 1e9, 3e8
"""Bytes below which a disk counts as nearly full, and memory as nearly used up."""
_LOOK = 15.0  # seconds between two looks
_HOUR = 3600.0
_KEPT = 10_000  # failures that are remembered
_WORDS = {
    "database": "The database can't be reached: answers are refused, and browsers repeat them. Look whether its file "
    "is where it was, or whether PostgreSQL runs.",
    "pictures": "A picture could not be drawn. Look at the log for why, and whether the renderer is reached.",
    "planning": "A question could not be planned, or a worker process was lost; it is asked again. Look at the log, "
    "and at the memory of the machine.",
    "errors": "A page failed. Look at the log for the error.",
    "disk": "The disk is nearly full: answers can't be stored once it is. Free some space.",
    "memory": "The memory of the machine is nearly used up. Take fewer --workers, or stop other programs.",
}


class Watch(logging.Handler):
    """Reads the log of this process, in which every failure is, and looks at the machine now and then.

    Args:
        queue: The study.
        alerts: Who is told.
    """

    def __init__(self, queue: StudyQueue, alerts: Alerts) -> None:
        super().__init__(logging.WARNING)
        self._queue, self._alerts = queue, alerts
        self._failures: deque[tuple[float, str]] = deque(maxlen=_KEPT)
        self._stopped = threading.Event()
        self._logger = logging.getLogger("edpbrl_gym")
        self._logger.addHandler(self)
        self._thread = threading.Thread(target=self._look_on, name="edpbrl-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._logger.removeHandler(self)
        self._stopped.set()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line of the log, if it says that something failed."""
        kind = _kind(record)
        if kind is not None:
            self.failed(kind)

    def failed(self, kind: str) -> None:
        """Count a failure, and tell of it."""
        self._failures.append((time.monotonic(), kind))
        self._alerts.tell(kind, _WORDS[kind])

    def failures(self) -> dict[str, int]:
        """How often what failed in the last hour."""
        since, found = time.monotonic() - _HOUR, dict[str, int]()
        for at, kind in list(self._failures):
            if at >= since:
                found[kind] = found.get(kind, 0) + 1
        return found

    def _look_on(self) -> None:
        while not self._stopped.wait(_LOOK):
            self.look()

    def look(self) -> None:
        """Look at the database and the machine."""
        try:
            self._queue.store.counts()
        except Exception:
            self.failed("database")
        with suppress(OSError):
            if free_disk(self._queue.config.folder) < LEAST_DISK:
                self._alerts.tell("disk", _WORDS["disk"])
        memory = available_memory()
        if memory is not None and memory < LEAST_MEMORY:
            self._alerts.tell("memory", _WORDS["memory"])


def _kind(record: logging.LogRecord) -> str | None:
    """What failed by a line of the log; None: nothing of ours, such as a wrong form."""
    status = getattr(record, "status", None)
    if status is not None:
        return "database" if status == 503 else "errors" if status >= 500 else None
    for name in ("pictures", "planning"):
        if record.name == f"edpbrl_gym.study.{name}":
            return name
    if record.name == "edpbrl_gym.study.queue":
        return "planning"
    return "errors" if record.levelno >= logging.ERROR and record.name.startswith("edpbrl_gym") else None


def free_disk(folder: Path) -> int:
    """Bytes that are free where a folder is."""
    return shutil.disk_usage(folder).free


def available_memory() -> int | None:
    """Bytes of memory that programs can still have; None: the system does not say."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def used_memory(*pids: int) -> int | None:
    """Bytes of memory that this process and others use, what they share counted once; None: the system does not say."""
    total = 0
    for pid in ("self", *pids):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            total += sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
        except OSError:
            if pid == "self":
                return None
    return total
