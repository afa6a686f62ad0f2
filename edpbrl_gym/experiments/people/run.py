"""The replay as an experiment: its units, the data that they share, and a unit's work."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run, sorted_by
from edpbrl_gym.experiments.people.data import People
from edpbrl_gym.experiments.people.estimators import (
    DEFAULTS,
    HIERARCHICAL_BAYES,
    MINIMUM_PEOPLE,
    POPULATIONS,
    make_estimator,
)
from edpbrl_gym.experiments.people.hierarchical_bayes import check_r, replay_with_r
from edpbrl_gym.experiments.people.loading import load_all
from edpbrl_gym.experiments.people.protocol import make_fold
from edpbrl_gym.experiments.people.replay import replay
from edpbrl_gym.experiments.people.report import make_report
from edpbrl_gym.experiments.people.settings import PeopleSettings, PeopleUnit, check_estimators
from edpbrl_gym.features import TextEncoder, load_encoder

__all__ = ["PEOPLE", "check_data", "load_data", "plan_units"]


def load_data(settings: PeopleSettings) -> list[People]:
    """The data sets of the settings.

    Raises:
        ValueError, FileNotFoundError, ModuleNotFoundError: As for ``loading.load_all``.
    """

    def encoder() -> TextEncoder:
        return load_encoder(settings.encoder)

    return load_all(settings.data, encoder)


def plan_units(
    settings: PeopleSettings, data: Sequence[People] | None = None, estimators: tuple[str, ...] = DEFAULTS
) -> list[PeopleUnit]:
    """The units in their order: fold after fold, so that an early stop leaves a small replay of all estimators.

    Args:
        settings: Of the replay.
        data: The data sets; None: loaded.
        estimators: Names.

    Raises:
        ValueError: An unknown estimator, or data of too few people or questions.
        ModuleNotFoundError: Hierarchical Bayes without R.
    """
    names = check_estimators(estimators)
    found = load_data(settings) if data is None else data
    check_data(settings, found, names)
    return [
        PeopleUnit(people.name, estimator, fold)
        for fold in range(settings.folds)
        for people in found
        for estimator in names
    ]


def check_data(settings: PeopleSettings, data: Sequence[People], estimators: Sequence[str]) -> None:
    """Raise before any work where a fold has nobody to replay, or an estimator can't run.

    Raises:
        ValueError: Too few people or questions, or questions that hierarchical Bayes can't take.
        ModuleNotFoundError: Hierarchical Bayes without R.
    """
    if HIERARCHICAL_BAYES in estimators:
        check_r()
        for people in data:
            sizes = {int(size) for person in people.people for size in person.sizes}
            if len(sizes) > 1:
                raise ValueError(
                    f"Expected questions with the same number of options for {HIERARCHICAL_BAYES}, got "
                    f"{sorted(sizes)} in {people.source}; leave the estimator out for these data"
                )
    for people in data:
        for number in range(settings.folds):
            known = len(_fold(settings, people, number).known)
            if known < MINIMUM_PEOPLE and POPULATIONS.keys() & set(estimators):
                raise ValueError(
                    f"Expected at least {MINIMUM_PEOPLE} other people for {', '.join(POPULATIONS)}, got {known} in the "
                    f"other folds of {people.source}; give more --folds or other estimators (--estimator)"
                )


def _fold(settings: PeopleSettings, people: People, number: int) -> Any:
    return make_fold(people, number, folds=settings.folds, most=settings.people_per_fold, held_out=settings.held_out)


@dataclasses.dataclass(frozen=True, eq=False)
class _PeopleInputs(Inputs):
    """The data sets, in their own units."""

    data: tuple[People, ...] = ()


def _inputs(settings: PeopleSettings) -> _PeopleInputs:
    data = tuple(load_data(settings))
    facts = [_facts(settings, people) for people in data]
    return _PeopleInputs(
        config={"data": {people.name: people.fingerprint for people in data}}, notes={"data": facts}, data=data
    )


def _facts(settings: PeopleSettings, people: People) -> dict[str, Any]:
    folds = [_fold(settings, people, number) for number in range(settings.folds)]
    questions = [len(person) for person in people.people]
    return {
        "name": people.name,
        "source": Path(people.source).name,  # the folder is the reader's own
        "people": len(people.people),
        "replayed": sum(len(fold.new) for fold in folds),
        "left_out": sum(fold.left_out for fold in folds),
        "questions": [min(questions), max(questions)],
        "options": people.num_options,
        "attributes": people.dimension,
    }


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
    fold = _fold(settings, people, unit.fold)
    facts = {"data": unit.data, "estimator": unit.estimator, "fold": unit.fold}
    with one_blas_thread():
        if unit.estimator == HIERARCHICAL_BAYES:
            rows = replay_with_r(fold, settings.answers, draws=settings.draws)
            return [{**facts, "rule": "random", "seconds_population": 0.0, **row} for row in rows]
        start = time.perf_counter()
        estimator = make_estimator(unit.estimator, fold.known, people.dimension)
        seconds = time.perf_counter() - start
        return [
            {**facts, "rule": rule, "seconds_population": seconds, "person": person.place, **row}
            for rule in unit.rules(settings)
            for person in fold.new
            for row in replay(estimator, rule, person, settings.answers)
        ]


PEOPLE = Experiment(
    kind="people",
    command="edpbrl bench people",
    settings=PeopleSettings,
    plan=plan_units,
    inputs=_inputs,
    prepare=_prepare,
    run_unit=_run_unit,
    report=make_report,
    table=sorted_by("data", "estimator", "rule", "fold", "person", "answers", "question"),
    units="folds",
)
