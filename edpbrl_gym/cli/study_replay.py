"""``edpbrl study replay``."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edpbrl_gym.cli.console import bullet, output, quiet_libraries
from edpbrl_gym.cli.study import OfParticipant, find_participant, open_study

if TYPE_CHECKING:
    from edpbrl_gym.study.audit import Audit, AuditedEvent, AuditedQuestion

__all__ = ["StudyReplay", "run"]

_EVENTS = {"consent": "consented", "undo": "took an answer back", "status": "status", "sure": "sure enough",
           "comprehension": "check", "page": "answered a page", "refused": "a post was refused",
           "style_choice": "the last question", "start": "starts from those who finished before"}  # fmt: skip
_KINDS = {
    "normal": "counts",
    "attention": "attention check",
    "test": "test question",
}


@dataclass(frozen=True)
class StudyReplay(OfParticipant):
    """Audit one participant's session: every question, and whether the study asks the same again."""

    json: bool = False
    """Print JSON, with all that is stored."""


def run(options: StudyReplay) -> None:
    """Go through the session."""
    config, store = open_study(options.folder)
    from edpbrl_gym.study.audit import audit
    from edpbrl_gym.study.export_tables import pseudonym
    from edpbrl_gym.study.materials import Materials

    quiet_libraries()
    with closing(store):
        participant = find_participant(store, options.participant)
        name = pseudonym(store.secret, participant)
        materials = Materials(config)
        materials.rest_on(store)
        found = audit(name, store.record(participant.id), materials)
    console = output()
    if options.json:
        console.print(json.dumps(found.as_json(), indent=1), soft_wrap=True)
        return
    _show(console, found)


def _show(console: Any, found: Audit) -> None:
    from edpbrl_gym.study.audit import AuditedQuestion

    planner = "which the configuration has no more" if found.planner is None else f"planner {found.planner}"
    bullet(console, "Participant", found.participant)
    bullet(console, "Arm", f"{found.arm}, {planner}")
    bullet(console, "Status", f"{found.status}, consent version {found.consent_version or 'none'}")
    origin = None
    for step in found.steps:
        console.print()
        if not isinstance(step, AuditedQuestion):
            console.print(_happened(step), style="dim")
            continue
        now = (step.row["config"], step.row["code_version"])
        if None not in now and now != origin:
            console.print(f"configuration {now[0]}, edpbrl-gym {now[1]}", style="dim")
            origin = now
        _show_question(console, step)
    console.print()
    number, different = len(found.questions), found.different
    if different:
        bullet(console, "Reproduced", f"{number - different} of {number} questions; {different} differ, as said above")
    else:
        bullet(console, "Reproduced", f"all {number} questions are asked again by the same arm, seed and answers")


def _happened(step: AuditedEvent) -> str:
    kind, detail = step.row["kind"], step.row["detail"] or {}
    words = _EVENTS.get(kind, kind.replace("_", " "))
    more = ", ".join(f"{name} {value}" for name, value in detail.items())
    when = "" if step.row["after_s"] is None else f"{_clock(step.row['after_s'])}  "
    return f"{when}{words}{f': {more}' if more else ''}"


def _clock(seconds: float) -> str:
    sign, whole = ("-" if seconds < 0 else ""), abs(int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{sign}{hours:d}:{rest // 60:02d}:{rest % 60:02d}"


def _show_question(console: Any, step: AuditedQuestion) -> None:
    row = step.row
    parts = [_KINDS.get(row["kind"], row["kind"])]
    if row["repeats"] is not None:
        parts[0] += f" of asked {row['repeats']}"
    parts += ["replaced before anybody saw it"] if step.replaced else ["taken back"] if row["taken_back"] else []
    when = "never shown" if row["shown_s"] is None else _clock(row["shown_s"])
    console.print(f"{when}  asked {row['asked']}, question {row['number']}: {', '.join(parts)}", style="bold")
    expected = None if row["expected"] is None else row["positions"].index(row["expected"]) + 1
    for position, text in enumerate(step.shown, start=1):
        mark = _mark(step, position)
        asked_for = "  (to be chosen)" if position == expected else ""
        console.print(f"  {mark:>2} {position:>2}  {text}{asked_for}")
    console.print(f"     {_answered(step)}")
    for text, why in step.replaced.items():
        console.print(f"     without a picture: {text} ({why})")
    for difference in step.differences:
        console.print(f"     DIFFERS: {difference}", style="bold red")


def _mark(step: AuditedQuestion, position: int) -> str:
    """What the option at a position was named: * the best, its rank, - the worst, or its level."""
    if step.row["answer"] is None:
        return ""
    from edpbrl_gym.likelihood import Response

    response = Response.from_numbers(step.row["answer"], step.row["order"])
    return response.signs.get(step.row["positions"][position - 1] - 1, "")


def _answered(step: AuditedQuestion) -> str:
    row = step.row
    if row["answer"] is None:
        return "not answered"
    words = {"tie": "can't tell", "skip": "can't tell (skipped)"}
    parts = [words.get(row["answer"], row["answer"].replace("_", " and "))]
    if row["answer_ms"] is not None:
        first = "" if row["first_input_ms"] is None else f", first input after {row['first_input_ms'] / 1000:.1f} s"
        parts.append(f"{row['answer_ms'] / 1000:.1f} s{first}")
    elif row["answered_s"] is not None and row["shown_s"] is not None:
        parts.append(f"{row['answered_s'] - row['shown_s']:.1f} s by the server's clock")
    parts += [f"page hidden or shown {row['visibility_changes']} times"] if row["visibility_changes"] else []
    parts += [row["device"]] if row["device"] else []
    return ", ".join(parts)
