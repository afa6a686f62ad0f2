"""Append-only logs: a file of JSON objects, one per line, with checksums, locked by one process.

A line is the CRC-32 of a JSON object, a space and the object. A kill may truncate the last line: it was never
acknowledged and is dropped. Any other line that is not as it was written is damage and raises an error. Zero bytes at
the end are room reserved for later lines.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from edpbrl_gym._files import check_place, errors_naming, hold

__all__ = ["AppendLog", "Line", "Remedies", "decode", "encode"]

Line = dict[str, Any]

_BLOCK = 1 << 16  # room is reserved in blocks of this many bytes


class Remedies(NamedTuple):
    """Advice in the errors of a log.

    Attributes:
        held: If another process, or another part of this one, has the log open.
        damaged: If a line is not as it was written.
        gone: If the file was deleted, moved, replaced or truncated while it was open.
        closed: If the log was closed before.
    """

    held: str
    damaged: str
    gone: str
    closed: str


def encode(line: Line) -> bytes:
    """A line as bytes, with its checksum and line end."""
    body = json.dumps(line, separators=(",", ":"), allow_nan=False).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(body), body)


def decode(data: bytes) -> Line | None:
    """The object of a line without its line end; None if the line is damaged."""
    code, _, body = data.partition(b" ")
    if code != b"%08x" % zlib.crc32(body):
        return None
    try:
        line = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


class AppendLog:
    """An open log, locked until it is closed or the process ends.

    Once it is closed every call raises a ValueError, and where its file was deleted, moved, replaced or cut short
    meanwhile a FileNotFoundError.

    Args:
        path: The file.
        name: Name of the log, the first words of its errors, such as "The session /a/b".
        remedies: Advice in its errors.
        create: Create the file if it does not exist.

    Attributes:
        lines: Number of lines, valid after ``read``.

    Raises:
        RuntimeError: Another process, or this one, has the log open.
        OSError: The file can't be opened, or is not a regular file.
    """

    def __init__(self, path: Path, *, name: str, remedies: Remedies, create: bool = False) -> None:
        self.path = path
        self.lines = 0
        self._name, self._remedies = name, remedies
        self._writing = threading.Lock()
        self._end = self._reserved = 0
        flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_BINARY", 0)
        self._handle = os.open(check_place(path), flags, 0o644)
        if not hold(self._handle):
            self.close()
            raise RuntimeError(f"{name} is already open (here or in another process); {remedies.held}")

    def read(self, header: Line | None = None) -> list[Line]:
        """Return all lines in order; a truncated last line is removed from the file.

        Args:
            header: Expected first line. It is written to a new log, and not among the lines returned.

        Raises:
            ValueError: A line is damaged, or the header is another one; the file stays as it is.
            OSError: The file can't be read, or the header can't be written.
        """
        raw = self.path.read_bytes()
        if header is not None:
            self._check_header(raw, header)
        data = raw.rstrip(b"\0")
        lines: list[Line] = []
        position = 0
        while position < len(data):
            line_end = data.find(b"\n", position)
            line = decode(data[position : len(data) if line_end < 0 else line_end])
            if line is None:
                if line_end >= 0 or decode(data[position:-1]) is not None:
                    # written completely (only its newline may be corrupt): damage, not a torn write
                    problem = "corrupt line ending" if line_end < 0 else "wrong checksum"
                    if 0 <= line_end < len(data) - 1:
                        problem += ", and more lines follow"
                    raise ValueError(self._damage(len(lines) + 1, problem))
                break
            lines.append(line)
            position = len(data) if line_end < 0 else line_end + 1
        self._cut(position)
        if position and data[position - 1 : position] != b"\n":  # only the line end is missing
            self._write(b"\n")
        self.lines = len(lines)
        if header is not None and not lines:
            self.append(header, durable=True)
        return lines if header is None else lines[1:]

    def _check_header(self, raw: bytes, header: Line) -> None:
        expected = encode(header)
        if raw.startswith(expected) or expected.startswith(raw):
            return
        form = header.get("format", "")
        opening = raw.split(b"\n", 1)[0]
        if form.encode("ascii") in opening and decode(opening) is None:
            raise ValueError(self._damage(1, "wrong checksum"))
        raise ValueError(
            f"Expected a {header.get('kind')} of the format {form!r} in {self.path}, found something else; name "
            "another file, or use the version that wrote it"
        )

    def _damage(self, number: int, problem: str) -> str:
        return f"Line {number} of {self.path} is damaged: {problem}; {self._remedies.damaged}"

    def append(self, line: Line, *, durable: bool, room: int = 0) -> None:
        """Add a line; when this returns it is on the disk (``durable``) or at least handed to the operating system.

        Args:
            line: JSON object.
            durable: Wait for the disk.
            room: Number of bytes to reserve for lines that must not fail later, as far as the file system can.

        Raises:
            OSError: The disk is full; the log is unchanged.
        """
        data = encode(line)
        with self._writing:
            self.check()
            start = self._end
            if room:
                self._reserve(start + len(data) + room)
            self._write(data)
            self.lines += 1
            handle = os.dup(self._handle) if durable else -1
        if durable:  # outside the lock, so that several syncs can run at once
            try:
                with errors_naming(self.path):
                    os.fsync(handle)
            except BaseException:
                with self._writing:
                    if self._end == start + len(data):  # otherwise other lines follow, and this one stays
                        self._cut(start)
                        self.lines -= 1
                raise
            finally:
                os.close(handle)

    def check(self) -> None:
        """Check that the log is open and its file still in place."""
        if self.closed:
            raise ValueError(f"{self._name} has been closed; {self._remedies.closed}")
        try:
            status = os.fstat(self._handle)
            intact = os.path.samestat(status, os.stat(self.path)) and status.st_size >= self._end
        except OSError:
            intact = False
        if not intact:
            raise FileNotFoundError(
                f"Expected {self.path} where it was opened, with all its lines; it has been deleted, moved, replaced "
                f"or cut short since; {self._remedies.gone}"
            )

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._handle < 0

    def sync(self) -> None:
        """Flush all lines to the disk."""
        self.check()
        os.fsync(self._handle)

    def _reserve(self, end: int) -> None:
        """Reserve bytes up to a position by writing zeros."""
        if end <= self._reserved:
            return
        previous_end = max(self._reserved, self._end)
        try:
            self._put(previous_end, bytes(-(-(end - previous_end) // _BLOCK) * _BLOCK))
        except BaseException:
            os.ftruncate(self._handle, previous_end)
            raise
        self._reserved = os.lseek(self._handle, 0, os.SEEK_CUR)

    def _write(self, data: bytes) -> None:
        try:
            self._put(self._end, data)
        except BaseException:
            self._cut(self._end)
            raise
        self._end += len(data)

    def _put(self, position: int, data: bytes) -> None:
        remaining = memoryview(data)
        with errors_naming(self.path):
            os.lseek(self._handle, position, os.SEEK_SET)
            while remaining:
                remaining = remaining[os.write(self._handle, remaining) :]

    def _cut(self, end: int) -> None:
        self._end = self._reserved = end
        if os.fstat(self._handle).st_size != end:
            os.ftruncate(self._handle, end)

    def close(self) -> None:
        """Cut off the reserved room and release the file; another process can then open it."""
        with self._writing:
            if self._handle >= 0:
                try:
                    # skip if someone else has truncated the file already
                    if self._reserved > self._end and os.fstat(self._handle).st_size > self._end:
                        os.ftruncate(self._handle, self._end)
                finally:
                    os.close(self._handle)
                    self._handle = -1
