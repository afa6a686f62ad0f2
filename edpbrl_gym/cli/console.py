"""What the commands say: results to stdout, progress to stderr, errors as one line and an exit code."""

from __future__ import annotations

import errno
import logging
import os
import re
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._files import errors_naming

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from edpbrl_gym.reporting.report import Report

__all__ = [
    "BAD_ARGUMENTS",
    "FAILURE",
    "INTERRUPTED",
    "OK",
    "STANDARD_OUTPUT",
    "NamedOutput",
    "Stopped",
    "UsageError",
    "bad_arguments",
    "bullet",
    "command",
    "counting",
    "explain",
    "output",
    "printable",
    "printable_logs",
    "progress_bars",
    "quiet_libraries",
    "show_report",
    "shown",
    "sigterm_as_interrupt",
    "solving",
    "track",
    "unboxed",
]


STANDARD_OUTPUT = "standard output"

# characters that move a terminal's cursor, change its colours or title, or the direction of its text
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return the text with every control character but tabs and line ends shown as U+FFFD."""
    return _CONTROLS.sub("\ufffd", text)


def output() -> Console:
    """Return a rich console on stdout; 110 columns where it is no terminal."""
    return _console(stderr=False, width=None if sys.stdout.isatty() else 110)


def _console(**arguments: Any) -> Console:
    """A console that prints texts literally: no markup, no emoji codes and no control characters.

    Plain text is not wrapped if the output is no terminal, so that paths and commands stay whole.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Printable(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

        def print(self, *objects: Any, **settings: Any) -> None:
            if not self.is_terminal and all(isinstance(part, str) for part in objects):
                settings.setdefault("soft_wrap", True)
            super().print(*objects, **settings)

    return Printable(markup=False, emoji=False, highlight=False, **arguments)


def bullet(console: Any, title: str, text: str) -> None:
    """Print a step: its title in bold, then its result."""
    from rich.padding import Padding
    from rich.table import Table

    if not console.is_terminal:
        console.print(f" {title:<12} {text}")
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=12, style="bold cyan")
    grid.add_column(overflow="fold")
    grid.add_row(title, text)
    console.print(Padding(grid, (0, 0, 0, 1)))


def command(*words: str | Path) -> str:
    """Return a shell command of these words, quoted."""
    return shlex.join(str(word) for word in words)


