"""How `edpbrl ask` reads answers: single keys of a terminal, or typed lines of a terminal, a pipe or a file."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from edpbrl_gym.likelihood import Response
from edpbrl_gym.session.typed import AnswerForm, Taps, Wish

if TYPE_CHECKING:
    from edpbrl_gym.cli.ask_drawing import Paper

__all__ = ["BadLineError", "Keys", "Lines", "Reader", "make_reader"]

_QUIET = 0.3  # seconds without a key after which the next one is meant for the question on the screen
_LONGEST = 1 << 12  # bytes of a line
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.S)  # arrows, function keys, Alt with a key
_NAMED = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x04": "q"}
_DONE = object()


class Keys:
    """Single keys of the terminal at stdin; a context manager, after which the terminal is as before.

    Keys that were pressed before a question was on the screen never answer it: they are dropped until none has come for
    0.3 seconds.
    """

    live = asks = True  # whether a person sees what is typed key by key, and can be asked something else

    def __init__(self) -> None:
        self._handle = sys.stdin.fileno()
        self._typed: deque[str] = deque()

    @staticmethod
    def possible(form: AnswerForm) -> bool:
        """Whether stdin and stdout are a terminal that has single keys, and the options' numbers are such keys."""
        if form.format.keys(form.num_options).last > 9 or not _is_terminal(sys.stdin) or not _is_terminal(sys.stdout):
            return False
        if os.environ.get("TERM", "dumb") == "dumb":
            return False
        try:
            import termios  # noqa: F401  (Windows has none)
        except ImportError:
            return False
        return True

    def __enter__(self) -> Keys:
        import termios

        self._before = termios.tcgetattr(self._handle)
        self._handlers = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, _terminated),
            signal.SIGCONT: signal.signal(signal.SIGCONT, lambda *_: self._single_keys()),
        }
        self._single_keys()
        return self

    def _single_keys(self) -> None:
        import termios
        import tty

        tty.setcbreak(self._handle, termios.TCSANOW)

    def __exit__(self, *error: object) -> None:
        import termios

        try:
            termios.tcsetattr(self._handle, termios.TCSAFLUSH, self._before)
        except termios.error:
            pass  # the terminal is gone
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def answer(self, form: AnswerForm, screen: Paper, work: Iterator[object]) -> Response | Wish:
        """Wait for an answer; meanwhile do the work, piece by piece, as long as nothing is typed."""
        taps = Taps(form)

        def show() -> None:
            screen.typing(taps)

        show()
        self._settle()
        while True:
            done = taps.press(self._key(work, show))
            show()
            if done is not None:
                return done

    def confirm(self) -> bool:
        """Wait for Enter (True) or Q (False)."""
        self._settle()
        while True:
            key = self._key(iter(()), lambda: None).lower()
            if key in ("enter", "q"):
                return key == "enter"

    def _settle(self) -> None:
        """Drop what was typed, until nothing has come for a moment."""
        self._typed.clear()
        while _ready(self._handle, _QUIET):
            if not self._read():
                return

    def _key(self, work: Iterator[object], show: Callable[[], None]) -> str:
        while not self._typed:
            while not _ready(self._handle, 0):
                if next(work, _DONE) is _DONE:
                    _ready(self._handle, None)
                else:
                    show()
            text = self._read()
            if not text:
                return "q"  # the terminal has closed
            self._typed.extend(_ESCAPES.sub("", text))
        key = self._typed.popleft()
        return _NAMED.get(key, key)

    def _read(self) -> str:
        try:
            return os.read(self._handle, 1024).decode("utf-8", "replace")
        except OSError:
            return ""


class BadLineError(ValueError):
    """A line of a pipe or a file is no answer."""


class Lines:
    """Typed lines of stdin. In a terminal a line that is no answer is asked again; otherwise it is an error."""

    live = False

    def __init__(self) -> None:
        self.asks = _is_terminal(sys.stdin)
        self._stream: Any = getattr(sys.stdin, "buffer", sys.stdin)
        self._number = 0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def answer(self, form: AnswerForm, screen: Paper, work: Iterator[object]) -> Response | Wish:
        """Wait for an answer, with the work as for keys; the end of the input is the wish to stop.

        Raises:
            BadLineError: A line of a pipe or a file is no answer; the message has its number.
        """
        if self.asks:
            self._settle()
            self._work_until_typed(work)
        else:
            deque(work, maxlen=0)
        while True:
            line = self._line()
            if line is None:
                return Wish.STOP
            if not line.strip() and not self.asks:
                continue
            try:
                return form.read(line)
            except ValueError as error:
                if not self.asks:
                    raise BadLineError(f"Line {self._number} of the input: {error}") from None
                screen.note(str(error))

    def confirm(self) -> bool:
        """Wait for Enter (True) or Q (False)."""
        self._settle()
        line = self._line()
        return line is not None and not line.strip().lower().startswith("q")

    def _line(self) -> str | None:
        raw = self._stream.readline(_LONGEST) if self._stream is not None else b""
        if not raw:
            return None
        self._number += 1
        return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)

    def _settle(self) -> None:
        """Drop lines that were typed before the question was on the screen."""
        try:
            import termios

            time.sleep(_QUIET)
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        except (ImportError, OSError):
            pass

    def _work_until_typed(self, work: Iterator[object]) -> None:
        try:
            while not _ready(sys.stdin.fileno(), 0) and next(work, _DONE) is not _DONE:
                pass
        except OSError:  # of a system that can't wait for a terminal
            deque(work, maxlen=0)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and bool(stream.isatty())


def _ready(handle: int, seconds: float | None) -> bool:
    return bool(select.select([handle], [], [], seconds)[0])


def _terminated(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)  # the contexts restore the terminal and release the folder


Reader = Keys | Lines


def make_reader(form: AnswerForm) -> Reader:
    """The reader for this process's stdin, a context manager."""
    return Keys() if Keys.possible(form) else Lines()
