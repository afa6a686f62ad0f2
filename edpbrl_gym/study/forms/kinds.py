"""The kinds of questions of a page: what they need, what a form may say, what an export has of them."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from edpbrl_gym.study.forms.conditions import RATHER_NOT, Answer, Condition, Test
from edpbrl_gym.study.forms.lists import LISTS, list_choices

if TYPE_CHECKING:
    from edpbrl_gym.study.config_reading import Table

__all__ = ["KINDS", "Choice", "Choices", "LongText", "Number", "PageQuestion", "RefusedError", "Scale", "ShortText"]

NOT = "not"  # in a field: would rather not say
_SELECT = 9  # choices beyond which they are in a list that opens


class RefusedError(ValueError):
    """An answer that can't be taken: the name of the message that says so, and its values."""

    def __init__(self, message: str, **values: Any) -> None:
        super().__init__(message)
        self.message, self.values = message, values


@dataclass(frozen=True, kw_only=True)
class PageQuestion(ABC):
    """A question of a page."""

    kind: ClassVar[str]  # name in a configuration
    seconds: ClassVar[float]  # for an answer, an assumption
    types: ClassVar[tuple[type, ...]]  # of its answers
    name: str  # unique on its page
    text: str  # what is asked
    help: str = ""  # below it
    required: bool = True  # whether it must be answered
    rather_not: bool = False  # whether "I would rather not say" is an answer
    show_if: tuple[Condition, ...] = ()  # conditions under which it is asked
    accept: Test | None = None  # what the answer must be for the participant to go on

    @property
    def field(self) -> str:
        """Name of its field in the form."""
        return f"q-{self.name}"

    @property
    def not_field(self) -> str:
        """Name of the field that says "rather not say"."""
        return f"{self.field}-{NOT}"

    def given(self, form: Mapping[str, str]) -> Answer:
        """What a form says.

        Raises:
            RefusedError: It says nothing that can be taken.
        """
        answer = self._read(form)
        if self.rather_not and (form.get(self.field) == NOT or form.get(self.not_field)):
            if answer is not None:
                raise RefusedError("page_both")
            return RATHER_NOT
        if answer is None and self.required:
            raise RefusedError("page_required")
        return answer

    @property
    def parts(self) -> tuple[str, ...]:
        """All texts that participants see of it."""
        return tuple(text for text in (self.text, self.help, *self._parts()) if text)

    def test_of(self, key: str, value: Any) -> str | None:
        """What a value of a condition's key must be; None: it may be this."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return "a number"
        return None

    @abstractmethod
    def _read(self, form: Mapping[str, str]) -> Answer:
        """What the fields say; None: nothing."""

    def _parts(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def columns(self) -> list[tuple[str, str, str]]:
        """Its columns in an export: end of the name, type, meaning."""

    def cells(self, answer: Answer) -> dict[str, Any]:
        """The cells of an answer, by the ends of the names."""
        return {"": answer}

    @property
    def fields(self) -> int:
        """Number of its fields in a form, at most."""
        return 2

    @classmethod
    @abstractmethod
    def read(cls, table: Table, common: dict[str, Any]) -> PageQuestion:
        """The question of a configuration's table, with what all kinds have."""


@dataclass(frozen=True, kw_only=True)
class _OfChoices(PageQuestion):
    choices: tuple[str, ...]
    listed: str | None = None  # name of a list of choices

    def _parts(self) -> tuple[str, ...]:
        return () if self.listed else self.choices

    def test_of(self, key: str, value: Any) -> str | None:
        if key not in ("is", "is_not"):
            return "one of the keys is, is_not"
        return None if value in self.choices else f"one of its choices, such as {self.choices[0]!r}"

    def _meaning(self) -> str:
        return f"the list {self.listed}" if self.listed else "; ".join(self.choices)

    @classmethod
    def read(cls, table: Table, common: dict[str, Any]) -> PageQuestion:
        value = table.value("choices")
        if isinstance(value, str) and value in LISTS:
            return cls(**common, choices=list_choices(value), listed=value)
        of = f"choices, or the name of a list ({', '.join(LISTS)})"
        if value is None:
            table.note("choices", f"a list of {of}", "add it")
        choices = table.texts("choices", ("", " "), of=of, least=2)
        return cls(**common, choices=choices)


