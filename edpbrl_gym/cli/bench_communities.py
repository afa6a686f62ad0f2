"""``edpbrl bench communities``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import Workers
from edpbrl_gym.cli.console import quiet_libraries, show_report, track
from edpbrl_gym.cli.errors import bad_arguments
from edpbrl_gym.experiments.communities.settings import (
    DEFAULT_REGIMES,
    DEFAULTS,
    CommunitySettings,
)

__all__ = ["BenchCommunities", "run"]

_QUICK = CommunitySettings(
    people=60, new=3, answers=(0, 2, 10, 20), shown=600, prompts=300, pairs=2000, pool=600, held_out=20, candidates=60
)


@dataclass(frozen=True)
class BenchCommunities:
    """Simulated communities: what other people's answers say about new people, and the methods of others."""

    settings: OmitArgPrefixes[CommunitySettings] = field(default_factory=CommunitySettings)
    regime: tuple[str, ...] = DEFAULT_REGIMES
    """VOCABULARY-MODE: images or interiors; argmax, scale-50, scale-20 or scale-5."""
    estimator: tuple[str, ...] = DEFAULTS
    """alone, population-factors, population-types, pref, pal, meta-po."""
    quick: bool = False
    """A small version where you do not set anything, about 2 minutes on 1 core."""
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)
    out: Path | None = None
    """Run folder (None: runs/communities, with -quick for the small one). A stopped run goes on; estimators and
    regimes may be added."""
    report: Path | None = None
    """Run nothing: rewrite results, figures and REPORT.md of this run folder from what is finished."""
    page: Path | None = None
    """Also write the report as this Markdown file, with its figures beside it."""

    @classmethod
    def preset(cls, *, quick: bool) -> BenchCommunities:
        """What the defaults are with --quick."""
        return cls(_QUICK, regime=DEFAULT_REGIMES[-1:]) if quick else cls()

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs

        encoder = [] if self.report is not None else encoder_needs(self.settings.encoder)
        return [*encoder, *experiment_needs("bench communities"), *self.workers.needs()]


def run(options: BenchCommunities) -> None:
    """Run or resume the study, or rewrite its report; print the main tables and where the files are."""
    from edpbrl_gym.experiments.communities.run import COMMUNITIES
    from edpbrl_gym.experiments.communities.settings import plan_units
    from edpbrl_gym.experiments.framework import gather, run_experiment

    start = time.monotonic()
    quiet_libraries()
    out = options.report or options.out or Path("runs") / f"communities{'-quick' if options.quick else ''}"
    if options.report is not None:
        results = gather(COMMUNITIES, out)
    else:
        with bad_arguments():
            units = plan_units(options.settings, options.regime, options.estimator)
        with options.workers.executor() as executor:
            results = run_experiment(
                COMMUNITIES, options.settings, out, units=units, jobs=executor, track=track, progress=True
            )
    show_report(COMMUNITIES.report(results), out, options.page, start)
