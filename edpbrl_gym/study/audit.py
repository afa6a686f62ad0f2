"""An audit of one participant's session: every question is made once more from the answers before it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.export_tables import answer_rows, event_rows
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.records import History, Record
from edpbrl_gym.study.replacing import REPLACED, as_planned, number_replaced
from edpbrl_gym.study.schedule import Chosen, choose, schedule
from edpbrl_gym.study.visits import Visit

__all__ = ["Audit", "AuditedEvent", "AuditedQuestion", "audit"]


@dataclass(frozen=True)
class AuditedQuestion:
    """A question as it was asked and answered, and whether it is made again.

    Attributes:
        answer: What was answered: the options by position on the page, from 1, best first; for best_worst best, worst;
            empty without an answer, for "can't tell" and for a skip.
        differences: What differs from the question that the study would ask today after the answers before it, one
            sentence each; none: the same question in the same order.
    """

    row: dict[str, Any]  # its row of ``ANSWERS`` in an export
    shown: tuple[str, ...]  # the options in the order of the positions on the page
    answer: tuple[int, ...]
    differences: tuple[str, ...]
    at: float  # seconds from consent until it was shown; that of the question before if it never was
    replaced: dict[str, str]  # texts without a picture, for which it was replaced before anybody saw it, and why


@dataclass(frozen=True)
class AuditedEvent:
    """Something that happened beside the questions: a row of ``EVENTS``."""

    row: dict[str, Any]

    @property
    def at(self) -> float:
        """Seconds from consent; minus infinity without consent."""
        after = self.row["after_s"]
        return float("-inf") if after is None else float(after)


@dataclass(frozen=True)
class Audit:
    """The session of a participant."""

    participant: str  # pseudonym
    arm: str  # name of the arm
    planner: str | None  # its planner; None if the configuration has no such arm any more
    status: str  # status of the participant
    consent_version: str | None  # version of the consent text that was agreed to
    steps: tuple[AuditedQuestion | AuditedEvent, ...]  # questions and events in the order in which they happened

    @property
    def questions(self) -> tuple[AuditedQuestion, ...]:
        return tuple(step for step in self.steps if isinstance(step, AuditedQuestion))

    @property
    def different(self) -> int:
        """Number of questions that are not made again."""
        return sum(bool(question.differences) for question in self.questions)

    def as_json(self) -> dict[str, Any]:
        """The audit as JSON can hold it."""
        steps = [
            {"event": step.row}
            if isinstance(step, AuditedEvent)
            else {
                "question": step.row,
                "shown": list(step.shown),
                "answer": list(step.answer),
                "replaced": step.replaced,
                "reproduced": not step.differences,
                "differences": list(step.differences),
            }
            for step in self.steps
        ]
        document = {
            name: getattr(self, name) for name in ("participant", "arm", "planner", "status", "consent_version")
        }
        return {**document, "questions": len(self.questions), "different": self.different, "steps": steps}


def audit(name: str, record: Record, materials: Materials) -> Audit:
    """Go through a participant's session once more.

    Every question is compared with the one that the study asks there: its kind and place in the order, its options,
    their positions, what an attention check asks for. The planner of a question that counts is told the stored answers
    before it, those taken back later included while they stood; where it would ask something else, the audit goes on
    with what was asked. Where questions are posted, one that counts is the one that was posted. One that was replaced
    is made again too, and so is the one in its place.
    """
    participant = record.participant
    arms = {arm.name: arm for arm in materials.config.arms}
    arm = arms.get(participant.arm)
    visit = None if arm is None else Visit(materials, participant, arm)
    count = None if arm is None else kind_of(arm).count(lambda: len(record.posts))
    slots = schedule(materials.config, participant.number, count)
    struck = {one["detail"]["question"]: one["detail"] for one in record.events if one["kind"] == REPLACED}
    replaced: list[dict[str, Any]] = []
    before: History = []
    questions = []
    at = 0.0
    for row, (question, answer) in zip(answer_rows(name, participant, record.history), record.history, strict=True):
        del before[question.number :]  # taken back
        replaced = [detail for detail in replaced if detail["number"] <= question.number]
        differences: tuple[str, ...]
        if arm is None or visit is None:
            differences = (f"the configuration has no arm {participant.arm!r} any more",)
        elif question.number >= len(slots):
            differences = (f"the configuration asks {len(slots)} questions only",)
        else:
            slot = slots[question.number]
            post = kind_of(arm).post(record.posts.__getitem__, slot.index) if slot.kind == "normal" else None
            made = choose(
                materials,
                participant,
                slot,
                before,
                partial(_chosen, visit, list(replaced)),
                post,
                number_replaced(replaced, question.number),
            )
            differences = _differences(made, question)
        order = () if answer is None else answer.response.order
        questions.append(
            AuditedQuestion(
                row,
                tuple(question.texts[option] for option in question.positions),
                tuple(question.positions.index(option) + 1 for option in order),
                differences,
                at := at if row["shown_s"] is None else row["shown_s"],
                dict(struck[question.id]["why"]) if question.id in struck else {},
            )
        )
        if question.id in struck:
            replaced.append(struck[question.id])
        else:
            before.append((question, answer))
    told = [one for one in record.events if one["kind"] != REPLACED]  # with their questions
    happened = [AuditedEvent(row) for row in event_rows(name, participant, told, identified=True)]
    steps: list[AuditedQuestion | AuditedEvent] = sorted([*happened, *questions], key=lambda step: step.at)
    planner = None if arm is None else arm.planner
    return Audit(name, participant.arm, planner, participant.status, participant.consent_version, tuple(steps))


def _chosen(visit: Visit, replaced: list[dict[str, Any]], before: History) -> NDArray[np.int64]:
    return visit.choose(as_planned(before, replaced))


def _differences(made: Chosen, asked: Any) -> tuple[str, ...]:
    """What a stored question has that the one made now has not."""
    if made.kind != asked.kind:
        return (f"expected a question of the kind {made.kind}, this one is {asked.kind}",)
    found = []
    if made.tokens != asked.tokens or made.texts != asked.texts:
        found.append(f"expected the options {'; '.join(made.texts)}")
    if made.positions != asked.positions:
        found.append(f"expected the positions {[option + 1 for option in made.positions]}")
    if made.expected != asked.expected:
        expected = "none" if made.expected is None else made.texts[made.expected]
        found.append(f"expected to ask for {expected}")
    if made.repeat_of != asked.repeat_of:
        found.append("expected to repeat another question")
    return tuple(found)
