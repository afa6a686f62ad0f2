"""Files and folders that are written whole or not at all, files that one process holds, errors that name their file.

What is being written lies beside its place as ``.NAME.PID.HEX.part``, locked by its writer. A kill leaves it there
without the lock: the next writer of the same name removes it, and so does ``sweep`` for a whole folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "check_links",
    "check_place",
    "hold",
    "is_at",
    "naming",
    "replacing",
    "replacing_folder",
    "short_name",
    "sweep",
]

_LEFT = re.compile(r"\.(?P<name>.+)\.\d+\.[0-9a-f]{32}\.(?P<kind>part|old)")
_CUT = re.compile(r".*~[0-9a-f]{16}")
_MOST_BYTES = 200  # of a name in the name of its temporary file: most file systems take 255, and 50 are added
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF, errno.EINVAL}  # of some network file systems
_NOT_FILES = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def hold(handle: int) -> bool:
    """Lock an open file for this handle until it is closed; return whether no other handle holds it.

    The lock ends with its process, however that ends. Without locks (Windows, some network file systems) nothing is
    held and the answer is True.
    """
    return _lock(handle) is not False


def _lock(handle: int) -> bool | None:
    """Whether this handle has the lock now; None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


def is_at(handle: int, path: Path) -> bool:
    """Whether a path leads to the open file, and not to nothing or to another that has taken its place."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def naming(path: str | os.PathLike[str], *, instead_of: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Let an OSError of the block name ``path`` where it names no file: Python gives none for a write or a read.

    Args:
        path: What the block reads or writes.
        instead_of: A temporary file's name, which would tell the reader nothing: ``path`` is named in its place.
    """
    name = os.fspath(path)
    hidden = (None,) if instead_of is None else (None, os.fspath(instead_of))
    try:
        yield
    except OSError as error:
        told = error.filename if error.filename is None else os.fsdecode(error.filename)
        if told not in hidden or (error.errno is None and name in str(error)):
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), name) from error


