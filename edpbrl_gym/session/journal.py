"""The files of a session: an append-only journal, and a snapshot of the planner.

FOLDER/session.json     the settings of the session, written once
FOLDER/journal.jsonl    every question, answer and undo, one line each, in order
FOLDER/planner.npz      the planner's state after a number of lines (optional; avoids replaying them), and its SHA-256

The journal alone defines the session: a damaged snapshot is ignored. For its lines see ``_log``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._files import reading, replacing
from edpbrl_gym._log import AppendLog, Remedies, encode
from edpbrl_gym.session.transcript import Event

if TYPE_CHECKING:
    from edpbrl_gym.session.session import Session

__all__ = ["FORMAT", "Journal", "check_settings", "read_settings", "settings_of"]

FORMAT = "edpbrl-gym session 1"
_SETTINGS, _JOURNAL, _PLANNER = "session.json", "journal.jsonl", "planner.npz"
_DIGEST = hashlib.sha256().digest_size  # bytes, behind the archive

_REMEDIES = Remedies(
    held="close() it there first",
    damaged="restore the file from a backup",
    gone="if it was moved, move it back and tell again; otherwise keep the answers by comparisons.to_parquet(...)",
    closed="use Session.resume",
)


def _is_plain(state: Mapping[str, Any]) -> bool:
    """Whether a planner's state consists of arrays and JSON values, so that it can be saved."""
    try:
        json.dumps({key: value for key, value in state.items() if not isinstance(value, np.ndarray)}, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return all(value.dtype != object for value in state.values() if isinstance(value, np.ndarray))


def _sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk, if the system supports that."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of a session.

    Raises:
        FileNotFoundError: There is no session.
        ValueError: The file is not one of a session, or of another version.
    """
    path = folder / _SETTINGS
    if not path.is_file() or not (folder / _JOURNAL).is_file():
        raise FileNotFoundError(
            f"Expected the folder of a session with {_SETTINGS} and {_JOURNAL}, found none at {folder}; check the "
            "path, or begin a session and save() it there"
        )
    with reading("the settings of a session", path):
        settings = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        file_format = settings.get("format") if isinstance(settings, dict) else None
        raise ValueError(
            f"Expected the format {FORMAT!r} in {path}, got {file_format!r}; use the version that wrote it"
        )
    for name, kind in (("num_options", int), ("feedback", str), ("seed", int), ("who", str)):
        if type(settings.get(name)) is not kind:
            raise ValueError(f"Expected {name} of the session in {path}, got {settings.get(name)!r}; restore the file")
    return settings


class Journal(AppendLog):
    """The open journal of one session, an event a line; use ``create`` or ``open``.

    Attributes:
        folder: The session's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(folder / _JOURNAL, name=f"The session {folder}", remedies=_REMEDIES)

    @classmethod
    def create(cls, folder: Path, settings: Mapping[str, Any], events: list[Event]) -> Journal:
        """Write a new session folder atomically, and open it.

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
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}.{uuid.uuid4().hex}.part")
        temporary.mkdir()
        try:
            contents = {
                _SETTINGS: (json.dumps({"format": FORMAT, **settings}, indent=1) + "\n").encode("utf-8"),
                _JOURNAL: b"".join(map(encode, events)),
            }
            for name, data in contents.items():
                with open(temporary / name, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
            _sync_folder(temporary)
            if folder.exists():
                folder.rmdir()  # empty, see above; not every system can rename onto a folder
            os.rename(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        _sync_folder(folder.parent)
        return cls.open(folder)[0]

    @classmethod
    def open(cls, folder: Path) -> tuple[Journal, list[Event]]:
        """Open the journal of a session and read its events; a truncated last line is removed.

        Raises:
            FileNotFoundError: There is no session.
            ValueError: A line is damaged.
            RuntimeError: Another process has the session open.
        """
        journal = cls(folder)
        try:
            return journal, journal.read()
        except BaseException:
            journal.close()
            raise

    def write_planner(self, state: dict[str, Any] | None) -> None:
        """Replace the planner's snapshot by its state after all events so far, if there is one that can be saved.

        Raises:
            OSError: It can't be written; the previous snapshot stays.
        """
        if state is None or not _is_plain(state):
            return
        self.sync()  # a snapshot must not contain more events than the journal
        arrays: dict[str, Any] = {
            f"array_{key}": value for key, value in state.items() if isinstance(value, np.ndarray)
        }
        plain = {key: value for key, value in state.items() if not isinstance(value, np.ndarray)}
        header = json.dumps({"events": self.lines, "plain": plain})
        archive = io.BytesIO()
        np.savez(archive, header=np.frombuffer(header.encode("utf-8"), dtype=np.uint8), **arrays)
        with replacing(self.folder / _PLANNER) as temporary:
            temporary.write_bytes(archive.getvalue() + hashlib.sha256(archive.getvalue()).digest())

    def read_planner(self) -> tuple[int, dict[str, Any]] | None:
        """Number of events and the planner's state after them; None if there is no snapshot, or a damaged one.

        Raises:
            ValueError: The snapshot contains more events than the journal.
        """
        path = self.folder / _PLANNER
        if not path.is_file():
            return None
        try:
            raw = path.read_bytes()
            archive, digest = raw[:-_DIGEST], raw[-_DIGEST:]
            if hashlib.sha256(archive).digest() != digest:  # the archive's own checksums don't cover its directory
                raise ValueError("its checksum is wrong")
            with np.load(io.BytesIO(archive), allow_pickle=False) as data:
                header = json.loads(data["header"].tobytes())
                arrays = {key.removeprefix("array_"): data[key] for key in data.files if key.startswith("array_")}
            events, plain = int(header["events"]), dict(header["plain"])
        except Exception as error:  # a damaged archive can raise anything
            warnings.warn(
                f"The planner's state in {path} could not be read ({type(error).__name__}: {error}); the journal is "
                "replayed",
                stacklevel=2,
            )
            return None
        if events > self.lines:
            raise ValueError(
                f"Expected at least {events} lines in {self.folder / _JOURNAL} (the planner has seen them), "
                f"got {self.lines}: answers are missing; restore the file from a backup"
            )
        return events, {**plain, **arrays}


def settings_of(session: Session) -> dict[str, Any]:
    """Settings that must be the same when a session is resumed."""
    encoder = session.maker.encoder
    priors: Any = (session.outlook.given_prior, ""), (getattr(session.planner, "prior", None), "_of_the_planner")
    return {
        "num_options": session.num_options,
        "feedback": session.maker.feedback,
        "seed": session.outlook.seed,
        "who": session.who,
        "vocabulary_fingerprint": session.vocabulary.fingerprint,
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        "model": repr(session.model),
        "planner": session.planner.name,
        **{one.label + whose: one.fingerprint for one, whose in priors if getattr(one, "fingerprint", "")},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def check_settings(session: Session, saved: Mapping[str, Any], folder: Path) -> None:
    """Raise a ValueError where a session has other settings than the saved one that it is to continue."""
    given = settings_of(session)
    for key in dict.fromkeys((*given, *saved)):
        if key not in ("format", "created") and saved.get(key) != given.get(key):
            raise ValueError(
                f"Expected the {key.replace('_', ' ')} with which the session in {folder} began "
                f"({saved.get(key)!r}), got {given.get(key)!r}"
            )
