"""Destinations of output: atomic writes with errors that name the file, and locks against other processes.

A place that can't be written, or that another process holds, raises a RunFolderError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from edpbrl_gym._files import (
    check_links,
    check_place,
    errors_naming,
    hold,
    is_at,
    replacing,
    short_name,
)

__all__ = [
    "LOCK",
    "RunFolderError",
    "explaining_errors",
    "hold_folder",
    "hold_place",
    "prepare_place",
    "write_atomically",
]

LOCK = ".lock"


class RunFolderError(ValueError):
    """A run folder can't be used as asked; the message says what to do."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` with a temporary path in the same folder, then rename it: readers see the whole file or none."""
    prepare_place(path)
    with explaining_errors(path), replacing(path) as part:
        write(part)


def prepare_place(path: Path) -> None:
    """Create the folder of a file to be written, and check its path before the work rather than after it."""
    with explaining_errors(path):
        check_place(path).parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def explaining_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into one that says which path can't be written, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # raised by this package, with a complete message
            raise RunFolderError(str(error)) from error
        raise RunFolderError(
            f"Expected to write {path}, got {error.strerror}; choose a folder that you can write to"
        ) from error


class Lock:
    """A lock file of this process, removed when its last user releases it. Use ``Lock.of``."""

    _held: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def __init__(self, path: Path, place: Path, doing: str) -> None:
        self._path = path.absolute()
        self._owner = 0  # a forked child has this object too
        with errors_naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():  # its target would be emptied
                raise OSError(f"Expected no link at {path}; remove it, or choose another folder")
            check_place(path)
            while True:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
                self._file = open(handle, "r+", encoding="ascii")  # noqa: SIM115 - open as long as the lock is held
                if not hold(handle):
                    break
                if is_at(handle, path):
                    self._owner = os.getpid()
                    self._file.truncate(0)
                    self._file.write(f"{self._owner}\n")
                    self._file.flush()
                    return
                self._file.close()  # its holder removed it after it was opened here
            holder = self._file.read(20).strip()
        holder = f" ({holder})" if holder else ""
        raise RunFolderError(f"Expected {place} to be free, another process{holder} {doing}")

    @classmethod
    def of(cls, path: Path, place: Path, doing: str) -> Lock:
        """Hold the lock file ``path`` of a place, creating it if necessary; all users within a process share one lock.

        ``doing`` is what the process that holds it does, and what to do then, for the message.
        """
        name = os.path.realpath(path)
        lock = cls._held.get(name)
        if lock is None:
            with explaining_errors(place):
                lock = cls._held[name] = cls(path, place, doing)
        return lock

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing: the statement has held a reference, and its last user releases the lock."""

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is None:
            return
        with suppress(OSError):  # Windows removes no open file
            if self._owner == os.getpid() and is_at(file.fileno(), self._path):
                self._path.unlink()  # while locked: a process that has opened it notices, and creates another
        file.close()


def hold_folder(folder: Path, *names: str) -> Lock:
    """Lock a folder, created if necessary, against other processes, as long as the result is referenced.

    Within a ``with`` statement that is until its end. Links of these names (without any: all links) must not lead
    outside the folder.
    """
    lock = Lock.of(folder / LOCK, folder, "runs in it; wait until it ends, or choose another --out")
    with explaining_errors(folder):
        check_links(folder, *names)
    return lock


def hold_place(path: Path) -> Lock:
    """Lock the path of a file, or of a folder that is replaced as a whole, like ``hold_folder``."""
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{short_name(target.name)}{LOCK}")
    return Lock.of(lock, path, "is about to write it; wait until it ends, or choose another place")
