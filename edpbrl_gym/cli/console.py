"""What the commands share for the terminal: results to stdout, progress to stderr."""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["bullet", "counting", "output", "progress_bars", "quiet_libraries", "shown", "solving", "track"]


def output() -> Any:
    """Return a rich console on stdout; 100 columns where it is no terminal, so that redirected tables stay whole."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 110)


def bullet(console: Any, title: str, text: str) -> None:
    """Print a step: its title in bold, then what came of it."""
    from rich.markup import escape
    from rich.padding import Padding
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=12, style="bold cyan")
    grid.add_column()
    grid.add_row(escape(title), escape(text))
    console.print(Padding(grid, (0, 0, 0, 1)))


def shown(path: str | Path) -> str:
    """Path relative to the working folder where it lies inside."""
    target = Path(path).resolve()
    try:
        return str(target.relative_to(Path.cwd().resolve()))
    except ValueError:
        return str(path)


def progress_bars(*more: Any, width: int = 8) -> Progress:
    """Bars on stderr with counts, time and time left; a context manager.

    Args:
        *more: Further columns at the right.
        width: Of the names at the left.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(f"{{task.description:<{width}}}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, *more, console=Console(stderr=True))


def track(name: str, steps: Iterable[Any], total: int) -> Iterable[Any]:
    """Show a progress bar with the time left on stderr while the steps are done."""
    with progress_bars() as progress:
        task = progress.add_task(name, total=total)
        for step in steps:
            progress.advance(task)
            yield step


@contextmanager
def counting(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar with the time left on stderr for work that says itself how far it is.

    Args:
        name: What is done, at the left of the bar.

    Yields:
        A callback for the work, called with the numbers of things done and wanted.
    """
    with progress_bars() as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def solving(tolerance: float) -> Iterator[Callable[[Any], None]]:
    """Show how far a solver is, on stderr where that is a terminal: the gap on a log scale, iterations and time.

    Args:
        tolerance: Gain-relative gap that the solver aims at; 0 shows no end.

    Yields:
        A callback for the solver, called with an ``IterationState``.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
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
        reached = _Reached(tolerance)

        def show(state: Any) -> None:
            done = reached(state.relative_gap)
            progress.update(
                task,
                total=None if done is None else 1.0,
                completed=done or 0.0,
                gap=f"gap {state.relative_gap:.1e} of the gain{aim}",
                iteration=state.iteration,
            )

        yield show


class _Reached:
    """How much of the way from the first gap to the tolerance is done, on a log scale, 0 to 1; the best so far."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._first: float | None = None
        self._best = 0.0

    def __call__(self, gap: float) -> float | None:
        """None where there is no scale: no tolerance, or no finite gap yet."""
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


def quiet_libraries() -> None:
    """Keep the model libraries' own notes and bars off the terminal; ours remain."""
    for name in ("transformers", "sentence_transformers", "huggingface_hub", "matplotlib", "fontTools"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # joblib replaces a worker whose memory has grown; the work goes on
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
