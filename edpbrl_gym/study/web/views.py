"""What the page of a question shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.records import StoredQuestion
from edpbrl_gym.study.style import Style
from edpbrl_gym.study.web.messages import Messages
from edpbrl_gym.vocabulary import SEPARATOR

__all__ = ["LABELS", "GroupView", "OptionView", "QuestionView", "view_groups", "view_question"]

LABELS = "123456789ABC"
"""Names of the positions on the page, which are also their keys."""


@dataclass(frozen=True)
class OptionView:
    """An option at its position.

    Attributes:
        index: Its number in the question.
        label: Name of its position.
        parts: Its text, token by token.
        picture: Address of its picture; None: the text is shown.
    """

    index: int
    label: str
    parts: tuple[str, ...]
    picture: str | None


@dataclass(frozen=True)
class QuestionView:
    """A question.

    Attributes:
        key: Idempotency key of its answer.
        undo_key: Key of the answer that can be taken back; None: none can.
        heading: What is asked.
        format: How it is answered.
        practice: Whether its answer does not count.
        options: In the order of the page.
        cant_tell: Whether "can't tell" is an answer.
        keys: Keys of the options.
        hint: Name of the message about the keys.
    """

    key: str
    undo_key: str | None
    heading: str
    format: str
    practice: bool
    options: tuple[OptionView, ...]
    cant_tell: bool
    keys: str
    hint: str


def view_question(
    question: StoredQuestion,
    config: StudyConfig,
    messages: Messages,
    *,
    undo_key: str | None,
    pictures: list[str] | None = None,
) -> QuestionView:
    """What a page shows of a question.

    Args:
        question: The question.
        config: Configuration of the study.
        messages: Texts of the page.
        undo_key: Key of the answer that can be taken back.
        pictures: Address of the picture of each option, K of them; None: texts are shown.
    """
    format = config.questions.format
    options = tuple(
        OptionView(
            option,
            LABELS[position],
            tuple(question.texts[option].split(SEPARATOR)),
            None if pictures is None else pictures[option],
        )
        for position, option in enumerate(question.positions)
    )
    heading = messages(f"question_{format}")
    if question.expected is not None:
        name = {"best": "question_attention", "best_worst": "question_attention_best"}
        label = LABELS[question.positions.index(question.expected)]
        heading = messages(name.get(format, "question_attention_first"), number=label)
    hints = {"best": "keys_best", "best_worst": "keys_best_worst"}
    return QuestionView(
        key=question.key,
        undo_key=undo_key,
        heading=heading,
        format=format,
        practice=question.kind == "practice",
        options=options,
        cant_tell=config.questions.cant_tell,
        keys=LABELS[: len(options)],
        hint=hints.get(format, "keys_order"),
    )


@dataclass(frozen=True)
class GroupView:
    """A group of prompts of the last question.

    Attributes:
        label: "A" or "B".
        is_learnt: Whether they are those of the learnt taste; shown after the choice only.
        prompts: The prompts, token by token.
        pictures: Addresses of their pictures; None: the prompts are shown.
    """

    label: str
    is_learnt: bool
    prompts: tuple[tuple[str, ...], ...]
    pictures: tuple[str, ...] | None


def view_groups(style: Style, pictures: Callable[[Sequence[str]], list[str] | None]) -> list[GroupView]:
    """What the last page shows of a learnt taste; ``pictures`` gives the addresses of the pictures of prompts."""
    views = []
    for label, (name, prompts) in zip("AB", style.groups, strict=True):
        addresses = pictures(prompts)
        parts = tuple(tuple(text.split(SEPARATOR)) for text in prompts)
        views.append(GroupView(label, name == "learnt", parts, None if addresses is None else tuple(addresses)))
    return views
