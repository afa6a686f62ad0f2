"""The replay as an experiment: its settings and units, the sets that they share, and a unit's work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from benchmarks.kit.command import check_names, sorted_by
from benchmarks.pictures.data import Group, Ratings, Shown, find_sets, load_ratings
from benchmarks.pictures.estimators import ESTIMATORS
from benchmarks.pictures.planners import PLANNERS
from benchmarks.pictures.replay import ANSWERS, FORMS, replay
from benchmarks.pictures.report import make_report
from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run


@dataclass(frozen=True)
class PicturesSettings:
    """What decides the numbers, and which units there are: of every set with all of the features that it has."""

    # folders with NAME-ratings.parquet, or single such files
    data: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="DATA ...")] = ()
    # PLANNER/ESTIMATOR each; a wrong one is answered with all names
    contender: tuple[str, ...] = ("random/ridge1", "random/ridge-fit", "adaptive/ridge1", "adaptive/ridge-fit")
    form: tuple[str, ...] = ("best4",)  # rate, like, best2, best4, best9, best-worst4, rank4
    features: tuple[Shown, ...] = ("picture",)
    group: Group = "development"  # whose people are asked: constants of the library may be chosen on development people
    answers: tuple[int, ...] = ANSWERS  # of a new person, after which the held-out items are predicted
    repeats: int = 1  # of each person, with other random questions; a person counts once, by the mean
    people_per_fold: int = 40  # most people of a fold that are asked
    folds: int = 5  # over people; what others chose is learnt from all other folds
    components: int = 20  # principal components of the features

    def __post_init__(self) -> None:
        for count in self.answers:
            check_count(count, "answers", minimum=0)
        object.__setattr__(self, "answers", tuple(sorted(set(self.answers))))
        for name, fewest in (("repeats", 1), ("people_per_fold", 1), ("folds", 2), ("components", 1)):
            check_count(getattr(self, name), name, minimum=fewest)
        object.__setattr__(self, "form", check_names(self.form, "form", tuple(FORMS)))
        for contender in self.contender:
            planner, _, estimator = contender.partition("/")
            check_choice_of(planner, "planner of a contender PLANNER/ESTIMATOR", tuple(PLANNERS))
            check_choice_of(estimator, "estimator of a contender PLANNER/ESTIMATOR", tuple(ESTIMATORS))

    def as_config(self) -> dict[str, Any]:
        """JSON-able; the data go by their fingerprints, and units may be added."""
        units = ("data", "contender", "form", "features")
        return {key: value for key, value in asdict(self).items() if key not in units}


@dataclass(frozen=True)
class PicturesUnit:
    """The new people of one fold of one set, asked in one form by one contender."""

    data: str
    features: Shown
    form: str
    contender: str
    fold: int

    @property
    def part(self) -> str:
        """Name of its part file."""
        return f"{self.data}__{self.features}__{self.form}__{self.contender.replace('/', '--')}__fold{self.fold}"


def plan_units(settings: PicturesSettings) -> list[PicturesUnit]:
    """The units, fold after fold, so that an early stop leaves a small replay of all contenders.

    Raises:
        ValueError: A set has none of the features.
    """
    sets = [(one, shown) for one in find_sets(settings.data) for shown in settings.features if shown in one.shown]
    for lacking in set(find_sets(settings.data)) - {one for one, _ in sets}:
        raise ValueError(f"Expected features of {lacking.name} among {lacking.shown}, got {settings.features}")
    return [
        PicturesUnit(one.name, shown, form, contender, fold)
        for fold in range(settings.folds)
        for one, shown in dict.fromkeys(sets)
        for form in settings.form
        for contender in dict.fromkeys(settings.contender)
    ]


def _inputs(settings: PicturesSettings) -> Inputs:
    return Inputs(config={"data": {one.name: one.fingerprint for one in find_sets(settings.data)}})


def _prepare(run: Run, todo: list[PicturesUnit]) -> dict[tuple[str, str], Ratings]:
    """The sets of the units that the folder lacks."""
    sources = {one.name: one for one in find_sets(run.settings.data)}
    wanted = dict.fromkeys((unit.data, unit.features) for unit in todo)
    return {key: load_ratings(sources[key[0]], key[1], components=run.settings.components) for key in wanted}


def _run_unit(
    settings: PicturesSettings, unit: PicturesUnit, folder: Path, prepared: Mapping[tuple[str, str], Ratings]
) -> list[dict[str, Any]]:
    """Ask the new people of a fold."""
    ratings = prepared[unit.data, unit.features]
    new, known = ratings.fold(unit.fold, folds=settings.folds, group=settings.group, most=settings.people_per_fold)
    planner, estimator = unit.contender.split("/")
    rows = replay(
        ratings,
        new,
        PLANNERS[planner],
        ESTIMATORS[estimator](ratings, known),
        FORMS[unit.form],
        answers=settings.answers,
        repeats=settings.repeats,
    )
    facts = {name: getattr(unit, name) for name in ("data", "features", "form", "contender", "fold")}
    return [facts | row for row in rows]


PICTURES = Experiment(
    kind="pictures",
    command="python -m benchmarks.pictures",
    settings=PicturesSettings,
    plan=plan_units,
    inputs=_inputs,
    prepare=_prepare,
    run_unit=_run_unit,
    report=make_report,
    table=sorted_by("data", "features", "form", "contender", "person", "repeat", "answers"),
    units="folds",
)
