"""The report of a study and its figures, from the tables of an export alone."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.likelihood import FORMATS
from edpbrl_gym.reporting.figures import (
    GREY,
    Curve,
    Level,
    Panel,
    curves_figure,
    look,
    new_figure,
    set_title,
)
from edpbrl_gym.reporting.report import Picture, Report, Section, Text, bullets
from edpbrl_gym.reporting.statistics import bracket, plural
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.study.export_tables import StudyTables
from edpbrl_gym.study.reporting.arm_test import section_of_tests
from edpbrl_gym.study.reporting.comparing import MEASURES, Compared, compare_arms
from edpbrl_gym.study.reporting.flow import flow_figure, flow_of
from edpbrl_gym.study.reporting.further import (
    agreement_by_question,
    duration,
    excluded_people,
    preregistered,
    without_excluded,
)
from edpbrl_gym.study.reporting.statistics import STATUSES, Counted, Measured, count_statistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["arms_figure", "funnel_figure", "learning_figure", "make_report", "measured", "times_figure"]

_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++")
_LINE_WIDTH = 22  # letters of a name in a line
_FORMS = {"hit": ".3f", "log": ".3f", "repeats": ".3f", "answers": ".1f", "seconds": ".1f", "minutes": ".1f"}
_MINUS = "−"
_AFTER = ", without those excluded"
_ITEMS = 10  # best and worst ones that are shown


def funnel_figure(counted: Counted) -> Figure:
    """How many participants of each arm came how far, as a share of those who arrived."""
    from matplotlib.patches import Patch

    steps, arms = counted.funnel, counted.arms
    height = 0.8 / len(arms)
    with new_figure(7.2, 0.62 + len(steps) * max(0.36, 0.21 * len(arms)) + 0.62) as figure:
        axis = figure.subplots()
        for place, arm in enumerate(arms):
            arrived = max(1, steps[0].arms[arm])
            shares = [step.arms[arm] / arrived for step in steps]
            ys = np.arange(len(steps)) + (place - (len(arms) - 1) / 2) * height
            colour = look(place).colour
            axis.barh(ys, shares, height * 0.86, color=colour, alpha=0.85, edgecolor="white", linewidth=0.0,
                      hatch=_HATCHES[place % len(_HATCHES)])  # fmt: skip
            for y, share, step in zip(ys, shares, steps, strict=True):
                label = f"{step.arms[arm]}" if step is steps[0] else f"{step.arms[arm]}  ({share:.0%})"
                axis.annotate(label, (share, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7.5)
        axis.set_yticks(np.arange(len(steps)), [step.name for step in steps])
        axis.invert_yaxis()
        axis.set_xlim(0, 1.16)
        axis.set_xticks(np.linspace(0, 1, 6), [f"{share:.0%}" for share in np.linspace(0, 1, 6)])
        axis.spines["bottom"].set_bounds(0, 1)
        axis.set_xlabel("share of those of the arm who arrived")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)
        handles = [
            Patch(facecolor=look(place).colour, alpha=0.85, edgecolor="white", linewidth=0.0,
                  hatch=_HATCHES[place % len(_HATCHES)], label=arm)
            for place, arm in enumerate(arms)
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(arms)))
        set_title(figure, "How far participants came", "Numbers of participants, in brackets their share of the arm.")
    return figure


def times_figure(counted: Counted) -> Figure:
    """Median seconds for an answer against its place, with quartiles."""
    curves = []
    for place, arm in enumerate(counted.arms):
        times = counted.places[arm]
        if times.places:
            low, middle, high = (np.array([one.values[index] for one in times.quantiles]) for index in (1, 2, 3))
            curves.append(Curve(arm, np.array(times.places), middle, look(place), low, high))
    last = max(int(curve.x[-1]) for curve in curves)
    step = max(1, round(last / 10))
    return curves_figure(
        [Panel(curves, "", "seconds for an answer")],
        columns=1,
        xlabel="place of the question among those that count",
        title="Time for an answer",
        subtitle="Median over participants; bands: the middle half of them.",
        size=(6.4, 2.9),
        ticks=[1, *range(step if step > 1 else 2, last + 1, step)],
    )


def learning_figure(compared: Compared) -> Figure:
    """How well the test answers are predicted after some of the answers that count."""
    panels = []
    levels = {"hit": compared.chance, "log": math.log(compared.chance)}
    for name in ("hit", "log"):
        curves = []
        for place, arm in enumerate(compared.arms):
            curve = compared.curves[arm]
            measured = curve.hit if name == "hit" else curve.log
            if curve.after:
                value, low, high = (
                    np.array([getattr(one, end) for one in measured]) for end in ("value", "low", "high")
                )
                curves.append(Curve(arm, np.array(curve.after), value, look(place), low, high))
        panels.append(Panel(curves, _title(name), levels=[Level(levels[name], note="chance")]))
    return curves_figure(
        panels,
        columns=2,
        xlabel="answers",
        title="What the answers teach about the test questions",
        subtitle="Participants who finished; bands: 95% bootstrap intervals over participants.",
        share="none",
        zero=False,
    )


def _title(measure: str) -> str:
    name = MEASURES[measure]
    return name[0].upper() + name[1:] + (", nats" if measure == "log" else "")


def arms_figure(compared: Compared) -> Figure:
    """The measures of all arms with their intervals, a panel for each measure."""
    panels: list[tuple[str, dict[str, Any], float | None]] = []
    for measure in ("hit", "log", "repeats", "answers", "seconds"):
        known = {arm: one for arm, one in compared.values[measure].items() if one.people}
        level = {"hit": compared.chance, "log": math.log(compared.chance)}.get(measure)
        fixed = measure == "answers" and len({one.value for one in known.values()}) == 1  # no stopping rule
        if known and not fixed:
            panels.append((_title(measure), known, level))
    styles = {arm: one for arm, one in compared.styles.items() if one.people}
    if styles:
        panels.append(("Preferred the learnt style", styles, 0.5))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with new_figure(9.2, rows * (0.75 + 0.3 * len(compared.arms)) + 0.75) as figure:
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axis, (title, known, level) in zip(axes, panels, strict=False):
            _draw_measures(axis, compared.arms, known, level)
            axis.set_title(title)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        set_title(
            figure,
            "The arms compared",
            "Participants who finished; lines: 95% intervals over participants; dotted: chance.",
        )
    return figure


def _draw_measures(axis: Any, arms: tuple[str, ...], known: dict[str, Any], level: float | None) -> None:
    """Points and intervals of one measure, from the first arm on top."""
    for place, arm in enumerate(arms):
        if arm not in known:
            continue
        one, style = known[arm], look(place)
        if math.isfinite(one.low):
            axis.plot([one.low, one.high], [place, place], color=style.colour, linewidth=1.6)
        axis.plot(one.value, place, marker=style.marker, color=style.colour, markersize=6, linestyle="none")
    if level is not None:
        axis.axvline(level, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)))
    axis.set_yticks(range(len(arms)), [textwrap.fill(arm, _LINE_WIDTH) for arm in arms])
    axis.set_ylim(len(arms) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)
    axis.margins(x=0.12)


def make_report(tables: StudyTables) -> Report:
    """The report of `edpbrl study report` and of `edpbrl report` on an export: the same for the same answers."""
    counted = count_statistics(tables)
    compared = compare_arms(tables, counted)
    progress, arms = _progress_table(counted), _arms_table(compared)
    answered = any(counted.times.values())
    sections: list[Section] = [Text([_opening(tables, counted)]), *preregistered(tables), progress]
    if counted.funnel[0].total:
        caption = "From arrival to the comparison of the arms"
        sections.append(Picture("flow", caption, flow_figure(flow_of(tables, counted.arms))))
        caption = "How many participants of each arm came how far"
        sections.append(Picture("funnel", caption, funnel_figure(counted)))
    sections.append(_funnel_table(counted))
    if answered:
        sections += [
            Picture("times", "Median seconds for an answer against its place", times_figure(counted)),
            _times_table(counted),
            *duration(tables),
            _care_table(counted, tables.study),
        ]
    sections += [Text(_agreement(counted, tables.study), "Agreement"), *agreement_by_question(tables), *_crowd(tables)]
    if any(compared.finished.values()):
        sections += [Picture("arms", "The arms with their intervals", arms_figure(compared)), arms]
        sections += [_differences_table(compared), *section_of_tests(tables, compared.arms)]
        sections += excluded_people(tables, counted.arms)
        if (kept := without_excluded(tables)) is not None:
            after = compare_arms(kept, count_statistics(kept))
            sections += [_arms_table(after, _AFTER), _differences_table(after, _AFTER)]
            sections += section_of_tests(kept, after.arms, _AFTER)
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
    pilot = "Only people who tried the study out are in it (a pilot). " if study.get("pilot") else ""
    return (
        f"{pilot}{plural(arrived, 'participant')} arrived and {finished} finished; {answers} answers count. Up to "
        f"{study['number']} questions, each about {study['options']} {what[study['feedback']]} of the vocabulary "
        f"`{study['vocabulary']}`; people name {FORMATS[study['format']].texts.named}. Intervals are 95%."
    )


def _progress_table(counted: Counted) -> TextTable:
    rows = [[arm, *_numbers(counted.statuses[arm][status] for status in STATUSES)] for arm in counted.arms]
    if len(counted.arms) > 1:
        totals = (sum(counted.statuses[arm][status] for arm in counted.arms) for status in STATUSES)
        rows.append(["all", *_numbers(totals)])
    gone = f" {plural(counted.deleted, 'participant')} more deleted on request." if counted.deleted else ""
    note = (
        "Where participants are now: enrolled (no consent yet), consented (no question yet), asking, finished, failed "
        f"(a page whose answers were not accepted), withdrawn, timed out.{gone}"
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
        f"Of the best options of the {plural(counted.tested, 'test question')}, between "
        f"{plural(counted.agreement.people, 'participant')} of all arms: **{measured(counted.agreement, '.3f')}** "
        "(Brennan and Prediger's kappa: how much more often two people name the same option than if they drew one at "
        "random, as a share of the most possible; 1: all name the same, 0: no more often than by chance, below 0: less "
        "often). How options are numbered does not matter, and can't tell is a missing value. What people do not share "
        "is a matter of taste or of chance; repeats tell how much is chance."
    ]


def _crowd(tables: StudyTables) -> list[Section]:
    """What those who finished like in the items of the pool; nothing without one."""
    facts = tables.study.get("crowd")
    if facts is None:
        return []
    title, least = "What the crowd likes", facts["minimum_people"]
    if not tables.crowd:
        finished = plural(facts["finished"], "participant")
        why = f"no item was shown to {least} of the {facts['people']}" if facts["people"] else f"{finished} finished"
        return [Text([f"Said of at least {least} people together, and of items that so many saw: {why}."], title)]
    rows = tables.crowd
    places = range(len(rows)) if len(rows) <= 2 * _ITEMS else [*range(_ITEMS), *range(len(rows) - _ITEMS, len(rows))]
    cells = [
        [
            str(place + 1),
            rows[place]["item"].replace("|", r"\|"),
            f"{rows[place]['mean']:+z.2f} {bracket(rows[place]['low'], rows[place]['high'], '+z.2f')}".replace(
                "-", _MINUS
            ),
            str(rows[place]["people"]),
        ]
        for place in places
    ]
    which = "" if len(cells) == len(rows) else f" The {_ITEMS} best and the {_ITEMS} worst of {len(rows)}."
    few = facts["items"] - len(rows)
    left = f" {plural(few, 'item')} shown to fewer than {least} people are left out." if few else ""
    note = (
        f"{facts['people']} people who finished, of all arms.{which}{left} Unit: the standard deviation of a person's "
        f"liking over the pool; {facts['shared']:.0%} of its variance is shared by all, {facts['taste']:.0%} is a "
        f"person's taste in the features, {facts['own']:.0%} a person's own at one item. 0 is the mean of the pool. "
        "Intervals are 90%, of what these people's answers leave open about the crowd. What persons do is in the other "
        "tables."
    )
    return [TextTable(title, ["rank", "item", "liking", "people"], cells, note)]


# -- arms ------------------------------------------------------------------------------------------------------------


def _arms_table(compared: Compared, when: str = "") -> TextTable:
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
    return TextTable(f"The arms compared{when}", ["mean of", *compared.arms], rows, note, 1)


def _differences_table(compared: Compared, when: str = "") -> TextTable:
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
    return TextTable(f"Differences from {first}{when}", header, rows, note, 1)


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
        "Participants who failed a check or withdrew are counted in Progress and Drop-out only. All "
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
        known = {False: "", True: ", with a population", "study": ", each person from those who finished before"}
        prior = known.get(arm["population"], f", with the prior {arm['population']}")
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
