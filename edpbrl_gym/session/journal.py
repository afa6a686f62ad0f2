"""What a session leaves on disk: a journal that only grows, and snapshots of the planner that replace each other.

FOLDER/session.json     the settings with which the session began, written once
FOLDER/journal.jsonl    every question, answer and undo, one line each, in order
FOLDER/planner.npz      the planner's state after so many lines (optional; spares replaying them)

A line is the CRC-32 of a JSON object, a space and the object. A line that a kill has cut off is the last one and was
never acknowledged, so it is dropped; a damaged line elsewhere is an error. The journal alone is the truth.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._files import hold, replacing

__all__ = ["FORMAT", "Journal", "is_plain", "read_settings"]

FORMAT = "edpbrl-gym session 1"
_SETTINGS, _JOURNAL, _PLANNER = "session.json", "journal.jsonl", "planner.npz"

Event = dict[str, Any]


def _line(event: Event) -> bytes:
    body = json.dumps(event, separators=(",", ":"), allow_nan=False).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _event(line: bytes) -> Event | None:
    """The event of a line without its end, None for a damaged one."""
    code, _, body = line.partition(b" ")
    try:
        if int(code, 16) != zlib.crc32(body):
            return None
        event = json.loads(body)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def is_plain(state: Mapping[str, Any]) -> bool:
    """Whether a planner's state is made of arrays and of values that JSON can hold, so that it can be saved."""
    try:
        json.dumps({key: value for key, value in state.items() if not isinstance(value, np.ndarray)}, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return all(value.dtype != object for value in state.values() if isinstance(value, np.ndarray))


def _sync_folder(folder: Path) -> None:
    """Bring a folder's list of names to the disk, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings with which a session began.

    Raises:
        FileNotFoundError: No session there.
        ValueError: A file that is none of ours, or of another version.
    """
    path = folder / _SETTINGS
    if not path.is_file() or not (folder / _JOURNAL).is_file():
        raise FileNotFoundError(
            f"Expected the folder of a session with {_SETTINGS} and {_JOURNAL}, found none at {folder}; check the "
            "path, or begin a session and save() it there"
        )
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"Expected the settings of a session in {path}, could not read them ({error})") from None
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        found = settings.get("format") if isinstance(settings, dict) else None
        raise ValueError(f"Expected the format {FORMAT!r} in {path}, got {found!r}; use the version that wrote it")
    return settings


