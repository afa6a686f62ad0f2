"""Everything that was paid for, on disk before it is used: an append-only file of JSON lines.

The first line names the format. Then, one line each:

sent     a question goes out: its key and the most tokens that it can cost. Tells, after a kill, what was under way.
         With "again" it replaces the line before: an attempt was lost, and the tokens are those of both.
answer   what came back, with key, verdict, order, tokens, latency, retries. On the disk before anybody sees it.
failed   a question got no answer after all retries; it will be asked again by the next run.
mode     the server takes no JSON schema, so its answers are read as text.

The texts and images of the questions are not in it, nor the style, nor a key of any server: a question is a sha256.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from edpbrl_gym._files import hold
from edpbrl_gym.oracles.judge.questions import Usage

__all__ = ["FORMAT", "Ledger"]

FORMAT = "edpbrl-gym judge ledger 1"

Line = dict[str, Any]

_HEADER: Line = {"kind": "ledger", "format": FORMAT}


class Ledger:
    """The open ledger of one or more judges; made where there is none.

    Attributes:
        path: The file.
        answers: The answer lines by key.
        failures: The last failed line of every key that has no answer.
        lost: What failed attempts of a key have cost, as usage, answered later or not.
        under_way: Tokens set aside for questions that went out and of which nothing more is known: the run was killed.
            They may have been billed, so they count as spent; they are asked again.

    Raises:
        ValueError: A file of another format, or a damaged line before the last.
        RuntimeError: Another process has it open.
        OSError: It can't be made or read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.answers: dict[str, Line] = {}
        self.failures: dict[str, Line] = {}
        self.lost: dict[str, Usage] = {}
        self.under_way: dict[str, list[int]] = {}
        self.text_only: set[tuple[str, str]] = set()
        self.questions = 0
        self.tokens = 0
        self._writing = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        try:
            self._lock()
            self._read()
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        if not hold(self._handle):
            raise RuntimeError(
                f"Expected the ledger {self.path} to be closed, it is open already (here or in another process); wait "
                "for that run or stop it, or give this one a ledger of its own"
            )

    def _read(self) -> None:
        data = self.path.read_bytes()
        position = number = 0
        while position < len(data):
            end = data.find(b"\n", position)
            stop = len(data) if end < 0 else end
            line = _parse(data[position:stop])
            if number == 0 and not _is_header(line, data):
                raise ValueError(
                    f"Expected a ledger of the format {FORMAT!r} in {self.path}, found something else; name another "
                    "file, or use the version that wrote it"
                )
            if line is None:
                if 0 <= end < len(data) - 1:
                    raise ValueError(
                        f"Expected whole lines in {self.path}, line {number + 1} is damaged and others follow it; "
                        "restore the file from a backup, or delete that line (its question is then asked again)"
                    )
                break  # cut off by a kill while it was written
            self._take(line)
            position, number = stop + 1, number + 1
        self._end = min(position, len(data))
        if position < len(data):
            os.ftruncate(self._handle, position)
        elif position > len(data):  # the last line is whole but for its end
            self._write(b"\n")
        if not number:
            self.append(_HEADER, durable=True)

    def _take(self, line: Line) -> None:
        """Keep a line in memory."""
        kind, key = line.get("kind"), line.get("key", "")
        if kind == "sent":
            sent = self.under_way.setdefault(key, [])
            sent[len(sent) - bool(line.get("again")) :] = [line["tokens"]]
        elif kind == "answer":
            self.answers[key] = line
            self.failures.pop(key, None)
        elif kind == "failed":
            self.failures[key] = line
            self.lost[key] = self.lost.get(key, Usage()) + Usage(**line["usage"])
        elif kind == "mode" and line["structured"] == "text":
            self.text_only.add((line["model"], line["address"]))
        if kind in ("answer", "failed"):
            if self.under_way.get(key):
                self.under_way[key].pop()
            usage = line["usage"]
            self.tokens += usage["input_tokens"] + usage["output_tokens"]
            self.questions += bool(kind == "answer" or line["lost"])

    @property
    def spent(self) -> tuple[int, int]:
        """Questions and tokens spent so far, with those that were under way when a run was killed."""
        waiting = [tokens for sent in self.under_way.values() for tokens in sent]
        return self.questions + len(waiting), self.tokens + sum(waiting)

    def append(self, line: Line, *, durable: bool) -> None:
        """Add a line; when this returns it is on the disk (``durable``) or at least out of this process.

        Raises:
            OSError: The disk is full or gone; the file is as before.
            ValueError: The ledger is closed.
        """
        data = _encode(line)
        with self._writing:
            self._write(data)
            self._take(line)
            handle = os.dup(self._handle) if durable else -1
        if durable:  # outside the lock: the disk takes several at once
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _write(self, data: bytes) -> None:
        if self._handle < 0:
            raise ValueError(f"Expected an open ledger, {self.path} has been closed; make a new Judge")
        position, rest = self._end, memoryview(data)
        try:
            os.lseek(self._handle, position, os.SEEK_SET)
            while rest:
                written = os.write(self._handle, rest)
                position, rest = position + written, rest[written:]
        except BaseException:
            os.ftruncate(self._handle, self._end)
            raise
        self._end = position

    def close(self) -> None:
        """Release the file; another process may open it then."""
        with self._writing:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1


def _parse(data: bytes) -> Line | None:
    try:
        line = json.loads(data)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _encode(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _is_header(line: Line | None, data: bytes) -> bool:
    """Whether a first line is ours; also one that a kill has cut off."""
    if line is None:
        return _encode(_HEADER).startswith(data)
    return line.get("kind") == "ledger" and line.get("format") == FORMAT
