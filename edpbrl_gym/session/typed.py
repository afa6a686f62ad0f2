"""Answers as people type them: the numbers of options, from 1, or a letter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from edpbrl_gym.likelihood import AnswerFormat, Response, make_format

__all__ = ["AnswerForm", "Taps", "Wish", "in_words"]


class Wish(Enum):
    """What a person types in place of an answer."""

    UNDO = "u"
    SKIP = "s"
    STOP = "q"


_WISHES = {
    **dict.fromkeys(("u", "undo"), Wish.UNDO),
    **dict.fromkeys(("s", "skip"), Wish.SKIP),
    **dict.fromkeys(("q", "quit", "stop"), Wish.STOP),
}


@dataclass(frozen=True)
class AnswerForm:
    """What a person may type as an answer to a question.

    Attributes:
        format: The format.
        num_options: K.
    """

    format: AnswerFormat
    num_options: int

    @classmethod
    def named(cls, name: str, num_options: int, levels: int | None = None) -> AnswerForm:
        """The form of a format by its name, with - or _ between words; where people type, "best" takes rankings too.

        ``levels`` are those of ratings, None: the format's own.

        Raises:
            ValueError: The name is unknown, or K less than the format needs to say more than the best option.
        """
        options = {} if levels is None else {"levels": levels}
        return cls(make_format(name.replace("-", "_"), **options).spoken(num_options), num_options)

    @property
    def expected(self) -> str:
        """What to type, for messages."""
        return f"{self.format.words(self.num_options).expected}, or u (undo), s (can't tell), q (stop)"

    def read(self, line: str) -> Response | Wish:
        """Read a typed line, such as "3", "2 5" or "u".

        Raises:
            ValueError: It is no answer of this form; the message says what was expected.
        """
        text = line.strip().lower()
        if text in _WISHES:
            return _WISHES[text]
        try:
            return self.format.typed(text, self.num_options)
        except ValueError:
            got = f"{line.strip()[:60]!r}" if text else "an empty line"
            raise ValueError(f"Expected {self.expected}; got {got}") from None


def in_words(response: Response) -> str:
    """An answer as it is typed: "3", "2 5", "3 1 4"; "can't tell" for one that names no option."""
    return " ".join(map(str, response.numbers)) or "can't tell"


class Taps:
    """An answer given key by key: digits name options, R begins a ranking, Enter ends it, Backspace takes one back.

    Args:
        form: What may be answered.

    Attributes:
        numbers: Digits tapped so far, from 0.
        ranking: Whether the taps are an order, which Enter ends.
        own: Whether the person chose to give an order.

    Raises:
        ValueError: Numbers above 9, which are no single keys.
    """

    def __init__(self, form: AnswerForm) -> None:
        self.form, self.keys = form, form.format.keys(form.num_options)
        if self.keys.last > 9:
            raise ValueError(f"Expected at most 9 options for single keys, got K = {self.keys.last}")
        self.numbers: list[int] = []
        self.ranking = not self.keys.taps

    @property
    def own(self) -> bool:
        return self.ranking and bool(self.keys.taps)

    def press(self, key: str) -> Response | Wish | None:
        """Press a key: a character, "enter" or "backspace"; other keys do nothing.

        Returns:
            The answer or wish that is now complete, None before that.
        """
        key = key.lower()
        if key.isascii() and key.isdecimal() and 1 <= int(key) <= self.keys.last:
            return self._tap(int(key) - 1)
        if key == "enter" and self.ranking and self.numbers:
            return self._said()
        if key in ("backspace", "u") and (self.numbers or self.own):
            if self.numbers:
                self.numbers.pop()
            else:
                self.ranking = False
        elif key == "r" and self.keys.order:
            self.ranking = True
        elif key in ("u", "s", "q"):
            return Wish(key)
        return None

    def _tap(self, number: int) -> Response | None:
        if number in self.numbers and not self.keys.again:
            return None
        self.numbers.append(number)
        last = self.keys.order if self.ranking else self.keys.taps
        return self._said() if len(self.numbers) == last else None

    def _said(self) -> Response:
        return self.form.format.said(self.numbers, self.form.num_options)
