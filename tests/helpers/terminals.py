"""A command of the command line in a pseudo-terminal, and what a person sees there."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from edpbrl_gym._log import decode

_STYLES = re.compile(r"\x1b\[[0-9;?]*(?:[A-Za-z]|$)|\x1b$")  # an incomplete one at the end too
PROGRAM = "import sys; from edpbrl_gym.cli import main; sys.exit(main(sys.argv[1:]))"


class Terminal:
    """``edpbrl ARGUMENTS`` in a pseudo-terminal of its own; a context manager that ends it.

    Attributes:
        shown: All it has printed, with escape sequences.
    """

    def __init__(self, *arguments: object, width: int = 100, height: int = 40, term: str = "xterm-256color") -> None:
        self._handle, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.before = termios.tcgetattr(follower)
        self.follower = follower
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, arguments)],
            stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**environment, "TERM": term, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self.shown = ""
        self._read = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for handle in (self._handle, self.follower):
            os.close(handle)

    def press(self, keys: str) -> None:
        os.write(self._handle, keys.encode())

    def until(self, text: str, seconds: float = 120.0) -> str:
        """Wait for a text after the last one waited for; return the plain text up to its end."""
        end = time.monotonic() + seconds
        while (found := self.plain.find(text, self._read)) < 0:
            assert time.monotonic() < end, f"no {text!r} in {self.plain[-3000:]}"
            if not self._more(0.1):
                assert self.process.poll() is None, f"ended without {text!r}: {self.plain[-3000:]}"
        part = self.plain[self._read : found + len(text)]
        self._read = found + len(text)
        return part

    def question(self, number: int) -> str:
        """Wait until a question can be answered: it is shown, and nothing has been typed for a moment."""
        text = self.until(f"Question {number}:") + self.until("> ")
        self._more(0.6)
        return text

    def end(self, seconds: float = 120.0) -> int:
        """Wait until the command has ended; return its exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, self.plain[-3000:]
            self._more(0.1)
        while self._more(0.0):
            pass
        return self.process.returncode

    @property
    def plain(self) -> str:
        """All it has printed, without escape sequences."""
        return _STYLES.sub("", self.shown)

    def _more(self, seconds: float) -> bool:
        """Read what comes within some seconds."""
        came = False
        end = time.monotonic() + seconds
        while select.select([self._handle], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                data = os.read(self._handle, 1 << 16)
            except OSError:  # the other end has closed
                return came
            self.shown += data.decode("utf-8", "replace")
            came = True
            if seconds < 0.3:
                break
        return came


def events(out: Path) -> list[dict[str, object]]:
    """The events in the journal of `edpbrl ask --out OUT`."""
    lines = (out / "session/journal.jsonl").read_bytes().rstrip(b"\0").splitlines()
    found = [decode(line) for line in lines]
    assert all(found), "a damaged line"
    return [line for line in found if line is not None]


def told(out: Path) -> list[tuple[str, list[int]]]:
    """The answers in the journal that were not taken back: kind and options."""
    answers: list[tuple[str, list[int]]] = []
    for event in events(out):
        if event["type"] == "tell":
            response = json.loads(json.dumps(event["response"]))
            answers.append((response["kind"], response["order"]))
        elif event["type"] == "undo":
            answers.pop()
    return answers
