"""Answers as people type them: the numbers of options, from 1, or a letter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.likelihood import BestWorst, PartialRanking, Response, ResponseModel

__all__ = ["AnswerForm", "FormName", "Taps", "Wish", "in_words"]

FormName = Literal["best", "best-worst", "ranking"]
_TAPS = 3  # of a ranking, for the planner's information: people seldom go on


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
    """What a person may answer to a question, and what they type for it.

    Attributes:
        name: "best": one option; a person who likes may rank some or all instead. "best-worst": two options. "ranking":
            the options in order, best first, as far as the person cares to go.
        num_options: K.

    Raises:
        ValueError: The name is unknown, K < 2, or "best-worst" or "ranking" with K < 3, which "best" says already.
    """

    name: FormName
    num_options: int

    def __post_init__(self) -> None:
        check_choice_of(self.name, "format", get_args(FormName))
        check_count(self.num_options, "num_options (K)", minimum=2 if self.name == "best" else 3)

    @property
    def model(self) -> ResponseModel:
        """The response model of the answers."""
        if self.name == "best-worst":
            return BestWorst()
        return PartialRanking(1 if self.name == "best" else min(_TAPS, self.num_options - 1))

    @property
    def can_rank(self) -> bool:
        """Whether rankings are among the answers."""
        return self.name != "best-worst"

    @property
    def expected(self) -> str:
        """What to type, for messages."""
        last = self.num_options
        numbers = {
            "best": f"the number of the best option, 1 to {last}, or several numbers, best first",
            "best-worst": f"two numbers from 1 to {last}, first the best option and then the worst",
            "ranking": f"numbers from 1 to {last}, best first, as many as you like",
        }[self.name]
        return f"{numbers}, or u (undo), s (can't tell), q (stop)"

    def response(self, order: Sequence[int]) -> Response:
        """The answer that names options in order, from 0; one that leaves out the last option only is complete.

        Raises:
            ValueError: An option doesn't exist or occurs twice, or too few or too many are named.
        """
        options = tuple(order)
        if self.name == "best-worst":
            if len(options) != 2:
                raise ValueError(f"Expected the best and the worst option, got {len(options)}")
            return Response.best_worst(*options).checked(self.num_options)
        if len(options) == 1:
            return Response.best(options[0]).checked(self.num_options)
        response = Response.partial(options).checked(self.num_options)
        if len(options) >= self.num_options - 1:
            rest = sorted(set(range(self.num_options)) - set(options))
            return Response.ranking((*options, *rest))
        return response

    def read(self, line: str) -> Response | Wish:
        """Read a typed line, such as "3", "2 5" or "u".

        Raises:
            ValueError: It is no answer of this form; the message says what was expected.
        """
        text = line.strip().lower()
        if text in _WISHES:
            return _WISHES[text]
        words = re.sub("^r(ank)?\\b" if self.can_rank else "^$", "", text).replace(",", " ").split()
        if words and all(word.isascii() and word.isdecimal() and len(word) < 6 for word in words):
            numbers = [int(word) for word in words]
            if all(1 <= number <= self.num_options for number in numbers) and len(set(numbers)) == len(numbers):
                try:
                    return self.response([number - 1 for number in numbers])
                except ValueError:
                    pass
        got = f"{line.strip()[:60]!r}" if text else "an empty line"
        raise ValueError(f"Expected {self.expected}; got {got}")


def in_words(response: Response) -> str:
    """An answer as it is typed: "3", "2 5", "3 1 4"; "can't tell" for one that names no option."""
    return " ".join(str(option + 1) for option in response.order) or "can't tell"


class Taps:
    """An answer given key by key: digits name options, R begins a ranking, Enter ends it, Backspace takes one back.

    Args:
        form: What may be answered.

    Attributes:
        order: Options tapped so far, from 0.
        ranking: Whether the taps are a ranking, which Enter ends.

    Raises:
        ValueError: K > 9, whose numbers are no single keys.
    """

    def __init__(self, form: AnswerForm) -> None:
        if form.num_options > 9:
            raise ValueError(f"Expected at most 9 options for single keys, got K = {form.num_options}")
        self.form = form
        self.order: list[int] = []
        self.ranking = form.name == "ranking"

    def press(self, key: str) -> Response | Wish | None:
        """Press a key: a character, "enter" or "backspace"; other keys do nothing.

        Returns:
            The answer or wish that is now complete, None before that.
        """
        key = key.lower()
        if key.isascii() and key.isdecimal() and 1 <= int(key) <= self.form.num_options:
            return self._tap(int(key) - 1)
        if key == "enter" and self.ranking and self.order:
            return self.form.response(self.order)
        if key in ("backspace", "u") and (self.order or self.ranking != (self.form.name == "ranking")):
            if self.order:
                self.order.pop()
            else:
                self.ranking = False
        elif key == "r" and self.form.can_rank:
            self.ranking = True
        elif key in ("u", "s", "q"):
            return Wish(key)
        return None

    def _tap(self, option: int) -> Response | None:
        if option in self.order:
            return None
        self.order.append(option)
        last = self.form.num_options - 1 if self.ranking else 2 if self.form.name == "best-worst" else 1
        return self.form.response(self.order) if len(self.order) == last else None
