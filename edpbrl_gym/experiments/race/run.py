"""Run the race, or the rest of it: worlds, best scores, designs, then the units, in parallel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edpbrl_gym._validation import check_count
from edpbrl_gym.experiments.processes import Track, do_all, no_track, workers
from edpbrl_gym.experiments.query_bench.measuring import ceiling_path, find_ceiling
from edpbrl_gym.experiments.query_bench.run import open_folder
from edpbrl_gym.experiments.race.contenders import default_contenders, get_contender
from edpbrl_gym.experiments.race.planners import design_needed, solve_design
from edpbrl_gym.experiments.race.settings import REGIMES, RaceSettings, get_regime
from edpbrl_gym.experiments.race.unit import KIND, Unit, perform
from edpbrl_gym.experiments.race.worlds import prepare
from edpbrl_gym.experiments.runs import Results, gather_parts

__all__ = ["check_contenders", "gather", "plan_units", "run_race"]


def plan_units(
    settings: RaceSettings,
    *,
    regimes: Sequence[str] | None,
    arms: Sequence[str] | None,
    seeds: int,
    first_seed: int = 0,
) -> list[Unit]:
    """Return the units to be run, in their order: seed after seed, so that an early stop leaves a small race.

    Args:
        settings: Of the race.
        regimes: Names; None takes all.
        arms: Names of contenders; None takes all without the variants of ``@ours``. In a regime where one can't run
            there is no unit of it.
        seeds: How many.
        first_seed: The first of them.

    Raises:
        ValueError: An unknown name, a contender that can run in none of the regimes, or seeds out of range.
    """
    check_count(seeds, "seeds")
    check_count(first_seed, "first_seed", minimum=0)
    chosen = [get_regime(name) for name in dict.fromkeys(REGIMES if regimes is None else regimes)]
    for name in arms or ():
        contender = get_contender(name)
        if not any(contender.runs_in(regime) for regime in chosen):
            able = [regime.name for regime in REGIMES.values() if contender.runs_in(regime)]
            raise ValueError(
                f"Expected for {name!r} a regime in which it can run ({', '.join(able)}), got "
                f"{', '.join(regime.name for regime in chosen)}"
            )
    units = []
    for seed in range(first_seed, first_seed + seeds):
        for regime in chosen:
            names = default_contenders(regime) if arms is None else dict.fromkeys(arms)
            user = settings.user(regime, seed)
            units += [Unit(seed, regime.name, user, name) for name in names if get_contender(name).runs_in(regime)]
    return units


def check_contenders(units: Sequence[Unit]) -> None:
    """Raise where the package of a contender is missing: it should not cost hours to learn of it.

    Raises:
        ImportError: The message says what to install.
    """
    kinds = {get_contender(unit.arm).kind for unit in units}
    if not kinds & {"gp", "optuna"}:
        return
    from edpbrl_gym.planners.external import OptunaGPPlanner, PairwiseGPPlanner

    items = np.eye(3)
    if "gp" in kinds:
        PairwiseGPPlanner(items, acquisition="bald")
    if "optuna" in kinds:
        OptunaGPPlanner(items)


def run_race(
    settings: RaceSettings,
    out: str | os.PathLike[str],
    *,
    regimes: Sequence[str] | None = None,
    arms: Sequence[str] | None = None,
    seeds: int = 20,
    first_seed: int = 0,
    jobs: int | None = None,
    track: Track = no_track,
    progress: bool = False,
) -> Results:
    """Run the units that the folder lacks and write results.parquet with all finished units of the folder.

    Units are independent: contenders, regimes and seeds may be added to a folder later, with the same settings.

    Args:
        settings: What decides the numbers of a unit.
        out: The run folder, new or of an earlier run with the same settings.
        regimes: See ``plan_units``.
        arms: See ``plan_units``.
        seeds: See ``plan_units``.
        first_seed: See ``plan_units``.
        jobs: Processes; None: one for each core. The results don't depend on it (times do).
        track: Shows progress.
        progress: Show progress bars while texts are encoded.

    Returns:
        The results as stored.

    Raises:
        RunFolderError: If ``out`` holds another experiment or can't be written.
        ValueError: If a regime or a contender is unknown or the vocabulary can't be used.
        ImportError: If the package of a contender is not installed.
    """
    units = plan_units(settings, regimes=regimes, arms=arms, seeds=seeds, first_seed=first_seed)
    processes = workers(jobs)
    check_contenders(units)
    folder, encoder = open_folder(settings, out, kind=KIND)
    todo = [unit for unit in units if not folder.has_part(unit.part)]
    for regime in dict.fromkeys(get_regime(unit.regime) for unit in todo):
        prepare(settings, regime, encoder, folder.path, progress=progress)
    _prepare_prompts(settings, todo, folder.path, encoder.fingerprint, processes, track)
    do_all("units", perform, [(settings, unit, folder.path, encoder.fingerprint) for unit in todo], processes, track)
    folder.finish()
    return gather(folder.path)


def _prepare_prompts(
    settings: RaceSettings, todo: Sequence[Unit], folder: Path, fingerprint: str, processes: int, track: Track
) -> None:
    """Best scores of the users in prompt MDPs, and the designs that seeds share, each once."""
    best, designs = {}, {}
    for unit in todo:
        regime, contender = get_regime(unit.regime), get_contender(unit.arm)
        if not regime.items:
            path = ceiling_path(folder, regime.base.vocabulary, unit.user)
            best[path] = (settings.bench, regime.base, unit.user, folder, fingerprint)
        done = design_needed(contender, regime, folder)
        if done is not None:
            designs[done] = (settings, regime, contender, folder, fingerprint)
    for name, function, wanted in (("best", find_ceiling, best), ("designs", solve_design, designs)):
        work = [given for path, given in wanted.items() if not path.is_file()]
        do_all(name, function, work, processes, track)


def gather(folder: str | os.PathLike[str]) -> Results:
    """Write results.parquet from all finished units of a run folder, and return it.

    Raises:
        FileNotFoundError: If there are neither parts nor results.
        RunFolderError: If the folder holds another experiment.
    """
    order = ["regime", "arm", "seed", "user", "episodes", "score"]
    return gather_parts(folder, kind=KIND, order=order)
