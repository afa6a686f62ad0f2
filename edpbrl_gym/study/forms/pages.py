"""Pages of questions: when each is due, what a form says of it, what was answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from edpbrl_gym.study.forms.conditions import Answer, Condition, all_hold
from edpbrl_gym.study.forms.kinds import PageQuestion, RefusedError

__all__ = [
    "CHECKED",
    "PAGE",
    "PLACES",
    "Due",
    "Page",
    "PageForm",
    "Place",
    "answers_of",
    "due",
    "due_among_choices",
    "entries_of",
    "read_form",
]

PAGE, CHECKED = "page", "comprehension"
"""Kinds of events: what a participant answered on a page; an attempt at one whose answers may not be accepted."""
Place = Literal["start", "instructions", "before", "between", "after"]
PLACES: dict[Place, str] = {
    "start": "after the consent",
    "instructions": "below the instructions",
    "before": "before the first choice",
    "between": "between the choices",
    "after": "after the last choice, before thanks and code",
}
"""Where a page may be, in this order."""
Entries = Mapping[str, Mapping[str, Any]]
"""Details of the events of pages, by their keys."""


@dataclass(frozen=True)
class Page:
    """A page of questions, or of text alone."""

    name: str  # unique in the study
    place: Place
    title: str
    text: str  # Markdown above the questions
    questions: tuple[PageQuestion, ...]
    after: int | None = None  # of a page between: answers before it
    every: int | None = None  # instead: it comes again after each so many
    show_if: tuple[Condition, ...] = ()
    attempts: int = 1  # to give answers that are accepted
    translations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by language, of its instrument

    @property
    def is_check(self) -> bool:
        """Whether some of its answers let nobody go on."""
        return any(one.accept is not None for one in self.questions)

    @property
    def parts(self) -> tuple[str, ...]:
        """All texts that participants see."""
        return tuple(text for text in (self.title, self.text) if text) + tuple(
            text for one in self.questions for text in one.parts
        )

    @property
    def order(self) -> tuple[int, int]:
        """By this pages come before others."""
        return list(PLACES).index(self.place), self.after or self.every or 0

    def asked(self, answers: Mapping[str, Answer]) -> tuple[PageQuestion, ...]:
        """The questions whose conditions hold."""
        return tuple(one for one in self.questions if all_hold(one.show_if, answers))

    def times(self, total: int) -> int:
        """How often it is shown at most, among so many choices."""
        return 1 if self.every is None else (total - 1) // self.every


@dataclass(frozen=True)
class Due:
    """A page that a participant has to answer now."""

    page: Page
    key: str  # of this time: the page's name, with a number if it comes again
    answers: Mapping[str, Answer]  # all before it, by PAGE.QUESTION


def entries_of(events: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """What was answered on pages, of the events of a participant."""
    found: dict[str, Mapping[str, Any]] = {}
    for event in events:
        if event["kind"] == PAGE:
            found.setdefault(event["detail"]["page"], event["detail"])
    return found


def answers_of(entries: Entries) -> dict[str, Answer]:
    """Answers by PAGE.QUESTION; of a page that came again the last ones."""
    return {
        f"{key.partition('.')[0]}.{name}": answer
        for key, detail in entries.items()
        for name, answer in detail["answers"].items()
    }


def due(pages: Sequence[Page], place: Place, entries: Entries, *, answered: int = 0, total: int = 0) -> Due | None:
    """The page of a place that comes next; None: there is none (left).

    Args:
        pages: All pages of the study.
        place: Where the participant is.
        entries: What was answered on pages.
        answered: Number of the participant's answers to choices, practice and checks included.
        total: Largest number of them.
    """
    answers = answers_of(entries)
    for page in pages:
        if page.place != place or not all_hold(page.show_if, answers):
            continue
        key = page.name
        if page.every is not None:
            if answered == 0 or answered % page.every or answered >= total:
                continue
            key = f"{page.name}.{answered // page.every}"
        elif page.after is not None and answered != page.after:
            continue
        has_content = page.text or page.asked(answers) or not page.questions
        if key not in entries and has_content:
            return Due(page, key, answers)
    return None


def due_among_choices(pages: Sequence[Page], entries: Entries, answered: int, total: int) -> Due | None:
    """The page that comes before the next choice of somebody who has read the instructions; see ``due``."""
    return due(pages, "between" if answered else "before", entries, answered=answered, total=total)


@dataclass(frozen=True)
class PageForm:
    """What a form says of a page.

    Attributes:
        answers: By question, of those that are asked.
        problems: By question, the name of the message that says why its answer can't be taken, and its values.
        new: Whether questions are asked that the form did not show, because of what it says.
        wrong: Questions whose answer is not accepted.
    """

    answers: dict[str, Answer]
    problems: dict[str, tuple[str, dict[str, Any]]]
    new: bool
    wrong: tuple[str, ...]

    @property
    def asked(self) -> tuple[str, ...]:
        """The questions that are asked."""
        return tuple(self.answers)


def read_form(page: Page, form: Mapping[str, str], before: Mapping[str, Answer]) -> PageForm:
    """Read a form; whether a question is asked depends on the answers to those above it and on pages ``before``."""
    shown = set(form.get("shown", "").split())
    known = dict(before)
    answers: dict[str, Answer] = {}
    problems: dict[str, tuple[str, dict[str, Any]]] = {}
    new = False
    for question in page.questions:
        if not all_hold(question.show_if, known):
            known.pop(f"{page.name}.{question.name}", None)
            continue
        answers[question.name] = None
        if question.name not in shown:
            new = True
            continue
        try:
            answers[question.name] = question.given(form)
        except RefusedError as error:
            problems[question.name] = error.message, error.values
        known[f"{page.name}.{question.name}"] = answers[question.name]
    wrong = [
        one.name for one in page.questions
        if one.name in answers and one.accept is not None and not one.accept.passes(answers[one.name])
    ]  # fmt: skip
    return PageForm(answers, problems, new, tuple(wrong))
