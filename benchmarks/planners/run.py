"""The benchmark as an experiment: what units need before they run, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.kit.command import sorted_by
from benchmarks.planners import efficiency, first_answers, race
from benchmarks.planners.arms import get_arm
from benchmarks.planners.asking import draw_and_save, questions_path, shared_design, solve_and_save
from benchmarks.planners.regimes import get_regime
from benchmarks.planners.scoring import ceiling_path, find_ceiling, run_unit
from benchmarks.planners.settings import PlannerSettings, Unit, plan_units
from benchmarks.planners.worlds import prepare_world
from edpbrl_gym.experiments.framework import Experiment, Run, text_inputs
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.sections import convergence_line, provenance_section, sentences_line
from edpbrl_gym.reporting.report import Report, Section, Text, bullets
from edpbrl_gym.reporting.tables import TextTable


def _prepare(run: Run, todo: list[Unit]) -> str:
    """Make what the units need and the folder lacks: worlds, best scores, designs and questions, each once."""
    settings, folder, fingerprint = run.settings, run.folder.path, run.encoder.fingerprint
    run.folder.note(sizes=list(run.vocabulary.sizes))
    for regime in dict.fromkeys(get_regime(unit.regime) for unit in todo):
        prepare_world(settings, regime, run.encoder, folder, progress=run.progress)
    missing: dict[str, dict[Path, tuple[Any, ...]]] = {"best": {}, "designs": {}, "asked": {}}
    for unit in todo:
        regime, arm = get_regime(unit.regime), get_arm(unit.arm)
        if not (regime.items or regime.first):
            path = ceiling_path(folder, regime, unit.user)
            missing["best"].setdefault(path, (settings, regime, unit.user, folder, fingerprint))
        if arm.design is not None:
            path = questions_path(folder, regime, arm.asker, unit.seed)
            missing["asked"].setdefault(path, (settings, regime, arm.asker, unit.seed, folder, fingerprint))
            solved = shared_design(arm.asker, regime, folder)
            if solved is not None:
                missing["designs"].setdefault(solved, (settings, regime, arm.asker, folder, fingerprint))
    for name, make in (("best", find_ceiling), ("designs", solve_and_save), ("asked", draw_and_save)):
        run.make_missing(name, make, missing[name])
    return fingerprint


def make_report(results: Results) -> Report:
    """Query efficiency in prompt MDPs and ranks of all arms; first answers."""
    table, first = results.table, first_answers.FirstRuns(results.table)
    rest = table[~table["regime"].isin([regime.name for regime in first.regimes])]
    known, seeds = results.provenance, int(table["seed"].nunique())
    words = f"vocabulary of {sum(known['sizes'])} tokens ({len(known['steps'])} steps)"
    setting = f"{words if len(rest) else ' and '.join(first.words)}, encoder {known['encoder']}, {seeds} seed(s)"
    sections: list[Section] = first_answers.sections(first)
    if len(rest):
        sections += [efficiency.marks_table(efficiency.Efficiency(rest)), *race.sections(rest)]
    runs = table[["regime", "arm", "seed", "user"]].drop_duplicates()
    opening = (
        f"{len(runs)} runs of {table['arm'].nunique()} arms in {table['regime'].nunique()} regimes; {setting}. Every "
        "number below is computed from results.parquet."
    )
    return Report(
        "Planners, designs and estimators: a benchmark",
        [Text([opening]), *sections, _how(results, first.words), provenance_section(results)],
        headline=[one for one in sections if isinstance(one, TextTable) and one.rows][:3],
    )


def _how(results: Results, words: Sequence[str]) -> Text:
    config, table = results.config, results.table
    blocks = table[["regime", "seed", "user"]].drop_duplicates()["regime"].value_counts()
    lines = [
        f"Users: {sentences_line(config['sentences'])}. Items on the sphere and in clusters have drawn ones.",
        *(f"Users of first answers about {name}: {sentences_line(config['first_sentences'][name])}." for name in words),
        f"Runs: {'; '.join(f'{get_regime(name).title}: {count}' for name, count in blocks.items())}.",
        convergence_line(table["converged"]),
        f"Share of skipped questions: {float(table['skipped'].mean()):.3f} over all rows.",
    ]
    return Text(bullets(lines), "How it was done", level=1)


PLANNERS = Experiment(
    kind="planners",
    command="python -m benchmarks.planners",
    settings=PlannerSettings,
    plan=plan_units,
    inputs=text_inputs,
    prepare=_prepare,
    run_unit=run_unit,
    report=make_report,
    table=sorted_by("regime", "arm", "seed", "user", "episodes", "estimator"),
)
