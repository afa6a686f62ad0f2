"""The report of a study, from the tables of its export alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets
from edpbrl_gym.reporting.statistics import bracket
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.study.exported import StudyTables
from edpbrl_gym.study.reporting.comparing import MEASURES, Compared, compare_arms
from edpbrl_gym.study.reporting.figures import arms_figure, funnel_figure, learning_figure, times_figure
from edpbrl_gym.study.reporting.intervals import Measured
from edpbrl_gym.study.reporting.statistics import STATUSES, Counted, count_statistics

__all__ = ["make_report", "measured"]

_FORMS = {"hit": ".3f", "log": ".3f", "repeats": ".3f", "answers": ".1f", "seconds": ".1f", "minutes": ".1f"}
_MINUS = "−"


def make_report(tables: StudyTables) -> Report:
    """The report of `edpbrl study report` and of `edpbrl report` on an export: the same for the same answers."""
    counted = count_statistics(tables)
    compared = compare_arms(tables, counted)
    progress, arms = _progress_table(counted), _arms_table(compared)
    answered = any(counted.times.values())
    sections: list[Section] = [Text([_opening(tables, counted)]), progress]
    if counted.funnel[0].total:
        caption = "How many participants of each arm came how far"
        sections.append(Picture("funnel", caption, funnel_figure(counted)))
    sections.append(_funnel_table(counted))
    if answered:
        sections += [
            Picture("times", "Median seconds for an answer against its place", times_figure(counted)),
            _times_table(counted),
            _care_table(counted, tables.study),
        ]
    sections += [Text(_agreement(counted, tables.study), "Agreement")]
    if any(compared.finished.values()):
        sections += [Picture("arms", "The arms with their intervals", arms_figure(compared)), arms]
        sections += [_differences_table(compared)]
        if any(len(curve.after) > 1 for curve in compared.curves.values()):
            caption = "Predictions of the test answers against the answers that they are made from"
            sections.append(Picture("learning", caption, learning_figure(compared)))
        sections += [_styles_table(counted, compared)]
    else:
        sections += [Text(["Nobody has finished yet."], "The arms compared")]
    sections += [
        Text(bullets(_how(tables, counted)), "How it was computed"),
        Text(bullets(_provenance(tables)), "Provenance"),
    ]
    return Report(
        tables.study["title"], sections, headline=[progress, *([arms] if any(compared.finished.values()) else [])]
    )


def measured(one: Measured, form: str) -> str:
    """Return "0.512 [0.41, 0.63]"; a dash without participants."""
    if not one.people or math.isnan(one.value):
        return "-"
    rounded = form.replace(".", "z.")  # without minus zero
    return f"{one.value:{rounded}} {bracket(one.low, one.high, rounded)}".replace("-", _MINUS)


# -- who took part ---------------------------------------------------------------------------------------------------


def _opening(tables: StudyTables, counted: Counted) -> str:
    study, arrived = tables.study, counted.funnel[0].total
    finished = counted.funnel[-1].total
    answers = sum(row["counts"] for row in tables.answers)
    what = {"prompt": "complete prompts", "truncated": "prompts that grow by a token", "state": "tokens"}
    words = {"best": "the best", "best_worst": "the best and the worst", "ranking": "all, in order",
             "partial": "the best few, in order"}  # fmt: skip
    return (
        f"{_count(arrived, 'participant')} arrived and {finished} finished; {answers} answers count. Up to "
        f"{study['number']} questions, each about {study['options']} {what[study['feedback']]} of the vocabulary "
        f"`{study['vocabulary']}`; people name {words[study['format']]}. Intervals are 95%."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _progress_table(counted: Counted) -> TextTable:
    rows = [[arm, *_numbers(counted.statuses[arm][status] for status in STATUSES)] for arm in counted.arms]
    if len(counted.arms) > 1:
        totals = (sum(counted.statuses[arm][status] for arm in counted.arms) for status in STATUSES)
        rows.append(["all", *_numbers(totals)])
    gone = f" {_count(counted.deleted, 'participant')} more deleted on request." if counted.deleted else ""
    note = (
        "Where participants are now: enrolled (no consent yet), consented (no question yet), asking, finished, failed "
        f"(the comprehension check), withdrawn.{gone}"
    )
    return TextTable("Progress", ["arm", *STATUSES], rows, note, words=1)


def _numbers(values: Any) -> list[str]:
    return [str(value) for value in values]


def _funnel_table(counted: Counted) -> TextTable:
    rows = []
    before: int | None = None
    for step in counted.funnel:
        lost = "" if before is None else f"{_MINUS}{before - step.total}" if before > step.total else "0"
        rows.append([step.name, *_numbers(step.arms[arm] for arm in counted.arms), str(step.total), lost])
        before = step.total
    note = "" if rows and counted.funnel[0].total else "Nobody has arrived yet."
    return TextTable("Drop-out", ["came so far", *counted.arms, "all", "lost"], rows, note, words=1)


# -- answers ---------------------------------------------------------------------------------------------------------


def _times_table(counted: Counted) -> TextTable:
    rows = []
    for arm in counted.arms:
        times = counted.times[arm]
        values = ["-"] * 5 if times is None else [f"{value:.1f}" for value in times.values]
        rows.append([arm, "0" if times is None else str(times.answers), *values])
    note = "Answers that count, without those taken back; from the question's appearance to the answer, by the browser."
    if counted.by_server:
        note += f" For {counted.by_server:.0%} the browser did not say; the server's clock was taken."
    return TextTable("Seconds for an answer", ["arm", "answers", "10%", "25%", "median", "75%", "90%"], rows, note, 1)


def _care_table(counted: Counted, study: dict[str, Any]) -> TextTable:
    groups = [*counted.arms, *([""] if len(counted.arms) > 1 else [])]
    rows = []
    for arm in groups:
        care = counted.care[arm]
        shares = [care.attention, care.repeats, care.undone, care.cannot_tell]
        rows.append([arm or "all", *(measured(one, ".1%") for one in shares)])
    guess = 1 / study["options"]
    note = (
        f"Attention checks passed and repeated questions answered alike: {guess:.0%} by guessing. Taken back: of all "
        "answers. Can't tell: of the answers that count and those to test questions. Intervals: bootstrap over "
        "participants; where all did the same, Wilson's, as if each had done it once."
    )
    header = ["arm", "attention checks", "repeats alike", "taken back", "can't tell"]
    return TextTable("How people answer", header, rows, note, 1)


def _agreement(counted: Counted, study: dict[str, Any]) -> list[str]:
    if not study["test"] and not counted.tested:
        return ["Not measured: the study asks no test questions ([checks] test = 4 adds some)."]
    if math.isnan(counted.agreement.value):
        return ["Not known yet: no test question has been answered by two people."]
    return [
        f"Krippendorff's alpha of the best options of the {_count(counted.tested, 'test question')}, over "
        f"{_count(counted.agreement.people, 'participant')} of all arms: **{measured(counted.agreement, '.3f')}** "
        "(nominal values; 1: all name the same option, 0: as if options were drawn at random). Can't tell is a missing "
        "value. What people do not share is a matter of taste or of chance; repeats tell how much is chance."
    ]


# -- arms ------------------------------------------------------------------------------------------------------------


def _arms_table(compared: Compared) -> TextTable:
    rows = [["participants who finished", *(str(compared.finished[arm]) for arm in compared.arms)]]
    rows += [
        [name, *(measured(compared.values[measure][arm], _FORMS[measure]) for arm in compared.arms)]
        for measure, name in MEASURES.items()
    ]
    note = (
        f"Participants who finished; means over participants with bootstrap intervals. By chance {compared.chance:.0%} "
        f"of the test answers are predicted, with a log-likelihood of {_MINUS}{-math.log(compared.chance):.3f} nats. "
        "Those who leave may differ between the arms: see the drop-out."
    )
    return TextTable("The arms compared", ["mean of", *compared.arms], rows, note, 1)


def _differences_table(compared: Compared) -> TextTable:
    first, others = compared.arms[0], compared.arms[1:]
    rows = [
        [name, *(measured(compared.differences[measure][arm], f"+{_FORMS[measure]}") for arm in others)]
        for measure, name in MEASURES.items()
        if others
    ]
    note = (
        "Both groups of participants are resampled on their own. An interval that excludes 0 is not corrected for the "
        "number of comparisons."
    )
    header = ["difference of", *(f"{arm} {_MINUS} {first}" for arm in others)]
    return TextTable(f"Differences from {first}", header, rows, note, 1)


def _styles_table(counted: Counted, compared: Compared) -> TextTable:
    rows = [
        [
            arm,
            *(str(counted.styles[arm][one]) for one in ("learnt", "random", "tie")),
            measured(compared.styles[arm], ".3f"),
        ]
        for arm in counted.arms
        if sum(counted.styles[arm].values())
    ]
    note = (
        "The last question, blind: prompts of the style that was learnt, or random ones. The share is of those who "
        "preferred one of them, with Wilson's interval; 0.5 by chance."
    )
    return TextTable(
        "Which style people preferred", ["arm", "learnt", "random", "no preference", "share learnt"], rows, note, 1
    )


# -- how -------------------------------------------------------------------------------------------------------------


def _how(tables: StudyTables, counted: Counted) -> list[str]:
    study = tables.study
    lines = [
        "Participants who failed the comprehension check or withdrew are counted in Progress and Drop-out only. All "
        "other numbers are of participants who are asked or have finished, those of the arms of the latter.",
    ]
    if study["test"]:
        lines.append(
            f"Test questions: {study['test']}, drawn at random once for the study, asked of everybody in the second "
            "half in an order and with positions of the participant's own, and never used for estimates. Each person's "
            "taste is estimated from the answers that count, with the population of the arm where it has one, "
            "otherwise with the library's default prior; the probability of each option is averaged over the "
            "posterior. The option with the highest one is the prediction."
        )
    else:
        lines.append("The study asks no test questions: predictions of the arms are not compared.")
    for arm in study["arms"]:
        prior = ", with a population" if arm["population"] else ""
        weight = f", {arm['weight']} participants of a block" if arm["weight"] > 1 else ""
        lines.append(f"Arm {arm['name']}: planner `{arm['planner']}`{prior}{weight}.")
    return lines


def _provenance(tables: StudyTables) -> list[str]:
    study = tables.study
    configs = _known(tables.answers, "config")
    versions = _known(tables.answers, "code_version")
    return [
        f"encoder {study['encoder']}, seed {study['seed']}, configuration sha256 {study['config']}",
        f"configurations with which answers were stored: {', '.join(configs) or 'none'}",
        f"versions of edpbrl-gym that stored them: {', '.join(versions) or 'none'}",
        "`edpbrl study export FOLDER --out EXPORT`, then `edpbrl report EXPORT`, writes this page again.",
    ]


def _known(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    return sorted({row[name] for row in rows if row[name] is not None})
