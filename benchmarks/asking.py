"""What a person sees in `edpbrl ask --terminal`, and how long they wait: a simulated user at a pseudo-terminal.

python -m benchmarks.asking                      # the transcript of docs/ask.md and its times
python -m benchmarks.asking --width 60           # another terminal
"""

from __future__ import annotations

import base64
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.common import PROGRAM
from edpbrl_gym.features import load_encoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.session import Question, answer_of
from edpbrl_gym.session.journal import Journal

_ERASED = re.compile(r"[^\n]*\r\x1b\[2K")
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Args:
    """Arguments of the run."""

    text: str = "a cosy winter cabin"
    """what the simulated user likes; they always choose the best option"""
    answers: int = 16
    """questions answered before the user stops"""
    num_options: int = 9
    """options of a question"""
    width: int = 80
    """columns of the terminal"""
    reading: float = 8.0
    """seconds for which the user reads a question"""


class Typist:
    """Starts the command in a pseudo-terminal, reads it and presses keys."""

    def __init__(self, arguments: list[str], width: int, cache: Path) -> None:
        self.handle, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        self.shown, self.start = "", time.monotonic()
        command = [sys.executable, "-c", PROGRAM, *arguments]
        environment = {**os.environ, "TERM": "xterm-256color", "EDPBRL_CACHE": str(cache)}
        self.process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
        os.close(follower)

    def read(self, seconds: float, until: str = "") -> float:
        """Read until a text is there, or for some seconds; return how long it took."""
        start = time.monotonic()
        while (left := start + seconds - time.monotonic()) > 0 and not (until and until in self.shown):
            if select.select([self.handle], [], [], left)[0]:
                try:
                    data = os.read(self.handle, 1 << 16)
                except OSError:  # the command has ended
                    break
                self.shown += data.decode()
        return time.monotonic() - start

    @property
    def screen(self) -> str:
        """What a person sees."""
        lines = _STYLES.sub("", _ERASED.sub("", self.shown.replace("\r\n", "\n"))).splitlines()
        return "\n".join(line.rstrip() for line in lines)


def pending(out: Path, number: int, copy: Path) -> Question:
    """The question in the journal of a running command that waits for an answer."""
    copy.write_bytes((out / "session/journal.jsonl").read_bytes())
    journal, events = Journal.open(copy.parent)
    journal.close()
    rows = np.frombuffer(base64.b64decode(events[-1]["features"]), dtype="<f4")
    tokens = np.array(events[-1]["tokens"])
    texts = tuple(map(str, range(len(tokens))))
    return Question(number, number, 0, tokens, texts, rows.reshape(len(tokens), -1))


def main(args: Args) -> None:
    """Play the session with a cache of its own, then print the transcript and the times."""
    user = SyntheticUser.from_text(args.text, load_encoder("minilm"))
    waits = []
    with tempfile.TemporaryDirectory() as folder:
        out, copy = Path(folder) / "ask", Path(folder) / "copy/journal.jsonl"
        copy.parent.mkdir()
        given, cache = ["--terminal", "--num-options", str(args.num_options)], Path(folder) / "cache"
        embedding = Typist(["ask", "--out", f"{out}-before", *given], args.width, cache)  # fills the new cache
        embedding.read(600.0, "> ")
        unprepared = time.monotonic() - embedding.start
        os.write(embedding.handle, b"\x03")
        embedding.read(60.0)
        typist = Typist(["ask", "--out", str(out), *given], args.width, cache)
        typist.read(300.0, "> ")
        first = time.monotonic() - typist.start
        for number in range(args.answers):
            typist.read(args.reading)
            response = answer_of(user, pending(out, number, copy))
            os.write(typist.handle, str(response.order[0] + 1).encode())
            waits.append(typist.read(60.0, f"Question {number + 2}"))
        typist.read(args.reading)
        os.write(typist.handle, b"q")
        typist.read(120.0)
        print(typist.screen.replace(str(out), "runs/ask"))
    print(f"\nfirst question after {first:.1f} s, with a new cache after {unprepared:.0f} s")
    print(f"from key to next question: median {np.median(waits):.2f} s, longest {max(waits):.2f} s")
    print(f"load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
