"""The replay as an experiment: its settings and units, the data that they share, and a unit's work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from benchmarks.kit.command import check_names, sorted_by
from benchmarks.people.data import Fold, Group, People, load_people, make_fold
from benchmarks.people.estimators import ESTIMATORS, POPULATIONS, make_estimator
from benchmarks.people.replay import RULES, replay
from benchmarks.people.report import make_report
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym._validation import check_count
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run

DEFAULTS = ("ridge100", "ridge1", "alone", "population-gaussian")
"""Those that run unless others are named: factors take many times as long."""

_FEWEST = 20  # other people of whom the library makes a population


@dataclass(frozen=True)
class PeopleSettings:
    """What decides the numbers; which estimators there are only decides which units there are."""

    # what people chose: long tables (.parquet, .csv or .tsv with person, question, option, chosen and attributes)
    data: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="DATA ...")] = ()
    rule: tuple[str, ...] = ("random", "adaptive")  # who chooses among a person's own remaining questions
    answers: tuple[int, ...] = (0, 1, 2, 4, 6, 8, 12)  # of a new person, after which the held-out ones are predicted
    people_per_fold: int = 70  # most people of a fold that are replayed
    held_out: int = 4  # questions of each new person
    folds: int = 5  # over people; a population is learnt from all others
    group: Group = "all"  # whose people are replayed: constants of the library were set on development people

    def __post_init__(self) -> None:
        for count in self.answers:
            check_count(count, "answers", minimum=0)
        object.__setattr__(self, "answers", tuple(sorted(set(self.answers))))
        object.__setattr__(self, "rule", check_names(self.rule, "rule", tuple(RULES)))
        for name, fewest in (("people_per_fold", 1), ("held_out", 1), ("folds", 2)):
            check_count(getattr(self, name), name, minimum=fewest)

    def fold(self, people: People, number: int) -> Fold:
        """One of the folds."""
        return make_fold(
            people, number, folds=self.folds, most=self.people_per_fold, held_out=self.held_out, group=self.group
        )

    def as_config(self) -> dict[str, Any]:
        """JSON-able; the data go by their fingerprints, which are added when they are loaded."""
        config = asdict(self)
        del config["data"]
        return config


@dataclass(frozen=True)
class PeopleUnit:
    """The new people of one fold of one data set, replayed with one estimator by all its rules."""

    data: str
    estimator: str
    fold: int

    @property
    def part(self) -> str:
        """Name of its part file."""
        return f"{self.data}__{self.estimator}__fold{self.fold}"


def plan_units(settings: PeopleSettings, estimators: Sequence[str] = DEFAULTS) -> list[PeopleUnit]:
    """The units in their order: fold after fold, so that an early stop leaves a small replay of all estimators.

    Raises:
        ValueError: An unknown estimator, or data of too few people or questions.
    """
    names = check_names(estimators, "estimator", tuple(ESTIMATORS))
    data = load_people(settings.data)
    for people in data:
        for number in range(settings.folds):
            known = len(settings.fold(people, number).known)
            if known < _FEWEST and POPULATIONS.keys() & set(names):
                raise ValueError(
                    f"Expected at least {_FEWEST} other people for {', '.join(POPULATIONS)}, got {known} in the "
                    f"other folds of {people.source}; give more --folds or other estimators (--estimator)"
                )
    return [PeopleUnit(one.name, name, fold) for fold in range(settings.folds) for one in data for name in names]


@dataclass(frozen=True, eq=False)
class _PeopleInputs(Inputs):
    """The data sets, in their own units."""

    data: tuple[People, ...] = ()


def _inputs(settings: PeopleSettings) -> _PeopleInputs:
    data = tuple(load_people(settings.data))
    return _PeopleInputs(config={"data": {people.name: people.fingerprint for people in data}}, data=data)


def _prepare(run: Run, todo: list[PeopleUnit]) -> dict[str, People]:
    """The data of the units that the folder lacks, standardised."""
    assert isinstance(run.inputs, _PeopleInputs)
    wanted = {unit.data for unit in todo}
    return {people.name: people.standardised() for people in run.inputs.data if people.name in wanted}


def _run_unit(
    settings: PeopleSettings, unit: PeopleUnit, folder: Path, prepared: Mapping[str, People]
) -> list[dict[str, Any]]:
    """Replay the new people of a fold with one estimator by all its rules."""
    people = prepared[unit.data]
    fold = settings.fold(people, unit.fold)
    facts = {"data": unit.data, "estimator": unit.estimator, "fold": unit.fold}
    with one_blas_thread():
        estimator = make_estimator(unit.estimator, fold.known, len(people.attributes))
        return [
            {**facts, "rule": rule, "person": person.place, **row}
            for rule in settings.rule
            for person in fold.new
            for row in replay(estimator, rule, person, settings.answers)
        ]


PEOPLE = Experiment(
    kind="people",
    command="python -m benchmarks.people",
    settings=PeopleSettings,
    plan=plan_units,
    inputs=_inputs,
    prepare=_prepare,
    run_unit=_run_unit,
    report=make_report,
    table=sorted_by("data", "estimator", "rule", "fold", "person", "answers", "question"),
    units="folds",
)
