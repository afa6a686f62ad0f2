"""The race as an experiment: which units there are, and what they need before they run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edpbrl_gym._validation import check_count
from edpbrl_gym.experiments.framework import Experiment, Run, sorted_by, text_inputs
from edpbrl_gym.experiments.query_bench.asking import shared_design, solve_and_save
from edpbrl_gym.experiments.query_bench.measuring import ceiling_path, find_ceiling
from edpbrl_gym.experiments.query_bench.settings import Unit
from edpbrl_gym.experiments.race.contenders import default_contenders, get_contender
from edpbrl_gym.experiments.race.report import make_report
from edpbrl_gym.experiments.race.settings import REGIMES, RaceSettings, get_regime
from edpbrl_gym.experiments.race.unit import run_unit
from edpbrl_gym.experiments.race.worlds import load_world, prepare

__all__ = ["RACE", "check_contenders", "plan_units"]


def plan_units(
    settings: RaceSettings,
    *,
    regimes: Sequence[str] | None = None,
    arms: Sequence[str] | None = None,
    seeds: int = 20,
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


def _prepare(run: Run, todo: list[Unit]) -> str:
    """Make what the units need and the folder lacks: worlds, best scores of users in prompt MDPs, shared designs."""
    settings, folder, fingerprint = run.settings, run.folder.path, run.encoder.fingerprint
    run.folder.note(sizes=list(run.vocabulary.sizes))
    for regime in dict.fromkeys(get_regime(unit.regime) for unit in todo):
        prepare(settings, regime, run.encoder, folder, progress=run.progress)
    ceilings, designs = {}, {}
    for unit in todo:
        regime, contender = get_regime(unit.regime), get_contender(unit.arm)
        if not regime.items:
            path = ceiling_path(folder, regime.vocabulary, unit.user)
            ceilings[path] = (settings.bench, regime, unit.user, folder, fingerprint)
        rule = contender.options["rule"] if contender.kind == "static" else None
        done = None if rule is None else shared_design(rule, regime, folder)
        if done is not None:
            designs[done] = (load_world, settings, regime, rule, folder, fingerprint)
    run.make_missing("best", find_ceiling, ceilings)
    run.make_missing("designs", solve_and_save, designs)
    return fingerprint


RACE = Experiment(
    kind="race",
    command="edpbrl bench race",
    settings=RaceSettings,
    plan=plan_units,
    inputs=text_inputs,
    prepare=_prepare,
    run_unit=run_unit,
    report=make_report,
    table=sorted_by("regime", "arm", "seed", "user", "episodes", "score"),
)
