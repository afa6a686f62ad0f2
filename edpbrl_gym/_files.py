"""Atomic writes of files and folders, locked files, and errors that name their file.

A file or folder is written beside its destination as ``.NAME.PID.HEX.part``, locked by its writer. If the writer is
killed, the part remains without a lock: the next writer of the same name removes it, and so does ``sweep``. Paths that
can't be written, or must not be, raise an OSError that names them.
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
    "errors_naming",
    "hold",
    "is_at",
    "mark",
    "reading",
    "replacing",
    "replacing_folder",
    "short_name",
    "sweep",
]

_LEFTOVER = re.compile(r"\.(?P<name>.+)\.\d+\.[0-9a-f]{32}\.(?P<kind>part|old)")
_SHORTENED = re.compile(r".*~[0-9a-f]{16}")
_MAX_NAME_BYTES = 200  # within a temporary file's name, which is 50 bytes longer; most file systems allow 255
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF, errno.EINVAL}  # from network file systems
_NOT_FILES = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def hold(handle: int) -> bool:
    """Lock an open file for this handle until it is closed; return False if another handle has the lock.

    The lock ends with its process, however that ends. Where there are no locks (Windows, some network file systems),
    the result is True.
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
    """Whether a path still leads to the open file: it was neither removed nor replaced."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def errors_naming(path: str | os.PathLike[str], *, instead_of: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Name ``path`` in an OSError of the block that names no file, as those of Python's read and write do.

    It is also named in place of ``instead_of``, a temporary file, which would mean nothing to the reader.
    """
    name = os.fspath(path)
    hidden = (None,) if instead_of is None else (None, os.fspath(instead_of))
    try:
        yield
    except OSError as error:
        named_file = error.filename if error.filename is None else os.fsdecode(error.filename)
        if named_file not in hidden or (error.errno is None and name in str(error)):
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), name) from error


@contextmanager
def reading(
    what: str, path: str | os.PathLike[str], *, advice: str = "", error: type[ValueError] = ValueError
) -> Iterator[None]:
    """Turn whatever a damaged file makes the block raise into an error that says what was expected there.

    The formats of numpy, zip, safetensors, parquet and JSON raise errors of many kinds, among them MemoryError (a file
    may claim any size) and RecursionError. Errors of the system are raised as such, and name the file.

    Args:
        what: What the file should hold, such as "a saved design".
        path: The file.
        advice: What to do, the end of the message.
        error: Kind of the error.
    """
    try:
        yield
    except Exception as cause:
        if isinstance(cause, OSError) and (
            isinstance(cause, FileNotFoundError)
            or cause.errno not in (None, errno.EINVAL)  # a seek to where nothing is
        ):
            with errors_naming(path):
                raise
        reason = " ".join(str(cause).split())[:500]
        if not (isinstance(cause, ValueError) and reason):
            reason = f"{type(cause).__name__}: {reason}"
        ending = f"; {advice}" if advice else ""
        raise error(f"Expected {what} in {os.fspath(path)}, could not read it ({reason}){ending}") from cause


