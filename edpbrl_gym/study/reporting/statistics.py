"""What is counted of a study, with intervals over participants: who came how far, times, care, agreement."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from edpbrl_gym._arrays import Floats
from edpbrl_gym.reporting.statistics import interval
from edpbrl_gym.study.export_tables import TAKING_PART, StudyTables, first_of, seconds_of
from edpbrl_gym.study.forms.pages import CHECKED

__all__ = [
    "STATUSES",
    "Care",
    "Counted",
    "FunnelStep",
    "Measured",
    "PlaceTimes",
    "Quantiles",
    "Tested",
    "agreement",
    "count_statistics",
    "difference_of_means",
    "kappa",
    "mean_of",
    "share_of",
    "taking_part",
    "test_answers",
    "tested_answers",
    "wilson",
]

_RESAMPLES = 2000  # of means
_KAPPA_RESAMPLES = 1000  # each needs all pairs of people
_LEAST = 1e-300  # probability whose logarithm is taken where it underflows
Values = Sequence[Sequence[Hashable | None]]
STATUSES = ("enrolled", "consented", "asking", "finished", "failed", "withdrawn", "timed_out")
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """A value with its 95% interval."""

    value: float  # the value; NaN without participants
    low: float  # lower end; NaN for fewer than two participants
    high: float  # upper end
    people: int  # number of participants behind it


_NOTHING = Measured(math.nan, math.nan, math.nan, 0)


def wilson(successes: float, total: int) -> tuple[float, float]:
    """Wilson's score interval of a share (1927), 95%; NaN for a total of 0."""
    if total == 0:
        return math.nan, math.nan
    z = float(ndtri(0.975))
    share, weight = successes / total, z**2 / total
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / total + weight / (4 * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def share_of(successes: Sequence[int], totals: Sequence[int]) -> Measured:
    """The share of all successes in all trials, with a bootstrap interval over participants.

    Where all participants succeeded always, or never, a bootstrap says nothing: the interval is then Wilson's, as if
    each participant had tried once, since the trials of one resemble each other.
    """
    rows = np.array([pair for pair in zip(successes, totals, strict=True) if pair[1]], dtype=np.float64)
    if not len(rows):
        return _NOTHING
    share = float(rows[:, 0].sum() / rows[:, 1].sum())
    if share in (0.0, 1.0):
        low, high = wilson(round(share * len(rows)), len(rows))
    else:
        low, high = interval(rows, lambda means: means[..., 0] / means[..., 1])
    return Measured(share, low, high, len(rows))


def mean_of(values: Sequence[float]) -> Measured:
    """The mean over participants with its bootstrap interval."""
    if not len(values):
        return _NOTHING
    return Measured(float(np.mean(values)), *interval(values), len(values))


def difference_of_means(first: Sequence[float], second: Sequence[float]) -> Measured:
    """Mean of the first minus mean of the second group of participants, both resampled on their own."""
    if not len(first) or not len(second):
        return _NOTHING
    value, people = float(np.mean(first) - np.mean(second)), len(first) + len(second)
    if len(first) < 2 or len(second) < 2:
        return Measured(value, math.nan, math.nan, people)
    rng = np.random.default_rng(0)
    low, high = np.quantile(_resampled(first, rng) - _resampled(second, rng), (0.025, 0.975))
    return Measured(value, float(low), float(high), people)


def _resampled(values: Sequence[float], rng: np.random.Generator) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.asarray(array[rng.integers(len(array), size=(_RESAMPLES, len(array)))].mean(axis=1))


def kappa(values: Values, options: Sequence[int]) -> float:
    """Chance-corrected agreement about the best option: (A - C) / (1 - C).

    A is the share of pairs of two people who name the same option of a question, C = 1 / K what it would be if
    everybody drew one of the K options at random; both are means over the questions, each of which weighs as much as
    it has answers. 1: all name the same option of every question. 0: as many agree as with options drawn at random.
    Below 0, down to -1 / (K - 1): fewer do. The options of different questions are never taken for one another, so the
    numbers that they have do not matter, unlike for coefficients that compare with the frequencies of all values
    (Scott, Cohen, Fleiss, Krippendorff).

    R. L. Brennan, D. J. Prediger, "Coefficient kappa: some uses, misuses, and alternatives", Educational and
    Psychological Measurement 41 (1981); for several people J. J. Randolph, "Free-marginal multirater kappa" (2005).
    """
    return float(_shares(_marks(values, len(options)), options, np.ones((1, len(values))))[0, 2])


def agreement(values: Values, options: Sequence[int]) -> Measured:
    """``kappa`` with a 95% percentile bootstrap interval over people, and the people whom it compares.

    A sample draws as many people as there are, with replacement. Two copies of one person agree by construction, so
    pairs of them are left out; otherwise kappa would be too high. Where all samples are alike (all agree, or there are
    two people) a bootstrap says nothing: the interval is then Wilson's of A, as if each person had agreed or not once.
    """
    marks = _marks(values, len(options))
    compared = (marks.any(axis=2) & (marks.sum(axis=(0, 2)) > 1)).any(axis=1)
    marks, people = marks[compared], int(compared.sum())
    share, chance, value = _shares(marks, options, np.ones((1, people)))[0]
    if math.isnan(value):  # nobody, too
        return Measured(math.nan, math.nan, math.nan, 0)
    weights = np.random.default_rng(0).multinomial(people, np.full(people, 1.0 / people), size=_KAPPA_RESAMPLES)
    found = _shares(marks, options, weights.astype(np.float64))[:, 2]
    low, high = np.nanquantile(found, (0.025, 0.975))
    if math.isclose(low, high, abs_tol=1e-12):
        low, high = ((end - chance) / (1.0 - chance) for end in wilson(share * people, people))
    return Measured(float(value), float(low), float(high), people)


def _marks(values: Values, questions: int) -> NDArray[np.float64]:
    """1 where a person gave a value of a question, (people, questions, values); each question counts its own values."""
    columns = list(zip(*values, strict=True))
    known = [{one: place for place, one in enumerate(dict.fromkeys(column))} for column in columns]
    marks = np.zeros((len(values), questions, max(map(len, known), default=0)))
    for question, column in enumerate(columns):
        for person, value in enumerate(column):
            if value is not None:
                marks[person, question, known[question][value]] = 1.0
    return marks


def _shares(marks: NDArray[np.float64], options: Sequence[int], times: Floats) -> Floats:
    """A, C and kappa of samples of people, who occur as often as ``times`` (samples, people) says; NaN: no pairs."""
    totals = np.tensordot(times, marks, axes=1)  # of each value, (samples, questions, values)
    given = totals.sum(axis=2)
    copies = np.tensordot(times**2, marks.sum(axis=2), axes=1)  # pairs of a person with itself
    pairs, same = given**2 - copies, (totals**2).sum(axis=2) - copies
    number = np.asarray(options, dtype=np.float64)
    weights = np.where((pairs > 0) & (number > 1), given, 0.0)
    total = weights.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(weights > 0, weights * same / pairs, 0.0).sum(axis=1) / total
        chance = (weights / number).sum(axis=1) / total
        return np.stack([share, chance, (share - chance) / (1.0 - chance)], axis=1)


@dataclass(frozen=True)
class FunnelStep:
    """How many participants came so far, in each arm."""

    name: str
    arms: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.arms.values())


