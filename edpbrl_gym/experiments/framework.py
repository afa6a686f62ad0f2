"""An experiment is settings, units of work and a report; here it is run: folder, plan, preparation, units, results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edpbrl_gym._executor import Executor, Track, no_track
from edpbrl_gym.experiments.runs import Results, RunFolder, read_results
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from edpbrl_gym.workers.processes import LocalProcesses

if TYPE_CHECKING:
    from edpbrl_gym.reporting.report import Report

__all__ = ["Experiment", "Inputs", "Run", "Unit", "run_experiment", "text_inputs"]


class Unit(NamedTuple):
    """A piece of work that is done in one process and written as one file; any object with a ``part`` serves as one."""

    part: str  # name of its file in parts/, another one for every unit
    number: int = 0  # of the repeat


@dataclass(frozen=True, eq=False)
class Inputs:
    """What an experiment loads before its folder is opened."""

    encoder: TextEncoder | None = None
    vocabulary: Vocabulary | None = None  # the whole one
    config: Mapping[str, Any] = field(default_factory=dict)  # what decides the numbers; a resumed run must share it
    notes: Mapping[str, Any] = field(default_factory=dict)  # what is noted about it


def text_inputs(settings: Any, *, cache: bool = True) -> Inputs:
    """Load ``settings.encoder``, with its cache on the disk, and ``settings.vocabulary``."""
    encoder, words = load_encoder(settings.encoder, cache=cache), load_vocabulary(settings.vocabulary)
    config = {"encoder_fingerprint": encoder.fingerprint, "vocabulary_fingerprint": words.fingerprint}
    return Inputs(encoder, words, config, {"encoder": encoder.name, "steps": list(words.names)})


@dataclass(frozen=True, eq=False)
class Run:
    """A run while it is prepared."""

    settings: Any
    folder: RunFolder  # held by this process
    inputs: Inputs
    executor: Executor
    track: Track
    progress: bool  # whether to show bars while texts are encoded

    @property
    def encoder(self) -> TextEncoder:
        """The encoder of an experiment that has one."""
        assert self.inputs.encoder is not None
        return self.inputs.encoder

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of an experiment that has one."""
        assert self.inputs.vocabulary is not None
        return self.inputs.vocabulary

    def do_all(self, name: str, function: Callable[..., Any], work: list[tuple[Any, ...]]) -> list[Any]:
        """Call a function with each of the arguments; return the results in the order in which they finish."""
        if not work:
            return []  # and nothing is shown
        return list(self.track(name, self.executor.map_unordered(function, work, self.folder.path), len(work)))

    def make_missing(self, name: str, function: Callable[..., Any], wanted: Mapping[Path, tuple[Any, ...]]) -> None:
        """Call a function with the arguments behind each file that is not there, which it then writes."""
        self.do_all(name, function, [given for path, given in wanted.items() if not path.is_file()])


@dataclass(frozen=True, eq=False)
class Experiment:
    """A kind of run folder.

    Attributes:
        kind: As it stands in config.json and results.parquet.
        command: That makes such folders.
        settings: Dataclass of all that decides the numbers, with ``as_config()``, JSON-able.
        plan: Settings -> units, in their order; may take more arguments, such as names of regimes.
        run_unit: (settings, unit, folder, what ``prepare`` returned) -> rows, dicts or a DataFrame; a function of a
            module, so that other processes can call it.
        report: Results -> report.
        inputs: Settings -> what is loaded first.
        prepare: (run, units that the folder lacks) -> what every unit gets; it can be pickled, unless one process runs.
        table: (folder, units of the plan) -> all rows, pandas DataFrame.
        units: What its units are called while they run.
        resumes: Whether finished units of the folder stay; else all are done again.
    """

    kind: str
    command: str
    settings: type
    plan: Callable[..., Sequence[Any]]
    run_unit: Callable[[Any, Any, Path, Any], Any]
    report: Callable[[Results], Report]
    inputs: Callable[[Any], Inputs] = lambda settings: Inputs()
    prepare: Callable[[Run, list[Any]], Any] = lambda run, todo: None
    table: Callable[[RunFolder, Sequence[Any]], Any] = lambda folder, units: folder.read_parts([u.part for u in units])
    units: str = "units"
    resumes: bool = True


def run_experiment(
    experiment: Experiment,
    settings: Any,
    out: str | os.PathLike[str],
    *,
    units: Sequence[Any] | None = None,
    jobs: int | Executor | None = None,
    track: Track = no_track,
    progress: bool = False,
) -> Results:
    """Run an experiment, or the rest of it, and write results.parquet.

    A run that was stopped or killed goes on in the same folder: finished units are read from there.

    Args:
        experiment: Which one.
        settings: What decides the numbers.
        out: The run folder, new or of an earlier run with the same settings.
        units: Of ``experiment.plan``; None: all that it plans by itself.
        jobs: Processes of this machine; None: one for each core, and no more than there are units. Or another executor,
            such as a ``DaskCluster``. The results don't depend on it.
        track: Shows progress.
        progress: Show progress bars while texts are encoded.

    Returns:
        The results as stored.

    Raises:
        RunFolderError: If ``out`` holds another experiment or can't be written.
        ValueError: If something that the settings name is unknown or can't be used.
    """
    executor = jobs if isinstance(jobs, Executor) else LocalProcesses(jobs)
    planned = list(experiment.plan(settings) if units is None else units)
    inputs = experiment.inputs(settings)
    config = settings.as_config() | inputs.config
    folder = RunFolder.open(Path(out).absolute(), kind=experiment.kind, config=config)
    folder.begin()
    folder.note(**inputs.notes)
    run = Run(settings, folder, inputs, executor, track, progress)
    todo = [unit for unit in planned if not (experiment.resumes and folder.has_part(unit.part))]
    prepared = experiment.prepare(run, todo)
    run.do_all(
        experiment.units, _perform, [(experiment.run_unit, settings, unit, folder.path, prepared) for unit in todo]
    )
    folder.finish()
    return read_results(folder.write_results(experiment.table(folder, planned)))


def _perform(run_unit: Callable[..., Any], settings: Any, unit: Any, folder: Path, prepared: Any) -> None:
    import pandas

    rows = pandas.DataFrame(run_unit(settings, unit, folder, prepared))
    RunFolder(folder, kind="", config={}).write_part(unit.part, rows)
