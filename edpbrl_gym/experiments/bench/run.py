"""The benchmark as an experiment: which units there are, and what they need before they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edpbrl_gym._compat import Need
from edpbrl_gym._validation import check_count
from edpbrl_gym.experiments.bench.arms import get_arm
from edpbrl_gym.experiments.bench.designs import draw_and_save, questions_path, shared_design, solve_and_save
from edpbrl_gym.experiments.bench.loading import prepare_world
from edpbrl_gym.experiments.bench.measuring import ceiling_path, find_ceiling
from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.report import make_report
from edpbrl_gym.experiments.bench.settings import REGIMES, BenchSettings, Unit, get_regime
from edpbrl_gym.experiments.bench.studies import STUDIES, Study
from edpbrl_gym.experiments.bench.unit import run_unit
from edpbrl_gym.experiments.framework import Experiment, Run, sorted_by, text_inputs
from edpbrl_gym.planners.registry import planner_needs

__all__ = ["BENCH", "arm_needs", "plan_units"]

_DEVELOPMENT_SEEDS = 1000  # the first of them


def plan_units(
    settings: BenchSettings,
    *,
    study: Study = STUDIES["efficiency"],
    regimes: Sequence[str] | None = None,
    arms: Sequence[str] | None = None,
    seeds: int | None = None,
    first_seed: int = 0,
) -> list[Unit]:
    """Return the units to be run, in their order: seed after seed, so that an early stop leaves a small benchmark.

    Args:
        settings: Of the benchmark.
        study: What is run where nothing else is said; it may limit the seeds of some arms and regimes.
        regimes: Names; None takes those of the study.
        arms: Names; None takes those of the study. In a regime where one can't run there is no unit of it.
        seeds: How many; None takes those of the study.
        first_seed: The first of them.

    Raises:
        ValueError: An unknown name, an arm that can run in none of the regimes, or seeds out of range.
    """
    count = check_count(study.seeds if seeds is None else seeds, "seeds")
    check_count(first_seed, "first_seed", minimum=0)
    chosen = [get_regime(name) for name in dict.fromkeys(study.regimes if regimes is None else regimes)]
    first_seed += _check_first(settings, chosen, first_seed)
    for arm in map(get_arm, arms or ()):
        if not any(arm.runs_in(regime) for regime in chosen):
            able = [regime.name for regime in REGIMES.values() if arm.runs_in(regime)]
            raise ValueError(
                f"Expected for {arm.name!r} a regime in which it can run ({', '.join(able)}), got "
                f"{', '.join(regime.name for regime in chosen)}"
            )
    units = []
    for regime in chosen:
        defaults = study.regime_arms.get(regime.name, (*study.arms, *(study.fewer if regime.headline else ())))
        for name in dict.fromkeys(defaults if arms is None else arms):
            if not get_arm(name).runs_in(regime):
                continue
            few = study.fewer_seeds is not None and (not regime.headline or name in study.fewer)
            most = study.regime_seeds.get(regime.name, (study.fewer_seeds or count) if few else count)
            for seed in range(first_seed, first_seed + min(count, most)):
                units += [Unit(seed, regime.name, user, name) for user in settings.users(regime, seed)]
    order = {regime.name: number for number, regime in enumerate(chosen)}
    return sorted(units, key=lambda unit: (unit.seed, order[unit.regime]))


def _check_first(settings: BenchSettings, regimes: Sequence[Regime], first_seed: int) -> int:
    """Check the settings of regimes of first answers; return what is added to the seeds, for development.

    Raises:
        ValueError: Settings that fit none of the regimes, or not all of them.
    """
    first = [regime.name for regime in regimes if regime.first]
    others = [regime.name for regime in regimes if not regime.first]
    if first and settings.vocabulary is not None:
        raise ValueError(
            f"Expected no vocabulary for regimes with vocabularies of their own ({', '.join(first)}), got "
            f"{settings.vocabulary!r}; leave it out, or take other regimes"
        )
    if settings.development and others:
        raise ValueError(
            f"Expected only regimes of first answers for development, whose other sentences are used there, got "
            f"{', '.join(others)}; see `edpbrl bench first-answers`"
        )
    for regime in regimes:
        settings.checkpoints(regime, planned=True)
    return _DEVELOPMENT_SEEDS if settings.development and first_seed < _DEVELOPMENT_SEEDS else 0


def arm_needs(units: Sequence[Unit]) -> list[Need]:
    """The optional packages of the planners of some units: it should not cost hours to learn that one is missing."""
    arms = [get_arm(name) for name in dict.fromkeys(unit.arm for unit in units)]
    return [need for arm in arms if arm.design is None for need in planner_needs(arm.asker)]


def _prepare(run: Run, todo: list[Unit]) -> str:
    """Make what the units need and the folder lacks: worlds, best scores, designs and questions, each once."""
    settings, folder, fingerprint = run.settings, run.folder.path, run.encoder.fingerprint
    run.folder.note(sizes=list(run.vocabulary.sizes))
    for regime in dict.fromkeys(get_regime(unit.regime) for unit in todo):
        prepare_world(settings, regime, run.encoder, folder, progress=run.progress)
    ceilings: dict[Path, tuple[Any, ...]] = {}
    designs: dict[Path, tuple[Any, ...]] = {}
    questions: dict[Path, tuple[Any, ...]] = {}
    for unit in todo:
        regime, arm = get_regime(unit.regime), get_arm(unit.arm)
        if not (regime.items or regime.first):
            path = ceiling_path(folder, regime, unit.user)
            ceilings.setdefault(path, (settings, regime, unit.user, folder, fingerprint))
        if arm.design is None:
            continue
        path = questions_path(folder, regime, arm.asker, unit.seed)
        questions.setdefault(path, (settings, regime, arm.asker, unit.seed, folder, fingerprint))
        solved = shared_design(arm.asker, regime, folder)
        if solved is not None:
            designs.setdefault(solved, (settings, regime, arm.asker, folder, fingerprint))
    run.make_missing("best", find_ceiling, ceilings)
    run.make_missing("designs", solve_and_save, designs)
    run.make_missing("asked", draw_and_save, questions)
    return fingerprint


BENCH = Experiment(
    kind="bench",
    command="edpbrl bench",
    settings=BenchSettings,
    plan=plan_units,
    inputs=text_inputs,
    prepare=_prepare,
    run_unit=run_unit,
    report=make_report,
    table=sorted_by("regime", "arm", "seed", "user", "episodes", "estimator"),
)
