"""Places to write: files written whole with errors that name them, and folders that one process holds at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from edpbrl_gym._files import check_links, check_place, hold, naming, replacing

__all__ = ["LOCK", "Lock", "RunFolderError", "hold_folder", "prepare_place", "telling", "write_atomically"]

LOCK = ".lock"


class RunFolderError(ValueError):
    """A run folder can't be used as asked; the message says what to do."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` with a temporary path in the same folder, then rename: readers see the whole file or none.

    Raises:
        RunFolderError: If the place can't be written.
    """
    prepare_place(path)
    with telling(path), replacing(path) as part:
        write(part)


def prepare_place(path: Path) -> None:
    """Make the folder of a file that will be written, and refuse what is no place for one: before the work, not after.

    Raises:
        RunFolderError: If the place can't be written.
    """
    with telling(path):
        check_place(path).parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Let errors of the system say which place can't be written, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # says all that is to be said
            raise RunFolderError(str(error)) from error
        raise RunFolderError(
            f"Expected to write {path}, got {error.strerror}; choose a folder that you can write to"
        ) from error


class Lock:
    """Held by this process until nobody here uses it any more. Use ``Lock.of``."""

    _held: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        with naming(path):
            folder.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():  # what it leads to would be emptied
                raise OSError(f"Expected no link at {path}; remove it, or choose another folder")
            check_place(path)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
            self._file = open(handle, "r+", encoding="ascii")  # noqa: SIM115 - open as long as the lock is held
            if hold(self._file.fileno()):
                self._file.truncate(0)
                self._file.write(f"{os.getpid()}\n")
                self._file.flush()
                return
            self._file.seek(0)
            holder = self._file.read(20).strip()
        self._file.close()
        raise RunFolderError(
            f"Expected {folder} to be free, another process{f' ({holder})' if holder else ''} runs in it; wait until "
            "it ends, or choose another --out"
        )

    @classmethod
    def of(cls, folder: Path) -> Lock:
        """The lock of a folder; within a process all share one.

        Raises:
            RunFolderError: If another process has it, or the folder can't be written.
        """
        name = os.path.realpath(folder)
        held = cls._held.get(name)
        if held is None:
            with telling(folder):
                held = cls._held[name] = cls(folder)
        return held

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()


def hold_folder(folder: Path, *names: str) -> object:
    """Keep other processes out of a folder, made if it isn't there, as long as what is returned is kept.

    Args:
        folder: The folder.
        *names: What will be written there; links among them may not lead outside the folder.

    Raises:
        RunFolderError: If another process holds it, it can't be written, or a link leads outside.
    """
    held = Lock.of(folder)
    with telling(folder):
        check_links(folder, *names)
    return held
