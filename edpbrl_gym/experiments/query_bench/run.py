"""Run the benchmark, or the rest of it: worlds, best scores, designs, questions, then the units, in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edpbrl_gym._validation import check_count
from edpbrl_gym.experiments.processes import Track, do_all, no_track, workers
from edpbrl_gym.experiments.query_bench.arms import ABLATION_ARMS, HEADLINE_ARMS, SIDE_ARMS, STATIC_RULES, get_arm
from edpbrl_gym.experiments.query_bench.asking import (
    check_available,
    design_path,
    draw_and_save,
    questions_path,
    solve_and_save,
)
from edpbrl_gym.experiments.query_bench.measuring import ceiling_path, find_ceiling
from edpbrl_gym.experiments.query_bench.settings import REGIMES, BenchSettings, get_regime
from edpbrl_gym.experiments.query_bench.unit import KIND, Unit, perform
from edpbrl_gym.experiments.query_bench.worlds import prepare_world
from edpbrl_gym.experiments.runs import Results, RunFolder, gather_parts
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.vocabulary import load_vocabulary

__all__ = ["FEWER_SEEDS", "gather", "open_folder", "plan_units", "run_queries"]

# seeds of side regimes and ablation arms at most; 5 seeds of 2 sentences see each of the ten sentences once
FEWER_SEEDS = 5


def plan_units(
    settings: BenchSettings, *, regimes: Sequence[str] | None, arms: Sequence[str] | None, seeds: int
) -> list[Unit]:
    """Return the units to be run, in their order: seed after seed, so that an early stop leaves a small benchmark.

    Without ``arms``, headline regimes get the headline arms with all seeds and the ablation arms with at most
    ``FEWER_SEEDS``; side regimes get their arms with at most ``FEWER_SEEDS``. Given arms get all seeds in headline
    regimes, except ablation arms.

    Args:
        settings: Of the benchmark.
        regimes: Names; None takes all.
        arms: Names; None takes the defaults.
        seeds: Seeds 0..seeds-1 of headline regimes.

    Raises:
        ValueError: An unknown name, an arm whose agent this version lacks, or seeds < 1.
    """
    check_count(seeds, "seeds")
    chosen = [get_regime(name) for name in dict.fromkeys(REGIMES if regimes is None else regimes)]
    for name in arms or ():
        check_available(get_arm(name))
    units = []
    for regime in chosen:
        defaults = (*HEADLINE_ARMS, *ABLATION_ARMS) if regime.headline else SIDE_ARMS
        for name in dict.fromkeys(defaults if arms is None else arms):
            check_available(get_arm(name))
            few = not regime.headline or name in ABLATION_ARMS
            for seed in range(min(seeds, FEWER_SEEDS) if few else seeds):
                units += [Unit(seed, regime.name, sentence, name) for sentence in settings.sentences_of(seed)]
    order = {regime.name: number for number, regime in enumerate(chosen)}
    return sorted(units, key=lambda unit: (unit.seed, order[unit.regime]))


def run_queries(
    settings: BenchSettings,
    out: str | os.PathLike[str],
    *,
    regimes: Sequence[str] | None = None,
    arms: Sequence[str] | None = None,
    seeds: int = 20,
    jobs: int | None = None,
    track: Track = no_track,
    progress: bool = False,
) -> Results:
    """Run the units that the folder lacks and write results.parquet with all finished units of the folder.

    Units are independent: arms, regimes and seeds may be added to a folder later, with the same settings.

    Args:
        settings: What decides the numbers of a unit.
        out: The run folder, new or of an earlier run with the same settings.
        regimes: See ``plan_units``.
        arms: See ``plan_units``.
        seeds: See ``plan_units``.
        jobs: Processes; None: one for each core. The results don't depend on it (times do).
        track: Shows progress.
        progress: Show progress bars while texts are encoded.

    Returns:
        The results as stored.

    Raises:
        RunFolderError: If ``out`` holds another experiment or can't be written.
        ValueError: If a regime or an arm is unknown or the vocabulary can't be used.
    """
    units = plan_units(settings, regimes=regimes, arms=arms, seeds=seeds)
    processes = workers(jobs)
    folder, encoder = open_folder(settings, out, kind=KIND)
    todo = [unit for unit in units if not folder.has_part(unit.part)]
    for regime in dict.fromkeys(get_regime(unit.regime) for unit in todo):
        prepare_world(settings, regime, encoder, folder.path, progress=progress)
    for name, function, work in _preparations(settings, todo, folder.path, encoder.fingerprint):
        do_all(name, function, work, processes, track)
    do_all("units", perform, [(settings, unit, folder.path, encoder.fingerprint) for unit in todo], processes, track)
    folder.finish()
    return gather(folder.path)


def open_folder(settings: Any, out: str | os.PathLike[str], *, kind: str) -> tuple[RunFolder, TextEncoder]:
    """Open the run folder of a benchmark, and load its encoder.

    Args:
        settings: With ``encoder``, ``vocabulary`` and ``as_config()``; with the fingerprints of the two they are the
            configuration that a resumed run must share.
        out: The folder.
        kind: Of the run.

    Raises:
        RunFolderError: If the folder holds another run or can't be written.
        ValueError: If the vocabulary or the encoder can't be used.
    """
    encoder = load_encoder(settings.encoder)
    words = load_vocabulary(settings.vocabulary)
    config = settings.as_config() | {
        "encoder_fingerprint": encoder.fingerprint,
        "vocabulary_fingerprint": words.fingerprint,
    }
    folder = RunFolder.open(out, kind=kind, config=config)
    folder.begin()
    folder.note(encoder=encoder.name, steps=list(words.names), sizes=list(words.sizes))
    return folder, encoder


def _preparations(
    settings: BenchSettings, todo: Sequence[Unit], folder: Path, fingerprint: str
) -> list[tuple[str, Callable[..., Any], list[tuple[Any, ...]]]]:
    """What the units need and the folder lacks: best scores, designs and questions, each once."""
    ceilings: dict[Path, tuple[Any, ...]] = {}
    designs: dict[Path, tuple[Any, ...]] = {}
    questions: dict[Path, tuple[Any, ...]] = {}
    for unit in todo:
        regime, arm = get_regime(unit.regime), get_arm(unit.arm)
        path = ceiling_path(folder, regime.vocabulary, unit.sentence)
        ceilings.setdefault(path, (settings, regime, unit.sentence, folder, fingerprint))
        if arm.adaptive:
            continue
        path = questions_path(folder, regime.world, arm.rule, unit.seed)
        questions.setdefault(path, (settings, regime, arm.rule, unit.seed, folder, fingerprint))
        if not STATIC_RULES[arm.rule].learns_per_seed:
            path = design_path(folder, regime.world, arm.rule) / "solved.json"
            designs.setdefault(path, (settings, regime, arm.rule, folder, fingerprint))
    return [
        (name, function, [given for path, given in wanted.items() if not path.is_file()])
        for name, function, wanted in (
            ("best", find_ceiling, ceilings),
            ("designs", solve_and_save, designs),
            ("asked", draw_and_save, questions),
        )
    ]


def gather(folder: str | os.PathLike[str]) -> Results:
    """Write results.parquet from all finished units of a run folder, and return it.

    A folder without parts is taken as it is: its results.parquet stands alone.

    Raises:
        FileNotFoundError: If there are neither parts nor results.
        RunFolderError: If the folder holds another experiment.
    """
    order = ["regime", "arm", "seed", "sentence", "episodes"]
    return gather_parts(folder, kind=KIND, order=order)
