"""Parts of the report: what was preregistered, how long people take, agreement by question, who is excluded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edpbrl_gym.reporting.report import Section, Text
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.study.exclusions import REASONS, rule_of
from edpbrl_gym.study.export_tables import StudyTables
from edpbrl_gym.study.reporting.statistics import Measured, agreement, taking_part, test_answers

__all__ = ["agreement_by_question", "duration", "excluded_people", "preregistered", "without_excluded"]

_LETTERS = 70  # of an option


def preregistered(tables: StudyTables) -> list[Section]:
    """Whether the configuration is the one that was preregistered; nothing without a preregistration."""
    facts = tables.study.get("preregistration")
    if facts is None:
        return []
    changed = facts["changed"]
    if changed is None:
        line = "preregistration.md has lost its table of digests, so it can't be compared with the configuration."
    elif changed:
        line = f"**The configuration has changed** since preregistration.md was written: {', '.join(changed)}."
    else:
        line = "The configuration is the one of preregistration.md."
    return [Text([line], "Preregistration")]


def duration(tables: StudyTables) -> list[Section]:
    """Minutes of those who finished, and what they are paid an hour."""
    minutes = [row["minutes"] for row in tables.participants if row["status"] == "finished" and row["minutes"]]
    if not minutes:
        return []
    low, middle, high = (float(value) for value in np.quantile(minutes, (0.25, 0.5, 0.75)))
    lines = [
        f"Median of those who finished: **{middle:.1f} minutes** from consent to the last choice (middle half: "
        f"{low:.1f} to {high:.1f}). Reading the consent text and pages after the last choice come on top."
    ]
    pay = tables.study.get("pay")
    if pay is None:
        lines.append("What that is in pay an hour is said where study.toml has `pay` in [recruitment].")
    else:
        hourly, least = (60 * pay["amount"] / value for value in (middle, high))
        lines.append(
            f"{pay['amount']:.2f} {pay['currency']} for it are **{hourly:.2f} {pay['currency']} an hour** at the "
            f"median, and {least:.2f} or less for the slowest quarter."
        )
    return [Text([" ".join(lines)], "Duration and pay")]


def agreement_by_question(tables: StudyTables) -> list[Section]:
    """Agreement about each test question."""
    people = taking_part(tables)
    kept = [row for row in tables.answers if row["participant"] in people and not row["taken_back"]]
    questions, values = test_answers(kept)
    rows = []
    for place, options in enumerate(questions):
        given = [row[place] for row in values if row[place] is not None]
        found = agreement([[one] for one in given], [len(options)])
        best = max(options, key=lambda option: (given.count(option), option))
        chance = 1 / len(options)
        same = "-" if math.isnan(found.value) else f"{found.value * (1 - chance) + chance:.1%}"
        rows.append(
            [
                str(place + 1),
                _short(best),
                str(len(given)),
                f"{given.count(best) / len(given):.0%}",
                same,
                _kappa(found),
            ]
        )
    note = (
        "Named it: the share that named this option. Same option: the share of pairs of two people who named the same "
        "one, A. Kappa: (A - 1/K) / (1 - 1/K) for K options, with a 95% bootstrap interval over people: 1 if all name "
        "the same, 0 if as many as by drawing at random. People who answered can't tell are not in it."
    )
    header = ["question", "most named option", "people", "named it", "same option", "kappa"]
    return [TextTable("Agreement by test question", header, rows, note, 2)]


def _kappa(one: Measured) -> str:
    if math.isnan(one.value):
        return "-"
    return f"{one.value:z.3f} [{one.low:z.3f}, {one.high:z.3f}]".replace("-", "−")


def _short(text: str) -> str:
    text = text.replace("|", r"\|")
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 3]}..."


def excluded_people(tables: StudyTables, arms: Sequence[str]) -> list[Section]:
    """The rule, and how many it excludes in each arm, with attention checks failed."""
    rule: dict[str, Any] = tables.study.get("exclusions") or {}
    title = "Exclusions"
    if not rule and not tables.study["attention"]:
        return [Text(["The study has neither attention checks nor a rule ([exclusions] in study.toml)."], title)]
    finished = [row for row in tables.participants if row["status"] == "finished"]
    rows = []
    for arm in [*arms, *([""] if len(arms) > 1 else [])]:
        people = [row for row in finished if arm in ("", row["arm"])]
        reasons = [(row.get("excluded") or "").split(", ") for row in people]
        out = sum(one != [""] for one in reasons)
        failed = sum(row["attention_passed"] < row["attention_asked"] for row in people)
        by = [str(sum(name in one for one in reasons)) for name in rule]
        rows.append([arm or "all", str(len(people)), str(failed), *by, str(out), str(len(people) - out)])
    said = f"Excluded: {'; '.join(rule_of(rule))}." if rule else "No rule: study.toml has no table [exclusions]."
    more = " Who meets several parts of the rule is in several columns." if len(rule) > 1 else ""
    if rule and without_excluded(tables) is None:
        more = " Nobody is: the arms compared above are those after exclusions, too."
    note = f"Participants who finished. {said}{more}"
    header = ["arm", "finished", "failed a check", *(f"out: {REASONS[name]}" for name in rule), "excluded", "left"]
    return [TextTable(title, header, rows, note, 1)]


def without_excluded(tables: StudyTables) -> StudyTables | None:
    """The tables without participants whom the rule excludes; None: it excludes nobody who finished."""
    if not any(row.get("excluded") and row["status"] == "finished" for row in tables.participants):
        return None
    return replace(tables, participants=[row for row in tables.participants if not row.get("excluded")])
