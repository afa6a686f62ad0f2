"""The experiments that there are: the kinds of run folders, and who writes the report of each."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edpbrl_gym._validation import check_choice_of

if TYPE_CHECKING:
    from edpbrl_gym.experiments.runs import Results

__all__ = ["EXPERIMENTS", "Experiment", "check_kind", "write_report"]


@dataclass(frozen=True)
class Experiment:
    """A kind of run folder.

    Attributes:
        command: That makes such folders.
        report: Who writes figures and REPORT.md from results: a module of this room and a function, called with the
            results and the folder; it returns the files written.
    """

    command: str
    report: str


EXPERIMENTS: dict[str, Experiment] = {
    "synthetic": Experiment("edpbrl reproduce synthetic", "report:write_synthetic"),
    "demo": Experiment("edpbrl demo", "report:write_demo"),
    "reinforce": Experiment("edpbrl reproduce reinforce", "reinforce.report:write_report"),
    "llm": Experiment("edpbrl reproduce llm", "llm.report:write_report"),
    "queries": Experiment("edpbrl bench queries", "query_bench.report:write_report"),
    "race": Experiment("edpbrl bench race", "race.report:write_report"),
}
"""By kind, as it stands in a run's config.json and results.parquet."""


def check_kind(kind: str) -> str:
    """Return a kind that there is.

    Raises:
        ValueError: If there is none of that name; the message lists those that there are.
    """
    return check_choice_of(kind, "kind of experiment", tuple(EXPERIMENTS))


def write_report(results: Results, folder: str | os.PathLike[str]) -> list[Path]:
    """Write every figure (PNG and PDF) and REPORT.md of a run, from its results alone.

    Args:
        results: From ``read_results``.
        folder: Where they go.

    Returns:
        The files written.

    Raises:
        RunFolderError: If the kind is unknown or the folder can't be written.
    """
    if results.kind not in EXPERIMENTS:
        from edpbrl_gym.experiments.runs import RunFolderError

        raise RunFolderError(
            f"Expected results of one of {', '.join(EXPERIMENTS)}, got {results.kind!r}; use a newer edpbrl-gym"
        )
    module, _, function = EXPERIMENTS[results.kind].report.partition(":")
    write: Callable[[Results, Path], list[Path]]
    write = getattr(importlib.import_module(f"edpbrl_gym.experiments.{module}"), function)
    return write(results, Path(folder))