@dataclass(frozen=True, kw_only=True)
class Choice(_OfChoices):
    """One of several choices."""

    kind = "choice"
    types = (str,)
    seconds = 5.0

    @property
    def is_opened(self) -> bool:
        """Whether the choices are in a list that opens."""
        return len(self.choices) > _SELECT

    def _read(self, form: Mapping[str, str]) -> Answer:
        place = _index(form.get(self.field, ""), len(self.choices))
        return None if place is None else self.choices[place]

    def columns(self) -> list[tuple[str, str, str]]:
        return [("", "text", f"{self.text} One of: {self._meaning()}")]


@dataclass(frozen=True, kw_only=True)
class Choices(_OfChoices):
    """Any number of several choices, or between two numbers."""

    kind = "choices"
    types = (list,)
    seconds = 8.0
    least: int = 0  # choices, if any are made
    most: int | None = None

    def _read(self, form: Mapping[str, str]) -> Answer:
        found = [one for place, one in enumerate(self.choices) if form.get(f"{self.field}-{place}")]
        if not found:
            return None
        if len(found) < self.least:
            raise RefusedError("page_few", number=self.least)
        if self.most is not None and len(found) > self.most:
            raise RefusedError("page_many", number=self.most)
        return found

    @property
    def fields(self) -> int:
        return len(self.choices) + 1

    def columns(self) -> list[tuple[str, str, str]]:
        return [
            (f".{number}", "boolean", f"{self.text} Whether chosen: {one}")
            for number, one in enumerate(self.choices, 1)
        ]

    def cells(self, answer: Answer) -> dict[str, Any]:
        return {f".{number}": one in answer for number, one in enumerate(self.choices, 1)}

    @classmethod
    def read(cls, table: Table, common: dict[str, Any]) -> PageQuestion:
        question = super().read(table, common)
        assert isinstance(question, Choices)
        count = len(question.choices)
        least = table.integer("at_least", 0, minimum=0, maximum=count)
        most = table.integer("at_most", count, minimum=max(1, least), maximum=count)
        return cls(**{**vars(question), "least": least, "most": most})


@dataclass(frozen=True, kw_only=True)
class Scale(PageQuestion):
    """A point of a scale with labelled ends."""

    kind = "scale"
    types = (int,)
    seconds = 5.0
    least: int
    most: int
    step: int
    low: str  # label of the first point
    high: str  # label of the last one
    labels: tuple[str, ...] = ()  # of all points, or none

    @property
    def points(self) -> tuple[int, ...]:
        return tuple(range(self.least, self.most + 1, self.step))

    def _parts(self) -> tuple[str, ...]:
        return (self.low, self.high, *self.labels)

    def _read(self, form: Mapping[str, str]) -> Answer:
        place = _index(form.get(self.field, ""), len(self.points))
        return None if place is None else self.points[place]

    def columns(self) -> list[tuple[str, str, str]]:
        ends = [f"{point}: {label}" for point, label in ((self.least, self.low), (self.most, self.high)) if label]
        ends = [f"{point}: {label}" for point, label in zip(self.points, self.labels, strict=False)] or ends
        by = f" in steps of {self.step}" if self.step > 1 else ""
        return [("", "integer", f"{self.text} {self.least} to {self.most}{by}{'; ' if ends else ''}{'; '.join(ends)}")]

    @classmethod
    def read(cls, table: Table, common: dict[str, Any]) -> PageQuestion:
        labels = table.texts("labels", (), of="labels of all points", least=2)
        least = table.integer("from", 1, minimum=-1000)
        step = table.integer("step", 1, minimum=1)
        most = table.integer("to", least + step * (len(labels) or 5) - step, minimum=least + step)
        count = (most - least) // step + 1
        if (most - least) % step or count > _POINTS:
            table.note("to", f"at most {_POINTS} points from {least} in steps of {step}", "ask for a number instead")
        if labels and len(labels) != count:
            table.note("labels", f"a label for each of the {count} points from {least} to {most}")
        low, high = (table.text(name, "", of="the label of an end", empty=True) for name in ("low", "high"))
        return cls(**common, least=least, most=most, step=step, low=low, high=high, labels=labels)