class Journal:
    """The open journal of one session; use ``create`` or ``open``.

    Attributes:
        folder: The session's folder.
        events: Number of whole lines in the journal.
    """

    def __init__(self, folder: Path, events: int) -> None:
        self.folder = folder
        self.events = events
        self._handle = os.open(folder / _JOURNAL, os.O_RDWR | getattr(os, "O_BINARY", 0))
        try:
            self._lock()
        except BaseException:
            os.close(self._handle)
            raise
        self._end = os.lseek(self._handle, 0, os.SEEK_END)

    @classmethod
    def create(cls, folder: Path, settings: Mapping[str, Any], events: list[Event]) -> Journal:
        """Write a new session folder, whole or not at all, and open it.

        Raises:
            FileExistsError: The folder exists and isn't empty.
            OSError: It can't be written.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(
                f"Expected a new or empty folder for the session, {folder} holds something; choose another, or "
                "continue the session there with Session.resume"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = folder.with_name(f".{folder.name}.{os.getpid()}.{uuid.uuid4().hex}.part")
        part.mkdir()
        try:
            contents = {
                _SETTINGS: (json.dumps({"format": FORMAT, **settings}, indent=1) + "\n").encode("utf-8"),
                _JOURNAL: b"".join(map(_line, events)),
            }
            for name, data in contents.items():
                with open(part / name, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            _sync_folder(part)
            if folder.exists():
                folder.rmdir()  # empty, see above; not every system renames over a folder
            os.rename(part, folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        _sync_folder(folder.parent)
        return cls(folder, len(events))

    @classmethod
    def open(cls, folder: Path) -> tuple[Journal, list[Event]]:
        """Open the journal of a session and read its events; a last line that was cut off is removed.

        Raises:
            FileNotFoundError: No session there.
            ValueError: A damaged line before the last.
            RuntimeError: Another process has the session open.
        """
        journal = cls(folder, 0)
        try:
            events = journal._read()
        except BaseException:
            journal.close()
            raise
        journal.events = len(events)
        return journal, events

    def _lock(self) -> None:
        if not hold(self._handle):
            raise RuntimeError(
                f"Expected the session {self.folder} to be closed, it is open already (here or in another process); "
                "close() it there first"
            )

    def _read(self) -> list[Event]:
        path = self.folder / _JOURNAL
        data = path.read_bytes()
        events: list[Event] = []
        position = 0
        while position < len(data):
            end = data.find(b"\n", position)
            event = None if end < 0 else _event(data[position:end])
            if event is None:
                if 0 <= end < len(data) - 1:
                    raise ValueError(
                        f"Expected whole lines in {path}, line {len(events) + 1} is damaged and others follow it; "
                        "restore the file from a backup"
                    )
                break  # never acknowledged: the kill came while it was written
            events.append(event)
            position = end + 1
        if position < len(data):
            os.ftruncate(self._handle, position)
        self._end = position
        return events

    def append(self, event: Event, *, durable: bool) -> None:
        """Add a line; when this returns it is on the disk (``durable``) or at least out of this process.

        Raises:
            OSError: The disk is full or gone; the journal is as before.
            ValueError: The journal is closed.
        """
        if self._handle < 0:
            raise ValueError(f"Expected an open session, {self.folder} has been closed; use Session.resume")
        data = memoryview(_line(event))
        position = self._end
        try:
            os.lseek(self._handle, position, os.SEEK_SET)
            while data:
                written = os.write(self._handle, data)
                position, data = position + written, data[written:]
            if durable:
                os.fsync(self._handle)
        except BaseException:
            os.ftruncate(self._handle, self._end)
            raise
        self._end = position
        self.events += 1

    def write_planner(self, state: dict[str, Any]) -> None:
        """Replace the planner's snapshot by its state after all events so far.

        Raises:
            OSError: It can't be written; the old snapshot stays.
            TypeError: A state that is not plain (``is_plain``).
        """
        os.fsync(self._handle)  # a snapshot must never know more than the journal
        arrays: dict[str, Any] = {
            f"array_{key}": value for key, value in state.items() if isinstance(value, np.ndarray)
        }
        plain = {key: value for key, value in state.items() if not isinstance(value, np.ndarray)}
        header = json.dumps({"events": self.events, "plain": plain})
        with replacing(self.folder / _PLANNER) as part, open(part, "wb") as stream:
            np.savez(stream, header=np.frombuffer(header.encode("utf-8"), dtype=np.uint8), **arrays)

    def read_planner(self) -> tuple[int, dict[str, Any]] | None:
        """Number of events and the planner's state after them; None without a snapshot.

        Raises:
            ValueError: A damaged snapshot, or one that knows more events than the journal.
        """
        path = self.folder / _PLANNER
        if not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as data:
                header = json.loads(data["header"].tobytes())
                arrays = {key.removeprefix("array_"): data[key] for key in data.files if key.startswith("array_")}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"Expected the planner's state in {path}, could not read it ({error}); delete this file: the journal "
                "holds everything"
            ) from None
        if header["events"] > self.events:
            raise ValueError(
                f"Expected at least {header['events']} lines in {self.folder / _JOURNAL} (the planner has seen them), "
                f"got {self.events}: answers are missing; restore the file from a backup"
            )
        return int(header["events"]), {**header["plain"], **arrays}

    def close(self) -> None:
        """Release the files; nothing more can be appended."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
