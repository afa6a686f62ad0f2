"""``edpbrl bench queries`` and ``edpbrl bench race``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from edpbrl_gym.cli.console import output, quiet_libraries, shown, track
from edpbrl_gym.cli.errors import UsageError, bad_arguments

if TYPE_CHECKING:
    from edpbrl_gym.experiments.framework import Experiment
    from edpbrl_gym.experiments.kit.report import Report

__all__ = ["Bench", "run"]


@dataclass(frozen=True)
class Bench:
    """Compare ways of asking and estimating with simulated users: questions needed, or a race of all rules."""

    benchmark: tyro.conf.Positional[Literal["queries", "race"]]
    """queries: learning curves, questions needed, wins and losses against Random, what each piece buys. race: ranks of
    our planner and of every rule of the literature, and the time of their questions."""
    quick: bool = False
    """A small version (queries: about 5 minutes on 2 cores, 2 regimes, 3 arms and 2 seeds; race: about 2 minutes, 3
    regimes, 6 contenders and 4 seeds) where you do not set them."""
    regime: tuple[str, ...] = ()
    """Who answers what, such as argmax, scale-20, pairs-argmax (queries) or items-d10-K4, mdp-truncated-K4 (race; none
    given: all)."""
    arm: tuple[str, ...] = ()
    """queries: rule+estimator[+answers], such as random+ours, tuples+ours+ranking, adaptive. race: a contender, such as
    ours, paper-text, bald, or bald@ours for a rule with our posterior (none given: all of the study)."""
    seeds: int | None = None
    """Seeds (None: 20, quick: 2 or 4); side regimes and ablations of queries take at most 5."""
    first_seed: int = 0
    """First seed of race; choices are made on seeds from 1000 on."""
    full: bool = False
    """queries: every seed with all ten sentences instead of two."""
    episodes: tuple[int, ...] | None = None
    """The T at which estimates are judged; questions are asked up to the largest (None: queries 1 to 60, race 1 to
    10)."""
    questions: tuple[int, ...] | None = None
    """The same for the items of race, in questions (None: 5 to 60)."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, precomputed:FILE, package.module:Class."""
    jobs: int | None = None
    """Processes (None: one for each core); the results do not depend on it, the times do."""
    out: Path | None = None
    """Run folder (None: runs/queries or runs/race, with -quick). A stopped run goes on; arms may be added later."""
    report: Path | None = None
    """Run nothing: rewrite results, figures and REPORT.md of this run folder from what is finished."""
    page: Path | None = None
    """Also write the report as this Markdown file, with its figures beside it."""


def run(options: Bench) -> None:
    """Run or resume the benchmark, or rewrite its report; print the main tables and where the files are."""
    begun = time.monotonic()
    quiet_libraries()
    report, files = (_race if options.benchmark == "race" else _queries)(options)
    console = output()
    for table in report.headline:
        console.print()
        console.print(table.rich())
    console.print(f"\nDone in {time.monotonic() - begun:.0f} s. Report: {shown(files[-1])}", soft_wrap=True)
    for path in files[:-1]:
        if path.suffix == ".png":
            console.print(f"Figure: {shown(path)}", soft_wrap=True)


def _again(options: Bench, experiment: Experiment) -> tuple[Report, list[Path]]:
    """The report of the units that a folder has."""
    from edpbrl_gym.experiments.framework import gather

    assert options.report is not None
    report = experiment.report(gather(experiment, options.report))
    return report, report.write(options.report, page=options.page)


def _run(options: Bench, experiment: Experiment, settings: Any, units: Sequence[Any]) -> tuple[Report, list[Path]]:
    from edpbrl_gym.experiments.framework import run_experiment

    out = options.out or Path("runs") / (options.benchmark + ("-quick" if options.quick else ""))
    results = run_experiment(experiment, settings, out, units=units, jobs=options.jobs, track=track, progress=True)
    report = experiment.report(results)
    return report, report.write(out, page=options.page)


def _check(options: Bench, *foreign: str) -> None:
    """Refuse what no benchmark takes, and options (name: not given) that belong to the other one."""
    if options.jobs is not None and options.jobs < 1:
        raise UsageError(f"Expected --jobs >= 1, got {options.jobs}")
    for name in foreign:
        if getattr(options, name) not in (None, False, 0):
            raise UsageError(f"Expected no --{name.replace('_', '-')} with `bench {options.benchmark}`; leave it out")


# -- queries ---------------------------------------------------------------------------------------------------------


def _queries(options: Bench) -> tuple[Report, list[Path]]:
    from edpbrl_gym.experiments.query_bench.run import QUERIES, plan_units

    if options.report is not None:
        return _again(options, QUERIES)
    with bad_arguments():
        settings, plan = _query_settings(options)
        _check(options, "questions", "first_seed")
        units = plan_units(settings, **plan)
    return _run(options, QUERIES, settings, units)


def _query_settings(options: Bench) -> tuple[Any, dict[str, Any]]:
    """Settings of the units, and which units there are."""
    from edpbrl_gym.experiments.query_bench.settings import QUICK, SENTENCES, BenchSettings

    quick = QUICK if options.quick else {}
    changes: dict[str, Any] = {
        name: quick[name] for name in ("prompts", "pairs", "held_out_episodes", "prompt_episodes") if name in quick
    }
    if options.episodes is not None:
        changes["episodes"] = options.episodes
    if options.full:
        changes["sentences_per_seed"] = len(SENTENCES)
    settings = BenchSettings(
        vocabulary=None if options.vocabulary is None else str(options.vocabulary), encoder=options.encoder, **changes
    )
    return settings, _plan(options, quick)


def _plan(options: Bench, quick: dict[str, Any]) -> dict[str, Any]:
    """Which units there are: what the user says counts, also in the quick version."""
    return {
        "regimes": options.regime or quick.get("regimes"),
        "arms": options.arm or quick.get("arms"),
        "seeds": quick.get("seeds", 20) if options.seeds is None else options.seeds,
    }


# -- race ------------------------------------------------------------------------------------------------------------


def _race(options: Bench) -> tuple[Report, list[Path]]:
    from edpbrl_gym.experiments.race.run import RACE, check_contenders, plan_units

    if options.report is not None:
        return _again(options, RACE)
    with bad_arguments():
        settings, plan = _race_settings(options)
        _check(options, "full")
        units = plan_units(settings, **plan)
    check_contenders(units)
    return _run(options, RACE, settings, units)


def _race_settings(options: Bench) -> tuple[Any, dict[str, Any]]:
    """Settings of the units, and which units there are."""
    from edpbrl_gym.experiments.race.settings import QUICK, RaceSettings

    quick = QUICK if options.quick else {}
    changes: dict[str, Any] = {
        name: quick[name] for name in ("questions", "pairs", "held_out_questions") if name in quick
    }
    for name in ("episodes", "questions"):
        if getattr(options, name) is not None:
            changes[name] = getattr(options, name)
    settings = RaceSettings(
        vocabulary=None if options.vocabulary is None else str(options.vocabulary), encoder=options.encoder, **changes
    )
    return settings, _plan(options, quick) | {"first_seed": options.first_seed}
