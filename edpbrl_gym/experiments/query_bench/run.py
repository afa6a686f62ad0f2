"""The benchmark of questions as an experiment: which units there are, and what they need before they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edpbrl_gym._validation import check_count
from edpbrl_gym.experiments.framework import Experiment, Run, sorted_by, text_inputs
from edpbrl_gym.experiments.query_bench.arms import ABLATION_ARMS, HEADLINE_ARMS, SIDE_ARMS, get_arm
from edpbrl_gym.experiments.query_bench.asking import (
    check_available,
    draw_and_save,
    questions_path,
    shared_design,
    solve_and_save,
)
from edpbrl_gym.experiments.query_bench.measuring import ceiling_path, find_ceiling
from edpbrl_gym.experiments.query_bench.report import make_report
from edpbrl_gym.experiments.query_bench.settings import REGIMES, BenchSettings, Unit, get_regime
from edpbrl_gym.experiments.query_bench.unit import run_unit
from edpbrl_gym.experiments.query_bench.worlds import load_world, prepare_world

__all__ = ["FEWER_SEEDS", "QUERIES", "plan_units"]

# seeds of side regimes and ablation arms at most; 5 seeds of 2 sentences see each of the ten sentences once
FEWER_SEEDS = 5


def plan_units(
    settings: BenchSettings, *, regimes: Sequence[str] | None = None, arms: Sequence[str] | None = None, seeds: int = 20
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
        path = ceiling_path(folder, regime.vocabulary, unit.user)
        ceilings.setdefault(path, (settings, regime, unit.user, folder, fingerprint))
        if arm.adaptive:
            continue
        path = questions_path(folder, regime.world, arm.rule, unit.seed)
        questions.setdefault(path, (settings, regime, arm.rule, unit.seed, folder, fingerprint))
        done = shared_design(arm.rule, regime, folder)
        if done is not None:
            designs.setdefault(done, (load_world, settings, regime, arm.rule, folder, fingerprint))
    run.make_missing("best", find_ceiling, ceilings)
    run.make_missing("designs", solve_and_save, designs)
    run.make_missing("asked", draw_and_save, questions)
    return fingerprint


QUERIES = Experiment(
    kind="queries",
    command="edpbrl bench queries",
    settings=BenchSettings,
    plan=plan_units,
    inputs=text_inputs,
    prepare=_prepare,
    run_unit=run_unit,
    report=make_report,
    table=sorted_by("regime", "arm", "seed", "sentence", "episodes"),
)
