"""What the commands share for the terminal: results to stdout, progress to stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["bullet", "output", "quiet_libraries", "shown", "track"]


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


def track(name: str, steps: Iterable[Any], total: int) -> Iterable[Any]:
    """Show a progress bar with the time left on stderr while the steps are done."""
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
        TextColumn("{task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=total)
        for step in steps:
            progress.advance(task)
            yield step


def quiet_libraries() -> None:
    """Keep the model libraries' own notes and bars off the terminal; ours remain."""
    for name in ("transformers", "sentence_transformers", "huggingface_hub", "matplotlib", "fontTools"):
        logging.getLogger(name).setLevel(logging.ERROR)