@dataclass(frozen=True)
class Quantiles:
    """Seconds for an answer: how many answers, and their 10, 25, 50, 75 and 90% quantiles."""

    answers: int
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return self.values[2]


@dataclass(frozen=True)
class PlaceTimes:
    """Seconds for the answer to the n-th question that counts, in an arm."""

    places: tuple[int, ...]  # n, from 1
    quantiles: tuple[Quantiles, ...]  # for each of them


@dataclass(frozen=True)
class Care:
    """How carefully the participants of an arm, or of all, answer; each a share with its interval."""

    attention: Measured  # attention checks answered as asked
    repeats: Measured  # repeated questions with the same best option as before
    undone: Measured  # answers taken back, of all answers ever given
    cannot_tell: Measured  # "Can't tell", of the answers that count and those to test questions


@dataclass(frozen=True)
class Counted:
    """The counts of a study.

    People who failed a check or withdrew are in ``statuses`` and ``funnel`` only.
    """

    arms: tuple[str, ...]  # names of the arms, in the order of the configuration
    statuses: dict[str, dict[str, int]]  # participants by arm and status
    deleted: int  # participants deleted on request, who are in no count
    funnel: tuple[FunnelStep, ...]  # from arrival to the end
    times: dict[str, Quantiles | None]  # seconds for an answer that counts, by arm; None for one without any
    places: dict[str, PlaceTimes]  # the same by place
    by_server: float  # share of these times that the browser did not measure, so that the server's clock was taken
    care: dict[str, Care]  # by arm, and "" for all
    agreement: Measured  # about the best options of the test questions, over all participants; see ``agreement``
    tested: int  # number of test questions that were answered
    styles: dict[str, dict[str, int]]  # answers to the last question by arm: "learnt", "random" or "tie"


