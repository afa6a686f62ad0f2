"""What is counted of a study, fast enough for a page: who came how far, times, care, agreement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edpbrl_gym.study.exported import StudyTables
from edpbrl_gym.study.reporting.agreement import agreement
from edpbrl_gym.study.reporting.intervals import Measured, share_of

__all__ = [
    "STATUSES",
    "Care",
    "Counted",
    "FunnelStep",
    "PlaceTimes",
    "Quantiles",
    "count_statistics",
    "seconds_of",
    "taking_part",
]

STATUSES = ("enrolled", "consented", "asking", "finished", "failed", "withdrawn")
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
Row = Mapping[str, Any]


@dataclass(frozen=True)
class FunnelStep:
    """How many participants came so far, in each arm."""

    name: str
    arms: dict[str, int]

    @property
    def total(self) -> int:
        """Participants of all arms."""
        return sum(self.arms.values())


@dataclass(frozen=True)
class Quantiles:
    """Seconds for an answer: how many answers, and their 10, 25, 50, 75 and 90% quantiles."""

    answers: int
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median."""
        return self.values[2]


@dataclass(frozen=True)
class PlaceTimes:
    """Seconds for the answer to the n-th question that counts, in an arm.

    Attributes:
        places: n, from 1.
        quantiles: For each of them.
    """

    places: tuple[int, ...]
    quantiles: tuple[Quantiles, ...]


@dataclass(frozen=True)
class Care:
    """How carefully the participants of an arm, or of all, answer; each a share with its interval.

    Attributes:
        attention: Attention checks answered as asked.
        repeats: Repeated questions with the same best option as before.
        undone: Answers taken back, of all answers ever given.
        cannot_tell: "Can't tell", of the answers that count and those to test questions.
    """

    attention: Measured
    repeats: Measured
    undone: Measured
    cannot_tell: Measured


@dataclass(frozen=True)
class Counted:
    """The counts of a study.

    People who failed the comprehension check or withdrew are in ``statuses`` and ``funnel`` only.

    Attributes:
        arms: Names of the arms, in the order of the configuration.
        statuses: Participants by arm and status.
        deleted: Participants deleted on request, who are in no count.
        funnel: From arrival to the end.
        times: Seconds for an answer that counts, by arm; None for one without any.
        places: The same by place.
        by_server: Share of these times that the browser did not measure, so that the server's clock was taken.
        care: By arm, and "" for all.
        agreement: Krippendorff's alpha of the best options of the test questions, over all participants.
        tested: Number of test questions that were answered.
        styles: Answers to the last question by arm: "learnt", "random" or "tie".
    """

    arms: tuple[str, ...]
    statuses: dict[str, dict[str, int]]
    deleted: int
    funnel: tuple[FunnelStep, ...]
    times: dict[str, Quantiles | None]
    places: dict[str, PlaceTimes]
    by_server: float
    care: dict[str, Care]
    agreement: Measured
    tested: int
    styles: dict[str, dict[str, int]]


def count_statistics(tables: StudyTables) -> Counted:
    """Count; nothing is estimated."""
    arms = tuple(arm["name"] for arm in tables.study["arms"])
    arms += tuple(sorted({row["arm"] for row in tables.participants} - set(arms)))  # of an earlier configuration
    people = taking_part(tables)
    kept = [row for row in tables.answers if row["participant"] in people and not row["taken_back"]]
    counted = [row for row in kept if row["counts"]]
    timed = [(row, seconds_of(row)) for row in counted]
    values, questions = _test_answers(kept)
    return Counted(
        arms=arms,
        statuses=_statuses(tables.participants, arms),
        deleted=tables.study["deleted"],
        funnel=_funnel(tables, arms),
        times={arm: _quantiles([time for row, time in timed if row["arm"] == arm]) for arm in arms},
        places={arm: _places([pair for pair in timed if pair[0]["arm"] == arm]) for arm in arms},
        by_server=sum(row["answer_ms"] is None for row in counted) / max(1, len(counted)),
        care={
            arm: _care(
                [row for row in people.values() if arm in ("", row["arm"])],
                [row for row in tables.answers if row["participant"] in people and arm in ("", row["arm"])],
            )
            for arm in ("", *arms)
        },
        agreement=agreement(values),
        tested=questions,
        styles=_styles(tables, people, arms),
    )


def taking_part(tables: StudyTables) -> dict[str, Row]:
    """Participants who are asked, or were to the end, by pseudonym."""
    return {row["participant"]: row for row in tables.participants if row["status"] in ("asking", "finished")}


def seconds_of(row: Row) -> float | None:
    """Seconds for an answer, by the browser if it measured them, otherwise by the server; None: unknown."""
    if row["answer_ms"] is not None:
        return float(row["answer_ms"]) / 1000
    if row["shown_s"] is None or row["answered_s"] is None:
        return None
    return float(row["answered_s"] - row["shown_s"])