def check_place(path: str | os.PathLike[str]) -> Path:
    """Return the destination of a file to be written, with symbolic links resolved, so that these remain links."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    kind = next((name for test, name in _NOT_FILES if test(mode)), None)
    if kind is not None:
        raise OSError(f"Expected a regular file or a new name at {os.fspath(path)}, found {kind}; choose another path")
    return Path(os.path.realpath(path))


def check_links(folder: Path, *names: str) -> None:
    """Reject symbolic links in a folder that lead outside it, at any depth: writing to them would change other files.

    The folder may be a link itself, and need not exist. Of its files and folders those of these names are checked, or
    all without any.
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
    """Yield a temporary file to write to, then replace ``path`` by it: readers see the old file or the new one.

    Symbolic links remain; their target is replaced. On an exception or a kill, ``path`` stays as it was; an exception
    also removes the temporary file.

    Raises:
        OSError: If the folder does not exist or can't be written, or ``path`` is not a regular file. Errors of the
            block are raised as they are, but name ``path``.
    """
    target = check_place(path)
    _remove_leftovers(target)
    part, handle = _locked_part(target, path)
    try:
        with errors_naming(path, instead_of=part):
            yield part
            with open(part, "r+b") as file:
                os.fsync(file.fileno())  # the new name must not reach the disk before the contents
            if target.exists():
                part.chmod(stat.S_IMODE(target.stat().st_mode))  # a private file stays private
            os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        if handle >= 0:
            os.close(handle)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to write to, then replace ``path`` by it, with all its files or not at all.

    A folder can't be replaced in one step: the previous one is moved aside first. If a kill separates the two steps,
    the next writer of the same name restores it.
    """
    target = Path(os.path.realpath(path))
    if os.path.lexists(target) and not target.is_dir():
        raise OSError(f"Expected a folder or a new name at {path}, found something else; choose another path")
    with errors_naming(path):
        target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    part, part_lock = _locked_part(target, path, folder=True)
    previous = part.with_suffix(".old")
    previous_lock = -1
    try:
        with errors_naming(path, instead_of=part):
            yield part
            for path_in_part in part.rglob("*"):
                if path_in_part.is_file():
                    with open(path_in_part, "r+b") as file:
                        os.fsync(file.fileno())
            if target.exists():
                previous_lock = _open_locked(target)
                os.replace(target, previous)
            os.replace(part, target)
    except BaseException:
        if previous.exists() and not target.exists():
            os.replace(previous, target)
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        if target.exists():
            shutil.rmtree(previous, ignore_errors=True)
        for lock in (part_lock, previous_lock):
            if lock >= 0:
                os.close(lock)


@contextmanager
def mark(folder: Path) -> Iterator[str]:
    """Yield the name of a new empty file of a folder that is there as long as the block lasts.

    Another process that finds the name sees the same folder. A killed process leaves it to ``sweep``.
    """
    part, handle = _locked_part(folder / "mark", folder)
    try:
        yield part.name
    finally:
        part.unlink(missing_ok=True)
        if handle >= 0:
            os.close(handle)


def short_name(name: str) -> str:
    """A name, shortened if it is long, for use in other file names; a hash keeps shortened ones distinct."""
    data = os.fsencode(name)
    if len(data) <= _MAX_NAME_BYTES:
        return name
    return f"{data[: _MAX_NAME_BYTES - 17].decode(errors='ignore')}~{hashlib.sha256(data).hexdigest()[:16]}"


def sweep(folder: Path) -> None:
    """Remove leftovers of killed writers from a folder and its subfolders, but nothing that is being written."""
    for place, folders, files in os.walk(folder):
        for name in [*files, *folders]:
            match = _LEFTOVER.fullmatch(name)
            if match is not None:
                shortened = _SHORTENED.fullmatch(match["name"])
                _settle(Path(place) / name, None if shortened else Path(place) / match["name"])
        folders[:] = [name for name in folders if not _LEFTOVER.fullmatch(name)]


def _remove_leftovers(target: Path) -> None:
    """Remove leftovers of killed writers of one file or folder."""
    try:
        names = os.listdir(target.parent)
    except OSError:
        return  # the write that follows reports the error
    stem = short_name(target.name)
    for name in names:
        match = _LEFTOVER.fullmatch(name) if name.startswith(f".{stem}.") else None
        if match is not None and match["name"] == stem:
            _settle(target.with_name(name), target)


def _settle(leftover: Path, original: Path | None) -> None:
    """Remove a leftover unless its writer is alive; restore one that was moved aside if nothing has replaced it.

    Without its original path, whose name was shortened, one that was moved aside stays as it is.
    """
    try:
        handle = _open_locked(leftover)
    except OSError:
        return  # removed in the meantime, or owned by another user
    if handle < 0:
        return
    try:
        if leftover.suffix == ".old" and (original is None or not original.exists()):
            if original is not None:
                os.replace(leftover, original)
        elif leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _open_locked(path: Path) -> int:
    """A handle with the lock of a file or folder; -1 if another has it, or there are no locks."""
    if fcntl is None:
        return -1
    # some network file systems lock only files that are open for writing; a folder can't be
    handle = os.open(path, (os.O_RDONLY if path.is_dir() else os.O_RDWR) | os.O_NOFOLLOW | os.O_NONBLOCK)
    if _lock(handle) is True:
        return handle
    os.close(handle)
    return -1


def _locked_part(target: Path, path: Path, *, folder: bool = False) -> tuple[Path, int]:
    """Create a temporary file or folder beside its target; return it with the handle that has its lock.

    Errors name ``path``.
    """
    while True:
        part = target.with_name(f".{short_name(target.name)}.{os.getpid()}.{uuid.uuid4().hex}.part")
        with errors_naming(path, instead_of=part):
            if folder:
                part.mkdir()
                if fcntl is None:
                    return part, -1
                handle = os.open(part, os.O_RDONLY)
            else:
                handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                if fcntl is None:  # Windows renames and removes no open file
                    os.close(handle)
                    return part, -1
        if _lock(handle) is not False and part.exists():
            return part, handle
        os.close(handle)  # another process removed it as a leftover before it was locked