def count_statistics(tables: StudyTables) -> Counted:
    """Count; nothing is estimated."""
    arms = tuple(arm["name"] for arm in tables.study["arms"])
    arms += tuple(sorted({row["arm"] for row in tables.participants} - set(arms)))  # of an earlier configuration
    people = taking_part(tables)
    kept = [row for row in tables.answers if row["participant"] in people and not row["taken_back"]]
    counted = [row for row in kept if row["counts"]]
    timed = [(row, seconds_of(row)) for row in counted]
    questions, values = test_answers(kept)
    found = Counter((row["arm"], row["status"]) for row in tables.participants)
    return Counted(
        arms=arms,
        statuses={arm: {status: found[arm, status] for status in STATUSES} for arm in arms},
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
        agreement=agreement(values, [len(question) for question in questions]),
        tested=len(questions),
        styles=_styles(tables, people, arms),
    )


def taking_part(tables: StudyTables) -> dict[str, Row]:
    """Participants who are asked, or were to the end or until they left, by pseudonym."""
    return {row["participant"]: row for row in tables.participants if row["status"] in TAKING_PART}


def _funnel(tables: StudyTables, arms: Sequence[str]) -> tuple[FunnelStep, ...]:
    happened: dict[str, set[str]] = defaultdict(set)
    for event in tables.events:
        kinds = happened[event["participant"]]
        if event["kind"] != CHECKED or bool((event["detail"] or {}).get("correct")):
            kinds.add(event["kind"])
        else:
            kinds.discard(CHECKED)  # of several pages with checks all must be passed
    study = tables.study
    half = -(-study["least"] // 2)

    def ended(row: Row) -> bool:
        return row["answered"] >= study["number"] or "sure" in happened[row["participant"]]

    steps: list[tuple[str, Callable[[Row], bool]]] = [
        ("arrived", lambda row: True),
        ("consented", lambda row: row["consent_version"] is not None),
    ]
    if study["comprehension"]:
        steps.append(("passed the check", lambda row: CHECKED in happened[row["participant"]]))
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


def test_answers(kept: Sequence[Row]) -> tuple[list[tuple[str, ...]], list[list[str | None]]]:
    """The options of the test questions, and the best one of each by its text, (people, questions)."""
    best: dict[str, dict[tuple[str, ...], str]] = defaultdict(dict)
    for row in kept:
        if row["kind"] == "test" and (first := first_of(row)) is not None:
            options = tuple(sorted(row["options"]))
            best[row["participant"]][options] = row["options"][first]
    questions = sorted({question for given in best.values() for question in given})
    return questions, [[given.get(question) for question in questions] for given in best.values()]


def _styles(tables: StudyTables, people: Mapping[str, Row], arms: Sequence[str]) -> dict[str, dict[str, int]]:
    """What people preferred at the end, each person's last word."""
    chosen = {
        event["participant"]: event["detail"].get("chosen")
        for event in tables.events
        if event["kind"] == "style_choice" and event["participant"] in people and event["detail"]
    }
    found = Counter((people[name]["arm"], one) for name, one in chosen.items())
    return {arm: {one: found[arm, one] for one in ("learnt", "random", "tie")} for arm in arms}


class Tested(NamedTuple):
    """The answer to a test question, as it was predicted after some answers."""

    participant: str
    question: tuple[str, ...]  # its options in alphabetical order, which name it
    after: int  # number of answers behind the prediction
    is_last: bool  # whether these are all answers
    hit: float  # 1 if the most probable option was chosen; of several, each is as good a guess as the others
    log: float  # log-probability of the chosen option


def tested_answers(tables: StudyTables) -> Iterator[Tested]:
    """The predicted answers to test questions."""
    told = {
        (row["participant"], row["asked"]): (tuple(sorted(row["options"])), first)
        for row in tables.answers
        if row["kind"] == "test" and not row["taken_back"] and (first := first_of(row)) is not None
    }
    for row in tables.predictions:
        question, chosen = told[row["participant"], row["asked"]]
        probabilities = row["probabilities"]
        best = np.isclose(probabilities, max(probabilities), rtol=1e-9, atol=0.0)
        log = math.log(max(probabilities[chosen], _LEAST))
        hit = float(best[chosen] / best.sum())
        yield Tested(row["participant"], question, row["after"], bool(row["last"]), hit, log)
