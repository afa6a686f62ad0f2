"""What the pages of `edpbrl ask` show: questions, how sure the answers make it, and the best prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edpbrl_gym.asking.conversation import Asked, Certainty
from edpbrl_gym.likelihood import Input
from edpbrl_gym.study.web.frame import Messages
from edpbrl_gym.study.web.questions import LABELS, OptionView, QuestionView, left_in_words, shown_question
from edpbrl_gym.vocabulary import SEPARATOR

if TYPE_CHECKING:
    from edpbrl_gym.asking.app import Site
    from edpbrl_gym.asking.pool_pictures import PoolPictures

__all__ = ["BestView", "in_words", "view_best", "view_question"]

_HINTS = {"option": "ask_keys_best", "levels": "ask_keys_levels"}


def view_question(site: Site, asked: Asked, messages: Messages) -> QuestionView:
    """What a page shows of a question; its pictures are drawn before all others."""
    format = site.conversation.format
    options = []
    for option, text in enumerate(asked.texts):
        parts, label = tuple(text.split(SEPARATOR)), LABELS[option]
        if site.pictures is None:
            options.append(OptionView(option, label, parts, None))
            continue
        coming, failed = _drawing(site.pictures, text, messages)
        alt = f"{messages('picture', number=label)}: {text}"
        options.append(OptionView(option, label, parts, site.picture(text), coming, alt, failed))
    view = shown_question(
        format, options, key=asked.key, undo_key=asked.undo_key, heading=messages(format.texts.question)
    )
    return _with_hint(view, view.inputs[0])


def _with_hint(view: QuestionView, wanted: Input) -> QuestionView:
    if len(view.inputs) > 1 or wanted.kind not in _HINTS or (wanted.kind == "levels" and len(view.options) > 1):
        return view
    return replace(view, hint="ask_keys_like" if wanted.levels == 2 else _HINTS[wanted.kind])


def _drawing(pictures: PoolPictures, text: str, messages: Messages) -> tuple[bool, str | None]:
    """Whether a picture is being drawn, and why there will be none."""
    future = pictures.get(text)
    if not future.done():
        return True, None
    error = future.exception()
    if error is not None:
        return False, str(error)[:300] or messages("ask_failed")
    return False, messages("ask_failed") if future.result() is None else None


def in_words(certainty: Certainty | None, messages: Messages) -> str:
    """How sure the answers make it, and how many questions are left; empty: nobody knows."""
    if certainty is None:
        return ""
    sure = messages("ask_sure", percent=f"{100 * certainty.accuracy:.0f}")
    if certainty.left.questions is None:
        return f"{sure}, {messages('ask_more_than', number=certainty.left.most)}"
    left = left_in_words(certainty.left, messages) if certainty.left.questions else messages("ask_enough")
    return f"{sure}, {left}"


@dataclass(frozen=True)
class BestView:
    """A prompt of the last page."""

    parts: tuple[str, ...]
    share: int  # of 100 random ones
    picture: str | None
    coming: bool
    failed: str | None


def view_best(site: Site, text: str, share: float, messages: Messages) -> BestView:
    """What the last page shows of a prompt."""
    own = text.removeprefix(f"{site.title}{SEPARATOR}") if site.title else text  # all are of the same subject
    parts, rounded = tuple(own.split(SEPARATOR)), min(99, int(100 * share))
    if site.pictures is None:
        return BestView(parts, rounded, None, False, None)
    coming, failed = _drawing(site.pictures, text, messages)
    return BestView(parts, rounded, site.picture(text), coming, failed)
