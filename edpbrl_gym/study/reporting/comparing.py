"""The arms of a study compared: by the test questions, care, questions, time and the last question."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym.study.export_tables import StudyTables, seconds_of
from edpbrl_gym.study.reporting.statistics import (
    Counted,
    Measured,
    difference_of_means,
    mean_of,
    taking_part,
    tested_answers,
    wilson,
)

__all__ = ["MEASURES", "ArmCurve", "Compared", "compare_arms", "preferred"]

MEASURES = {
    "hit": "test answers predicted",
    "log": "log-likelihood of a test answer",
    "repeats": "repeats answered alike",
    "answers": "answers that count",
    "seconds": "seconds for an answer",
    "minutes": "minutes from consent to the last answer",
}
"""What arms are compared by, each the mean over participants of a participant's own mean (of seconds: median)."""


@dataclass(frozen=True)
class ArmCurve:
    """How well an arm predicts the test answers after some answers."""

    after: tuple[int, ...]  # numbers of answers, ascending
    hit: tuple[Measured, ...]  # share of test answers predicted
    log: tuple[Measured, ...]  # log-likelihood of a test answer


@dataclass(frozen=True)
class Compared:
    """The arms compared, on participants who finished.

    Attributes:
        differences: Measure -> arm -> its mean minus that of the first arm; without the first arm.
        styles: Share of the participants of each arm who preferred the learnt style at the end, of those who preferred
            one; with Wilson's interval.
    """

    arms: tuple[str, ...]  # names of the arms
    finished: dict[str, int]  # participants of each arm who finished
    chance: float  # share of test answers predicted by chance, 1 / K; the log-likelihood of chance is -log K
    values: dict[str, dict[str, Measured]]  # measure -> arm -> mean with its interval
    differences: dict[str, dict[str, Measured]]
    curves: dict[str, ArmCurve]  # prediction of the test answers after some answers, by arm
    styles: dict[str, Measured]


def compare_arms(tables: StudyTables, counted: Counted) -> Compared:
    """Compare the arms."""
    people = {name: row for name, row in taking_part(tables).items() if row["status"] == "finished"}
    scores = _scores(tables, people)
    columns = _columns(tables, people, scores)
    of_arm = {arm: [name for name, row in people.items() if row["arm"] == arm] for arm in counted.arms}

    def values(measure: str, arm: str) -> list[float]:
        return [columns[measure][name] for name in of_arm[arm] if name in columns[measure]]

    first = counted.arms[0]
    return Compared(
        arms=counted.arms,
        finished={arm: len(names) for arm, names in of_arm.items()},
        chance=1.0 / tables.study["options"],
        values={measure: {arm: mean_of(values(measure, arm)) for arm in counted.arms} for measure in MEASURES},
        differences={
            measure: {
                arm: difference_of_means(values(measure, arm), values(measure, first)) for arm in counted.arms[1:]
            }
            for measure in MEASURES
        },
        curves={arm: _curve(scores, of_arm[arm]) for arm in counted.arms},
        styles={arm: preferred(counted.styles[arm]) for arm in counted.arms},
    )


def preferred(styles: Mapping[str, int]) -> Measured:
    """The share that preferred the learnt style, of those who preferred one, with Wilson's interval."""
    learnt, total = styles["learnt"], styles["learnt"] + styles["random"]
    return Measured(learnt / total if total else math.nan, *wilson(learnt, total), total)


@dataclass(frozen=True)
class _Score:
    """A person's mean over the test questions: hits and log-likelihoods, by the number of answers behind them."""

    hit: dict[int, float]
    log: dict[int, float]
    last: int


def _scores(tables: StudyTables, people: Mapping[str, Any]) -> dict[str, _Score]:
    """How well the test answers of each person were predicted; without people of whom none was."""
    hits: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    logs: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    last: dict[str, int] = {}
    for one in tested_answers(tables):
        if one.participant not in people:
            continue
        hits[one.participant][one.after].append(one.hit)
        logs[one.participant][one.after].append(one.log)
        if one.is_last:
            last[one.participant] = one.after
    return {
        name: _Score(
            {after: float(np.mean(found)) for after, found in hits[name].items()},
            {after: float(np.mean(found)) for after, found in logs[name].items()},
            last[name],
        )
        for name in hits
    }


def _columns(
    tables: StudyTables, people: Mapping[str, Any], scores: Mapping[str, _Score]
) -> dict[str, dict[str, float]]:
    """Measure -> person -> value; a person without one is left out."""
    times: dict[str, list[float]] = defaultdict(list)
    for row in tables.answers:
        seconds = seconds_of(row) if row["counts"] and row["participant"] in people else None
        if seconds is not None:
            times[row["participant"]].append(seconds)
    return {
        "hit": {name: score.hit[score.last] for name, score in scores.items()},
        "log": {name: score.log[score.last] for name, score in scores.items()},
        "repeats": {
            name: row["repeats_agreed"] / row["repeats_asked"] for name, row in people.items() if row["repeats_asked"]
        },
        "answers": {name: float(row["answered"]) for name, row in people.items()},
        "seconds": {name: float(np.median(found)) for name, found in times.items()},
        "minutes": {name: row["minutes"] for name, row in people.items() if row["minutes"] is not None},
    }


def _curve(scores: Mapping[str, _Score], names: Sequence[str]) -> ArmCurve:
    """Predictions after the numbers of answers that at least half of the people have."""
    known = [scores[name] for name in names if name in scores]
    moments = sorted({after for score in known for after in score.hit})
    kept = [after for after in moments if 2 * sum(after in score.hit for score in known) >= len(known)]

    def means(values: Callable[[_Score], dict[int, float]]) -> tuple[Measured, ...]:
        return tuple(mean_of([values(one)[after] for one in known if after in values(one)]) for after in kept)

    return ArmCurve(tuple(kept), means(lambda one: one.hit), means(lambda one: one.log))
