"""The columns of long tables, recognised by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["KEYS", "Layout", "find_layout", "plain_name"]

KEYS: dict[str, tuple[str, ...]] = {
    "person": (
        "person", "personid", "respondent", "respondentid", "respid", "participant", "participantid", "individual",
        "individualid", "indid", "ind", "user", "userid", "subject", "subjectid", "pid", "worker", "workerid", "panel",
        "panelid", "household", "householdid", "hhid", "decisionmaker", "customer", "customerid", "id",
    ),
    "question": (
        "question", "questionid", "chid", "choiceid", "choiceset", "choicesetid", "choicesituation", "situation",
        "task", "taskid", "case", "caseid", "qid", "obsid", "observation", "observationid", "obs", "set", "setid",
        "scenario", "scenarioid", "customid", "sessionid", "queryid",
    ),
    "option": (
        "option", "optionid", "alt", "altid", "alternative", "alternativeid", "altname", "item", "itemid", "modeid",
        "profile", "profileid", "mode",
    ),
    "chosen": ("chosen", "choice", "selected", "ischosen", "chose", "picked", "decision"),
    "rank": ("rank", "ranking", "place"),
    "available": ("available", "availability", "avail", "av", "isavailable"),
    "text": ("text", "optiontext"),
}  # fmt: skip
"""Key -> names of its column, without case, spaces and signs; the first that is there is taken."""


@dataclass(frozen=True)
class Layout:
    """The columns of a long table.

    Attributes:
        question: Column of the question; numbers may begin anew with every person.
        chosen: Column that says what was chosen; None where ``rank`` does.
        person: Column of the person; None: one person.
        option: Column of the option; None: they have no names.
        rank: Column of the ranks, 1 the best, empty where an option was not ranked.
        available: Column that is false for options that could not be chosen.
        text: Column of the options' texts.
    """

    question: str = "question"
    chosen: str | None = "chosen"
    person: str | None = "person"
    option: str | None = "option"
    rank: str | None = None
    available: str | None = None
    text: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that are no attributes."""
        keys = self.person, self.question, self.option, self.chosen, self.rank, self.available, self.text
        return tuple(key for key in keys if key is not None)


def plain_name(name: str) -> str:
    """The name without case, spaces and signs."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_layout(columns: Sequence[str]) -> Layout | None:
    """The layout of a long table with these columns; None: it is none."""
    plain = {plain_name(name): name for name in reversed(columns)}
    if any(name in columns for name in ("option_1", "choice_1")):
        return None
    found = {key: next((plain[name] for name in names if name in plain), None) for key, names in KEYS.items()}
    person = "" if found["person"] is None else plain_name(found["person"])
    if found["question"] is None and person in ("id", "individual"):
        found["question"], found["person"] = found["person"], None  # a number for each question is all there is
    if found["question"] is None or (found["chosen"] is None and found["rank"] is None):
        return None
    return Layout(**found)  # type: ignore[arg-type]