@dataclass(frozen=True, kw_only=True)
class Number(PageQuestion):
    """A number in a range."""

    kind = "number"
    types = (int, float)
    seconds = 5.0
    least: float
    most: float
    whole: bool

    @property
    def ends(self) -> dict[str, str]:
        return {"least": f"{self.least:g}", "most": f"{self.most:g}"}

    def _read(self, form: Mapping[str, str]) -> Answer:
        text = form.get(self.field, "").strip()
        if not text:
            return None
        plain = "".join(str(unicodedata.digit(one)) if one.isdecimal() else one for one in text)
        plain = plain.replace("\u2212", "-").replace("\u066b", ".")
        if self.whole and not re.fullmatch(r"[+-]?[0-9]{1,15}", plain):
            raise RefusedError("page_whole", **self.ends)
        if not re.fullmatch(r"[+-]?[0-9]{1,15}([.,][0-9]{1,9})?", plain):
            raise RefusedError("page_number", **self.ends)
        value = int(plain) if self.whole else float(plain.replace(",", "."))
        if not self.least <= value <= self.most:
            raise RefusedError("page_range", **self.ends)
        return value

    def columns(self) -> list[tuple[str, str, str]]:
        return [("", "integer" if self.whole else "number", f"{self.text} {self.least:g} to {self.most:g}")]

    @classmethod
    def read(cls, table: Table, common: dict[str, Any]) -> PageQuestion:
        for name in ("least", "most"):
            if not table.has(name):
                table.note(name, "a number, the end of the range", "add it")
        least = table.number("least", 0.0, minimum=-1e12, maximum=1e12)
        most = table.number("most", max(least, 100.0), minimum=least, maximum=1e12)
        return cls(**common, least=least, most=most, whole=table.flag("whole", True))


@dataclass(frozen=True, kw_only=True)
class ShortText(PageQuestion):
    """A text of one line."""

    kind = "short_text"
    types = (str,)
    seconds = 10.0
    length: int  # most characters, as browsers count them

    def test_of(self, key: str, value: Any) -> str | None:
        return "a question of another kind than a text"

    def _read(self, form: Mapping[str, str]) -> Answer:
        text = form.get(self.field, "").replace("\r\n", "\n").strip()
        count = len(text.encode("utf-16-le")) // 2
        if count > self.length:
            raise RefusedError("page_long", most=self.length, count=count)
        return text or None

    def columns(self) -> list[tuple[str, str, str]]:
        return [("", "text", self.text)]

    @classmethod
    def _longest(cls) -> tuple[int, int]:
        return 200, 500

    @classmethod
    def read(cls, table: Table, common: dict[str, Any]) -> PageQuestion:
        default, most = cls._longest()
        return cls(**common, length=table.integer("length", default, minimum=1, maximum=most))


@dataclass(frozen=True, kw_only=True)
class LongText(ShortText):
    """A text of several lines."""

    kind = "long_text"
    seconds = 40.0

    @classmethod
    def _longest(cls) -> tuple[int, int]:
        return 2000, MAX_TEXT


MAX_TEXT = 5000
"""Characters of all texts of a page, which fit into a form in any language."""
_POINTS = 25
KINDS: dict[str, type[PageQuestion]] = {one.kind: one for one in (Choice, Choices, Scale, Number, ShortText, LongText)}


def _index(value: str, count: int) -> int | None:
    """The place that a field names; None: none."""
    if not (value.isascii() and value.isdigit() and len(value) <= 4 and int(value) < count):
        return None
    return int(value)
