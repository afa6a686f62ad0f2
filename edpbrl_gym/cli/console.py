"""Terminal output of the commands: results to stdout, progress to stderr."""

from __future__ import annotations

import logging
import math
import re
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._files import errors_naming

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from edpbrl_gym.reporting.report import Report

__all__ = [
    "STANDARD_OUTPUT",
    "NamedOutput",
    "bullet",
    "command",
    "counting",
    "output",
    "printable",
    "printable_logs",
    "progress_bars",
    "quiet_libraries",
    "show_files",
    "show_report",
    "shown",
    "solving",
    "track",
]

STANDARD_OUTPUT = "standard output"

# characters that move a terminal's cursor, change its colours or title, or the direction of its text
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return the text with every control character but tabs and line ends shown as U+FFFD."""
    return _CONTROLS.sub("\ufffd", text)


def output() -> Console:
    """Return a rich console on stdout; 110 columns where it is no terminal, so that redirected tables stay whole."""
    return _console(stderr=False, width=None if sys.stdout.isatty() else 110)


def _console(**arguments: Any) -> Console:
    """A console that prints texts literally: no markup, no emoji codes and no control characters.

    Tokens, prompts of a language model, file names and settings of other people's runs reach the terminal. Plain text
    is not wrapped if the output is no terminal, so that paths and commands stay whole.
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


def show_files(files: Sequence[Path], start: float) -> None:
    """Print the seconds since ``start`` (``time.monotonic``), the report (the last file) and the figures."""
    console = output()
    console.print(f"\nDone in {time.monotonic() - start:.0f} s. Report: {shown(files[-1])}", soft_wrap=True)
    for path in files[:-1]:
        if path.suffix == ".png":
            console.print(f"Figure: {shown(path)}", soft_wrap=True)


def show_report(report: Report, out: Path, page: Path | None, start: float) -> None:
    """Write the report of an experiment, print its main tables and where the files are.

    Args:
        report: The report.
        out: Run folder.
        page: Also write the report as this Markdown file.
        start: Begin of the command (``time.monotonic``).
    """
    files = report.write(out, page=page)
    console = output()
    for table in report.headline:
        console.print()
        console.print(table.rich())
    show_files(files, start)


def progress_bars(*columns: Any, width: int = 8) -> Progress:
    """Bars on stderr with counts, elapsed and remaining time; a context manager.

    Args:
        *columns: Further columns at the right.
        width: Width of the names at the left.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    defaults = (
        TextColumn(f"{{task.description:<{width}}}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*defaults, *columns, console=_console(stderr=True))


def track(name: str, steps: Iterable[Any], total: int) -> Iterable[Any]:
    """Show a progress bar with the remaining time on stderr while iterating over the steps."""
    with progress_bars() as progress:
        task = progress.add_task(name, total=total)
        for step in steps:
            progress.advance(task)
            yield step


@contextmanager
def counting(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar with the remaining time on stderr for work that reports its own progress.

    Args:
        name: Name of the work, at the left of the bar.

    Yields:
        A callback for the work, called with the number done and the total.
    """
    with progress_bars() as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def solving(tolerance: float) -> Iterator[Callable[[Any], None]]:
    """Show the progress of a solver on stderr, if that is a terminal: the gap on a log scale, iterations and time.

    Args:
        tolerance: Gain-relative gap at which the solver stops; 0 shows no end.

    Yields:
        A callback for the solver, called with an ``IterationState``.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = _console(stderr=True)
    aim = f", aim {tolerance:.0e}" if tolerance > 0 else ""
    columns = (
        TextColumn("design  "),
        BarColumn(),
        TextColumn("{task.fields[gap]}"),
        TextColumn("iteration {task.fields[iteration]}"),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("design", total=None, gap="", iteration=0)
        gap_progress = _GapProgress(tolerance)

        def show(state: Any) -> None:
            share = gap_progress(state.relative_gap)
            progress.update(
                task,
                total=None if share is None else 1.0,
                completed=share or 0.0,
                gap=f"gap {state.relative_gap:.1e} of the gain{aim}",
                iteration=state.iteration,
            )

        yield show


class _GapProgress:
    """Progress from the first gap to the tolerance on a log scale, 0 to 1; the best so far."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._first: float | None = None
        self._best = 0.0

    def __call__(self, gap: float) -> float | None:
        """The progress; None without a tolerance or before the first finite gap."""
        if not self._tolerance > 0 or not math.isfinite(gap):
            return None
        if self._first is None:
            self._first = gap
        if gap <= self._tolerance:
            self._best = 1.0
        elif self._first > self._tolerance:
            share = math.log(self._first / gap) / math.log(self._first / self._tolerance)
            self._best = min(1.0, max(self._best, share))
        return self._best


class _Printable(logging.Formatter):
    """Log messages without the control characters of names and texts in them."""

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
        """Write a text; return the number of characters."""
        with errors_naming(STANDARD_OUTPUT):
            return int(self._stream.write(text))

    def flush(self) -> None:
        """Flush the buffer."""
        with errors_naming(STANDARD_OUTPUT):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def printable_logs() -> None:
    """Print log messages and warnings to stderr without control characters; other handlers are left alone."""
    warnings.formatwarning = _printable_warning
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Printable("edpbrl: %(message)s"))


def quiet_libraries() -> None:
    """Silence the messages and progress bars of the model libraries, but not those of this package."""
    for name in ("transformers", "sentence_transformers", "huggingface_hub", "matplotlib", "fontTools"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # joblib replaces a worker whose memory has grown; the work continues
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