def shown(path: str | Path) -> str:
    """Path relative to the working folder if it is inside."""
    target = Path(path).resolve()
    try:
        return str(target.relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def show_report(report: Report, out: Path, start: float) -> None:
    """Write a report, and print its headline, the seconds since ``start`` (``time.monotonic``) and the files."""
    from edpbrl_gym.reporting.tables import TextTable

    files = report.write(out)
    console = output()
    for section in report.headline:
        console.print()
        if isinstance(section, TextTable):
            console.print(section.rich())
            continue
        if section.title:
            console.print(section.title, style="bold")
        for line in section.lines:
            console.print(line)
    console.print(f"\nDone in {time.monotonic() - start:.0f} s. Report: {shown(files[-1])}", soft_wrap=True)
    for path in files[:-1]:
        if path.suffix == ".png":
            console.print(f"Figure: {shown(path)}", soft_wrap=True)


def progress_bars(*columns: Any, width: int = 8) -> Progress:
    """Bars on stderr with counts, elapsed and remaining time, and further columns; a context manager."""
    from rich import progress

    defaults = (
        progress.TextColumn(f"{{task.description:<{width}}}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("elapsed"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
    )
    return progress.Progress(*defaults, *columns, console=_console(stderr=True))


def track(name: str, steps: Iterable[Any], total: int) -> Iterable[Any]:
    """Show a progress bar with the remaining time on stderr while iterating over the steps."""
    with progress_bars() as progress:
        task = progress.add_task(name, total=total)
        for step in steps:
            progress.advance(task)
            yield step


@contextmanager
def counting(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr for work that reports its own progress to the callback: number done and total."""
    with progress_bars() as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def solving(tolerance: float) -> Iterator[Callable[[Any], None]]:
    """Show a solver's gap, iterations and time on stderr, if that is a terminal; yield its callback.

    The tolerance is the gain-relative gap at which the solver stops.
    """
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    console = _console(stderr=True)
    aim = f", aim {tolerance:.0e}" if tolerance > 0 else ""
    columns = (
        TextColumn("design   {task.fields[gap]}"),
        TextColumn("iteration {task.fields[iteration]}"),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("design", total=None, gap="", iteration=0)

        def show(state: Any) -> None:
            progress.update(task, gap=f"gap {state.relative_gap:.1e} of the gain{aim}", iteration=state.iteration)

        yield show


class _Printable(logging.Formatter):
    """Log messages without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


_format_warning = warnings.formatwarning


def _printable_warning(*arguments: Any, **settings: Any) -> str:
    return printable(_format_warning(*arguments, **settings))


class NamedOutput:
    """Standard output whose errors name it, so that they can be told from those of other files."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with errors_naming(STANDARD_OUTPUT):
            return int(self._stream.write(text))

    def flush(self) -> None:
        with errors_naming(STANDARD_OUTPUT):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def printable_logs() -> None:
    """Print log messages and warnings to stderr without control characters."""
    warnings.formatwarning = _printable_warning
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Printable("edpbrl: %(message)s"))


def quiet_libraries() -> None:
    """Silence the messages and progress bars of the model libraries, but not those of this package."""
    for name in ("transformers", "sentence_transformers", "huggingface_hub", "matplotlib", "fontTools"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # joblib replaces a worker whose memory has grown; the work continues
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)


OK, FAILURE, BAD_ARGUMENTS, INTERRUPTED = 0, 1, 2, 130

_FULL = "; free some space there, or choose another destination"
_ADVICE = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL)
_ADVICE[errno.EROFS] = "; choose a destination that can be written"


class UsageError(ValueError):
    """An argument of the command line is wrong."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C ended the work early; the message names the results written so far and where they are."""


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM, with which schedulers end a job, like Ctrl-C, so that what was done is written."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # handlers can be set there only
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def bad_arguments() -> Iterator[None]:
    """Turn errors of checks of the command's arguments into a UsageError."""
    try:
        yield
    except (ValueError, TypeError, FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(_message(error)) from error


def explain(error: BaseException) -> int:
    """Print an error as one line to stderr; return the exit code."""
    if isinstance(error, Stopped):
        print(f"edpbrl: {printable(str(error))}", file=sys.stderr)
        return INTERRUPTED
    if isinstance(error, KeyboardInterrupt):
        print("edpbrl: interrupted; the same command resumes a run with --out", file=sys.stderr)
        return INTERRUPTED
    if isinstance(error, OSError):
        _drop(sys.stdout)
    if isinstance(error, BrokenPipeError) and error.filename == STANDARD_OUTPUT:
        return FAILURE  # the reader, such as head, has closed the pipe
    text = " ".join(_message(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        text = f"this needs more memory than there is ({text}); ask for less, such as fewer options or episodes"
    elif not isinstance(error, (ValueError, TypeError, OSError, ImportError, RuntimeError)):
        text = f"{type(error).__name__}: {text}; this looks like a bug, run again with --debug and report it"
    print(f"edpbrl: error: {printable(text)}", file=sys.stderr)
    return BAD_ARGUMENTS if isinstance(error, UsageError) else FAILURE


def _message(error: BaseException) -> str:
    """Message of an error; that of the system starts with the file and ends with advice."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    first = "a file that the system did not name" if error.filename is None else error.filename
    names = [os.fsdecode(name) for name in (first, error.filename2) if name is not None and not isinstance(name, int)]
    return f"{' -> '.join(names)}: {error.strerror}{_ADVICE.get(error.errno, '')}"


def _drop(stream: Any) -> None:
    """Drop the buffer of a stream that can't be written, or the interpreter's exit would fail too."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def unboxed(text: str) -> str:
    """Return the text of a box of the argument parser as one line, without its title and frame."""
    paragraphs: list[list[str]] = [[]]
    for line in text.splitlines():
        words = line.strip("\u2502 ")
        if words.startswith(("\u256d", "\u2570")):  # the corners of the frame
            continue
        if re.fullmatch("[-\u2500]{5,}", words):
            paragraphs.append([])
        elif words:
            paragraphs[-1].append(words)
    if len(paragraphs) > 1 and "\u256d" not in text:  # a frame in ASCII has no corners: the first row is the title
        paragraphs[0] = paragraphs[0][1:]
    line = "; ".join(" ".join(lines).rstrip(".") for lines in paragraphs if lines)
    return re.sub(r"^Error parsing \S+: ", "", line)  # the location in our classes does not help users
