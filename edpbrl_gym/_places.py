"""Places to write: files written whole with errors that name them, and places that one process holds at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from edpbrl_gym._files import check_links, check_place, hold, is_at, naming, replacing, short_name

__all__ = [
    "LOCK",
    "RunFolderError",
    "hold_folder",
    "hold_place",
    "prepare_place",
    "telling",
    "write_atomically",
]

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
    """A file that this process holds until nobody here uses it any more; then it is removed. Use ``Lock.of``."""

    _held: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def __init__(self, path: Path, place: Path, doing: str) -> None:
        self._path = path.absolute()
        self._owner = 0  # a forked child has this object too
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink():  # what it leads to would be emptied
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
                self._file.close()  # its holder has removed it since it was opened
            holder = self._file.read(20).strip()
        holder = f" ({holder})" if holder else ""
        raise RunFolderError(f"Expected {place} to be free, another process{holder} {doing}")

    @classmethod
    def of(cls, path: Path, place: Path, doing: str) -> Lock:
        """Hold a file, made where it isn't there; within a process all share one.

        Args:
            path: The file.
            place: What is held by it.
            doing: What a process that has it does there, and what to do then; for the message.

        Raises:
            RunFolderError: If another process has it, or it can't be written.
        """
        name = os.path.realpath(path)
        held = cls._held.get(name)
        if held is None:
            with telling(place):
                held = cls._held[name] = cls(path, place, doing)
        return held

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is None:
            return
        with suppress(OSError):  # Windows removes no open file
            if self._owner == os.getpid() and is_at(file.fileno(), self._path):
                self._path.unlink()  # while it is held: who has opened it finds that it has gone, and makes another
        file.close()


def hold_folder(folder: Path, *names: str) -> object:
    """Keep other processes out of a folder, made if it isn't there, as long as what is returned is kept.

    Args:
        folder: The folder.
        *names: What will be written there; links among them may not lead outside the folder. All where none are given.

    Raises:
        RunFolderError: If another process holds it, it can't be written, or a link leads outside.
    """
    held = Lock.of(folder / LOCK, folder, "runs in it; wait until it ends, or choose another --out")
    with telling(folder):
        check_links(folder, *names)
    return held


def hold_place(path: Path) -> object:
    """Keep other processes from the place of a file, or of a folder that is replaced as a whole, as ``hold_folder``.

    Raises:
        RunFolderError: If another process holds it, or nothing can be written beside it.
    """
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{short_name(target.name)}{LOCK}")
    return Lock.of(lock, path, "is about to write it; wait until it ends, or choose another place")