def _statuses(participants: Sequence[Row], arms: Sequence[str]) -> dict[str, dict[str, int]]:
    found = Counter((row["arm"], row["status"]) for row in participants)
    return {arm: {status: found[arm, status] for status in STATUSES} for arm in arms}


def _funnel(tables: StudyTables, arms: Sequence[str]) -> tuple[FunnelStep, ...]:
    """Participants by how far they came."""
    happened: dict[str, set[str]] = defaultdict(set)
    for event in tables.events:
        passed = event["kind"] != "comprehension" or bool((event["detail"] or {}).get("correct"))
        if passed:
            happened[event["participant"]].add(event["kind"])
    study = tables.study
    half = -(-study["least"] // 2)

    def ended(row: Row) -> bool:
        return row["answered"] >= study["number"] or "sure" in happened[row["participant"]]

    steps: list[tuple[str, Callable[[Row], bool]]] = [
        ("arrived", lambda row: True),
        ("consented", lambda row: row["consent_version"] is not None),
    ]
    if study["comprehension"]:
        steps.append(("passed the comprehension check", lambda row: "comprehension" in happened[row["participant"]]))
    steps += [
        ("answered 1 question", lambda row: row["answered"] >= 1),
        (f"answered half ({half})", lambda row: row["answered"] >= half),
        ("answered all" if study["least"] == study["number"] else "answered all, or until sure", ended),
        ("finished", lambda row: row["status"] == "finished"),
    ]
    return tuple(
        FunnelStep(
            name, {arm: sum(1 for row in tables.participants if row["arm"] == arm and reached(row)) for arm in arms}
        )
        for name, reached in steps
    )


def _quantiles(times: Iterable[float | None]) -> Quantiles | None:
    known = [time for time in times if time is not None]
    if not known:
        return None
    return Quantiles(len(known), tuple(float(value) for value in np.quantile(known, _QUANTILES)))


def _places(timed: Sequence[tuple[Row, float | None]]) -> PlaceTimes:
    """Times by place among the answers that count."""
    seen: Counter[str] = Counter()
    found: dict[int, list[float | None]] = defaultdict(list)
    for row, time in sorted(timed, key=lambda pair: (pair[0]["participant"], pair[0]["number"])):
        seen[row["participant"]] += 1
        found[seen[row["participant"]]].append(time)
    known = [(place, quantiles) for place in sorted(found) if (quantiles := _quantiles(found[place])) is not None]
    return PlaceTimes(tuple(place for place, _ in known), tuple(quantiles for _, quantiles in known))


def _care(people: Sequence[Row], answers: Sequence[Row]) -> Care:
    """Shares of a group of people, and of what they were asked."""
    given: Counter[str] = Counter()
    back: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    unsure: Counter[str] = Counter()
    for row in answers:
        if row["answer"] is None:
            continue
        given[row["participant"]] += 1
        back[row["participant"]] += row["taken_back"]
        if row["kind"] in ("normal", "test") and not row["taken_back"]:
            asked[row["participant"]] += 1
            unsure[row["participant"]] += row["answer"] in ("tie", "skip")
    names = [row["participant"] for row in people]
    return Care(
        attention=share_of([row["attention_passed"] for row in people], [row["attention_asked"] for row in people]),
        repeats=share_of([row["repeats_agreed"] for row in people], [row["repeats_asked"] for row in people]),
        undone=share_of([back[name] for name in names], [given[name] for name in names]),
        cannot_tell=share_of([unsure[name] for name in names], [asked[name] for name in names]),
    )


def _test_answers(kept: Sequence[Row]) -> tuple[list[list[int | None]], int]:
    """Best options of the test questions, (people, questions), and the number of questions."""
    best: dict[str, dict[str, int]] = defaultdict(dict)
    for row in kept:
        if row["kind"] == "test" and row["answer"] not in (None, "tie", "skip"):
            best[row["participant"]][str(row["options"])] = row["order"][0]
    questions = sorted({question for given in best.values() for question in given})
    return [[given.get(question) for question in questions] for given in best.values()], len(questions)


def _styles(tables: StudyTables, people: Mapping[str, Row], arms: Sequence[str]) -> dict[str, dict[str, int]]:
    """What people preferred at the end, each person's last word."""
    chosen = {
        event["participant"]: event["detail"].get("chosen")
        for event in tables.events
        if event["kind"] == "style_choice" and event["participant"] in people and event["detail"]
    }
    found = Counter((people[name]["arm"], one) for name, one in chosen.items())
    return {arm: {one: found[arm, one] for one in ("learnt", "random", "tie")} for arm in arms}
