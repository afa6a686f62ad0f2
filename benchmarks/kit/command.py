"""The command line of a benchmark with a run folder: run, resume, report; ``python -m benchmarks.NAME``."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro
from tyro.conf import OmitArgPrefixes

from edpbrl_gym._files import reading
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.cli import RULES
from edpbrl_gym.cli.arguments import Workers
from edpbrl_gym.cli.console import OK, bad_arguments, explain, quiet_libraries, show_report, track
from edpbrl_gym.experiments.framework import Experiment, run_experiment
from edpbrl_gym.experiments.runs import Results, RunFolder, RunFolderError, read_results


@dataclass(frozen=True)
class Place:
    """Who does the work, and where the results go."""

    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)
    out: Path | None = None
    """Run folder (None: runs/NAME). A stopped run goes on; units may be added."""
    report: Path | None = None
    """Run nothing: rewrite results, figures and REPORT.md of this run folder from what is finished."""


def parse(kind: Any, run: Callable[[Any], None], prog: str, arguments: Sequence[str], default: Any = None) -> int:
    """Read the arguments and run; an error becomes one line and an exit code, as of ``edpbrl``."""
    config = (tyro.conf.FlagCreatePairsOff,)
    try:
        run(tyro.cli(kind, prog=prog, args=arguments, default=default or kind(), config=config, registry=RULES))
        sys.stdout.flush()
    except SystemExit as done:  # tyro has printed the help, or what is wrong
        return int(done.code or OK)
    except (Exception, KeyboardInterrupt) as error:
        return explain(error)
    return OK


def run(experiment: Experiment, settings: Any, plan: Callable[[], Sequence[Any]], place: Place) -> None:
    """Run or resume what is planned, or rewrite the report; print the main tables and where the files are."""
    start = time.monotonic()
    quiet_libraries()
    out = place.report or place.out or Path("runs") / experiment.kind
    if place.report is not None:
        results = gather(experiment, out)
    else:
        with bad_arguments():
            units = plan()
        with place.workers.executor() as executor:
            results = run_experiment(experiment, settings, out, units=units, jobs=executor, track=track, progress=True)
    show_report(experiment.report(results), out, start)


def check_names(names: Sequence[str], what: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names without repetitions; ValueError: there is none, or one is unknown."""
    if not names:
        raise ValueError(f"Expected at least one {what} ({', '.join(known)}), got none")
    for name in names:
        check_choice_of(name, what, tuple(known))
    return tuple(dict.fromkeys(names))


# -- run folders whose units are added over days ---------------------------------------------------------------------


def sorted_by(*columns: str) -> Callable[[RunFolder, Sequence[Any]], Any]:
    """An ``Experiment.table`` of all finished units of the folder, those of earlier plans too, sorted by columns."""

    def table(folder: RunFolder, units: Sequence[Any] = ()) -> Any:
        names = sorted(path.stem for path in folder.path.glob("parts/*.parquet"))
        rows = folder.read_parts([name for name in names if folder.has_part(name)])
        return rows.sort_values(list(columns), ignore_index=True)

    return table


def gather(experiment: Experiment, folder: str | os.PathLike[str]) -> Results:
    """Write results.parquet from all finished units of a run folder, and return it.

    A folder without parts is taken as it is: its results.parquet stands alone.
    """
    place = Path(folder)
    if any(place.glob("parts/*.parquet")):
        with reading("the settings of a run", place / "config.json", error=RunFolderError):
            stored = json.loads((place / "config.json").read_text(encoding="utf-8"))
        run = RunFolder(place, kind=stored["kind"], config=dict(stored["config"]))
        run.write_results(experiment.table(run, ()))
    results = read_results(place)
    if results.kind != experiment.kind:
        raise RunFolderError(f"Expected a run of `{experiment.command}` in {place}, it holds one of {results.kind!r}")
    return results
