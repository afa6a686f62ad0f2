"""``edpbrl bench``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro
from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym.cli.arguments import Workers
from edpbrl_gym.cli.console import quiet_libraries, show_report, track
from edpbrl_gym.cli.errors import bad_arguments
from edpbrl_gym.experiments.bench.settings import STUDY_SETTINGS, BenchSettings

__all__ = ["Bench", "run"]

Study = Literal["efficiency", "comparison", "first-answers"]


@dataclass(frozen=True)
class Bench:
    """Compare planners, designs and estimators with simulated users: questions needed, ranks, times."""

    study: tyro.conf.Suppress[Study]
    """Preset of all that is not set; a subcommand each."""
    settings: OmitArgPrefixes[BenchSettings] = field(default_factory=BenchSettings)
    regime: tuple[str, ...] = ()
    """How the simulated user answers (argmax, or sampled at a scale) and about what (K prompts or items of a pool):
    argmax, scale-20, pairs-argmax, items-d10-K4, ... (none given: all of the study)."""
    arm: tuple[str, ...] = ()
    """Who asks: PLANNER or DESIGN[,option=value...][+best-worst|+ranking|+partial], such as adaptive, ed-pbrl,
    random+ranking, bald,prior=vocabulary (none given: all of the study)."""
    seeds: int | None = None
    """Number of seeds (None: 20, in first-answers 3, quick: 1 to 4); in efficiency, side regimes and ablations take at
    most 5."""
    first_seed: int = 0
    """First seed; constants of the library were chosen on seeds from 1000 on, and --development adds 1000."""
    quick: bool = False
    """A small version where you do not set anything: efficiency about 6 minutes on 2 cores (2 regimes, 2 arms and 2
    seeds), comparison about 2 minutes (3 regimes, 6 arms and 4 seeds), first-answers about 3 minutes (5 regimes, 2 arms
    and 1 seed of 4 users)."""
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)
    out: Path | None = None
    """Run folder (None: runs/STUDY, with -quick for the small one). A stopped run goes on; arms may be added."""
    report: Path | None = None
    """Run nothing: rewrite results, figures and REPORT.md of this run folder from what is finished."""
    page: Path | None = None
    """Also write the report as this Markdown file, with its figures beside it."""

    @classmethod
    def preset(cls, study: Study, *, quick: bool) -> Bench:
        """What the defaults are with the study and --quick."""
        return cls(study, BenchSettings(**STUDY_SETTINGS[_name(study, quick)]))

    def needs(self) -> list[Need]:
        """The optional packages that these options need; those of planners are asked for when the units are known."""
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs

        encoder = [] if self.report is not None else encoder_needs(self.settings.encoder)
        return [*encoder, *experiment_needs(f"bench {self.study}"), *self.workers.needs()]


def _name(study: Study, quick: bool) -> str:
    return f"{study}-quick" if quick else study


def run(options: Bench) -> None:
    """Run or resume the benchmark, or rewrite its report; print the main tables and where the files are."""
    from edpbrl_gym.experiments.bench.run import BENCH, arm_needs, plan_units
    from edpbrl_gym.experiments.bench.studies import STUDIES
    from edpbrl_gym.experiments.framework import gather, run_experiment

    start = time.monotonic()
    quiet_libraries()
    name = _name(options.study, options.quick)
    out = options.report or options.out or Path("runs") / name
    if options.report is not None:
        results = gather(BENCH, out)
    else:
        with bad_arguments():
            units = plan_units(
                options.settings,
                study=STUDIES[name],
                regimes=options.regime or None,
                arms=options.arm or None,
                seeds=options.seeds,
                first_seed=options.first_seed,
            )
        check_installed(*arm_needs(units))
        with options.workers.executor() as executor:
            results = run_experiment(
                BENCH, options.settings, out, units=units, jobs=executor, track=track, progress=True
            )
    show_report(BENCH.report(results), out, options.page, start)
