"""Questions as pages show them, those of studies and of `edpbrl ask`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edpbrl_gym.likelihood import AnswerFormat, Input

if TYPE_CHECKING:
    from edpbrl_gym.session import Left
    from edpbrl_gym.study.web.frame import Messages

__all__ = ["LABELS", "OptionView", "QuestionView", "left_in_words", "shown_question"]

LABELS = "123456789ABC"
"""Names of the positions on the page, which are also their keys."""


@dataclass(frozen=True)
class OptionView:
    """An option at its position."""

    index: int  # its number in the question
    label: str  # name of its position
    parts: tuple[str, ...]  # its text, token by token
    picture: str | None  # address of its picture; None: the text is shown
    coming: bool = False  # whether the picture is being drawn
    alt: str = ""  # what is in the picture; empty: nothing is told about it
    failed: str | None = None  # why there will be none; such an option can't be chosen


@dataclass(frozen=True)
class QuestionView:
    """A question."""

    key: str  # idempotency key of its answer
    undo_key: str | None  # key of the answer that can be taken back; None: none can
    heading: str  # what is asked
    inputs: tuple[Input, ...]  # what a person gives
    drawn: str  # how: "option" (a card), "options" (buttons on it), "order", "levels"
    practice: bool  # whether its answer does not count
    options: tuple[OptionView, ...]  # in the order of the page
    cant_tell: bool  # whether "can't tell" is an answer
    keys: str  # keys of the options or levels
    hint: str  # name of the message about the keys


def left_in_words(left: Left, messages: Messages) -> str:
    """About how many questions are left, which is known, with the range."""
    if left.reach is None:
        return messages("left", number=left.questions)
    low, high = left.reach
    return messages("left_range", number=left.questions, low=low, high=high)


def shown_question(
    format: AnswerFormat,
    options: Sequence[OptionView],
    *,
    key: str,
    undo_key: str | None,
    heading: str,
    cant_tell: bool = True,
    practice: bool = False,
) -> QuestionView:
    """What a page shows of a question with an answer format."""
    return QuestionView(
        key=key,
        undo_key=undo_key,
        heading=heading,
        inputs=format.inputs,
        drawn=format.inputs[0].kind + "s" * (len(format.inputs) > 1),
        practice=practice,
        options=tuple(options),
        cant_tell=cant_tell,
        keys=LABELS[: format.keys(len(options)).last],
        hint=format.texts.keys,
    )