def check_place(path: str | os.PathLike[str]) -> Path:
    """Return the place of a file that is to be written: behind the links of its name, so that these stay links.

    Raises:
        OSError: If something is there that is no regular file (a folder, a device, a pipe), or the links go in a
            circle. What a link leads to need not exist.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    found = next((name for test, name in _NOT_FILES if test(mode)), None)
    if found is not None:
        raise OSError(f"Expected a regular file or a new name at {os.fspath(path)}, found {found}; choose another path")
    return Path(os.path.realpath(path))


def check_links(folder: Path, *names: str) -> None:
    """Refuse symbolic links in a folder that lead outside it: what is written to them would change other files.

    Args:
        folder: The folder; it may be a link itself, and need not exist.
        *names: Files and folders in it; all where none are given.

    Raises:
        OSError: If there is such a link, also deeper in the folder.
    """
    inside = os.path.realpath(folder)
    for place, folders, files in os.walk(folder):
        if names and Path(place) == Path(folder):
            folders[:] = [name for name in folders if name in names]
            files = [name for name in files if name in names]
        for name in [*folders, *files]:
            path = os.path.join(place, name)
            if os.path.islink(path) and not Path(os.path.realpath(path)).is_relative_to(inside):
                raise OSError(
                    f"Expected no link in {folder} that leads outside it, {path} leads to {os.path.realpath(path)}; "
                    "remove the link, or choose another folder"
                )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write to and then put it in the place of ``path``: readers see the old file or the new.

    Symbolic links stay: what they lead to is replaced. On an exception, and on a kill, ``path`` stays as it was; an
    exception also removes the temporary file.

    Raises:
        OSError: If the folder does not exist or can't be written, or ``path`` is something else than a regular file.
            Errors of the block are raised as they are, but name ``path``.
    """
    target = check_place(path)
    _remove_left(target)
    part, handle = _locked_part(target, path)
    try:
        with naming(path, instead_of=part):
            yield part
            with open(part, "r+b") as written:
                os.fsync(written.fileno())  # the new name must not reach the disk before the contents
            if target.exists():
                part.chmod(stat.S_IMODE(target.stat().st_mode))  # what was for its owner's eyes only stays so
            if fcntl is None:
                os.close(handle)  # Windows renames no open file
                handle = -1
            os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        if handle >= 0:
            os.close(handle)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to write to and then put it in the place of ``path``, with all its files or not at all.

    A folder can't be exchanged in one step: an earlier one is moved aside first. A kill between the two steps is mended
    by the next writer of the same name.

    Raises:
        OSError: If the place can't be written, or ``path`` is no folder.
    """
    target = Path(os.path.realpath(path))
    if os.path.lexists(target) and not target.is_dir():
        raise OSError(f"Expected a folder or a new name at {path}, found something else; choose another path")
    with naming(path):
        target.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(target)
    part, handle = _locked_part(target, path, folder=True)
    old = part.with_suffix(".old")
    aside = -1
    try:
        with naming(path, instead_of=part):
            yield part
            for written in part.rglob("*"):
                if written.is_file():
                    with open(written, "r+b") as file:
                        os.fsync(file.fileno())
            if target.exists():
                aside = _open_locked(target)
                os.replace(target, old)
            os.replace(part, target)
    except BaseException:
        if old.exists() and not target.exists():
            os.replace(old, target)
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        for one in (handle, aside):
            if one >= 0:
                os.close(one)


def short_name(name: str) -> str:
    """What stands for a name in names beside it: a long one is cut, and its hash keeps it apart."""
    data = os.fsencode(name)
    if len(data) <= _MOST_BYTES:
        return name
    return f"{data[: _MOST_BYTES - 17].decode(errors='ignore')}~{hashlib.sha256(data).hexdigest()[:16]}"


def sweep(folder: Path) -> None:
    """Remove what killed writers have left in a folder and below, but nothing that is being written."""
    for place, folders, files in os.walk(folder):
        for name in [*files, *folders]:
            found = _LEFT.fullmatch(name)
            if found is not None:
                cut = _CUT.fullmatch(found["name"])
                _settle(Path(place) / name, None if cut else Path(place) / found["name"])
        folders[:] = [name for name in folders if not _LEFT.fullmatch(name)]


def _remove_left(target: Path) -> None:
    """Remove what killed writers of one file or folder have left."""
    try:
        names = os.listdir(target.parent)
    except OSError:
        return  # whoever writes there says what is wrong
    stem = short_name(target.name)
    for name in names:
        found = _LEFT.fullmatch(name) if name.startswith(f".{stem}.") else None
        if found is not None and found["name"] == stem:
            _settle(target.with_name(name), target)


def _settle(left: Path, place: Path | None) -> None:
    """Remove a leftover unless its writer lives; one that was moved aside goes back where nothing took its place.

    Args:
        left: The leftover.
        place: Where it goes back; None where its name was cut and does not tell: then it stays as it is.
    """
    try:
        handle = _open_locked(left)
    except OSError:
        return  # gone meanwhile, or somebody else's
    if handle < 0:
        return
    try:
        if left.suffix == ".old" and (place is None or not place.exists()):
            if place is not None:
                os.replace(left, place)
        elif left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _open_locked(path: Path) -> int:
    """A handle that has the lock of a file or folder; -1 where another has it, or there are no locks."""
    if fcntl is None:
        return -1
    # some network file systems lock only what is open for writing; a folder can't be
    handle = os.open(path, (os.O_RDONLY if path.is_dir() else os.O_RDWR) | os.O_NOFOLLOW | os.O_NONBLOCK)
    if _lock(handle) is True:
        return handle
    os.close(handle)
    return -1


def _locked_part(target: Path, path: Path, *, folder: bool = False) -> tuple[Path, int]:
    """Make a temporary file or folder beside its target; return it with the handle that has its lock.

    Errors name ``path``.
    """
    while True:
        part = target.with_name(f".{short_name(target.name)}.{os.getpid()}.{uuid.uuid4().hex}.part")
        with naming(path, instead_of=part):
            if folder:
                part.mkdir()
                if fcntl is None:
                    return part, -1
                handle = os.open(part, os.O_RDONLY)
            else:
                handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        if _lock(handle) is not False and part.exists():
            return part, handle
        os.close(handle)  # taken for a leftover before it had its lock
