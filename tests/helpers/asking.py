"""`edpbrl ask` with its page, in a process that can be killed, and a person in front of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.helpers.browser import Reader

ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = "import sys; from edpbrl_gym.cli import main; sys.exit(main(sys.argv[1:]))"
_PICTURES = "[...document.querySelectorAll('.card img')].every(one => one.complete)"
DRAWN = f"() => document.querySelector('form[data-question]') && {_PICTURES}"


class Asking:
    """``edpbrl ask ARGUMENTS --no-open``; a context manager that kills it.

    Attributes:
        address: Of the page, with its token.
        said: What it has printed so far.
    """

    def __init__(self, *arguments: object, environment: dict[str, str] | None = None, no_open: bool = True) -> None:
        self.said = ""
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", _PROGRAM, "ask", *(["--no-open"] if no_open else []), *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **(environment or {})},
        )  # fmt: skip
        assert self.process.stdout is not None
        while "Ctrl-C stops" not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", self.said)
        assert found, self.said
        self.address = found[0]
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def base(self) -> str:
        """The address without the token."""
        return self.address.partition("/?")[0]

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._end()

    def stop(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self._end()

    def _end(self) -> int:
        code = self.process.wait(60)
        self._reading.join(10)
        return code


class Guest(Reader):
    """The person, at the first question."""

    def __init__(self, browser: Any, asking: Asking, *, faults: bool = False, **options: Any) -> None:
        super().__init__(browser, asking.base, **options)
        self.faults = faults
        self.page.goto(asking.address, wait_until="domcontentloaded")  # not until all pictures are there

    def close(self) -> None:
        super().close()
        assert [one for one in self.complaints if not (self.faults and "Failed to load resource" in one)] == []

    def drawn(self) -> None:
        """Wait until all pictures of the question are there."""
        self.page.wait_for_function(DRAWN)

    def number(self) -> int:
        """Number of the question on the page."""
        found = re.search(r"\d+", self.page.inner_text("#progress"))
        assert found
        return int(found[0])

    def answer(self, key: str) -> None:
        """Press a key and wait for the next question."""
        self.drawn()
        self.next(lambda: self.page.keyboard.press(key))

    def finish(self) -> None:
        """Stop, and wait for what was learnt."""
        self.page.click("[form=finish]")
        self.page.wait_for_url("**/end")
        self.page.locator(".best, .actions a").first.wait_for()
