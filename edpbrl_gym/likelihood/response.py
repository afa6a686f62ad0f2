"""A person's answer to a question with K options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from edpbrl_gym._validation import check_choice_of, check_count

__all__ = ["KINDS", "Kind", "Response"]

Kind = Literal["best", "best_worst", "ranking", "partial", "tie", "skip", "rating"]
KINDS: tuple[str, ...] = get_args(Kind)

_LENGTHS = {"best": 1, "best_worst": 2, "tie": 0, "skip": 0, "rating": 0}
_MOST_LEVELS = 7
_MEANING = {
    "best": "(the best option,)",
    "best_worst": "(best, worst)",
    "ranking": "all K options, best first",
    "partial": "one or more options, best first",
    "tie": "()",
    "skip": "()",
    "rating": "() and a level of each option",
}


@dataclass(frozen=True)
class Response:
    """One answer: the best option, the best and the worst, a ranking of all or some, levels, no preference, no answer.

    Create one with ``Response.best(i)``, ``.best_worst(best, worst)``, ``.ranking(order)``, ``.partial(order)``,
    ``.tie()``, ``.skip()``, ``.rating(levels)``.

    Attributes:
        kind: "best", "best_worst", "ranking", "partial" (the best options in order, as far as the person cared to go),
            "tie" (the person cannot tell which is best) or "skip" (no answer, which carries no information about the
            taste), or "rating" (a level of each option by itself).
        order: Option indices in 0..K-1: (best,), (best, worst), all K with the best first, some with the best first, or
            ().
        levels: Level of each of the K options, 0 the lowest, up to 6; () but for "rating".

    Raises:
        TypeError: The options or levels are not integers.
        ValueError: The kind is unknown, the number of options does not match it, or an option occurs twice.
    """

    kind: Kind
    order: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_choice_of(self.kind, "kind", KINDS)
        if isinstance(self.order, (str, bytes)) or not hasattr(self.order, "__iter__"):
            raise TypeError(f"Expected order as a sequence of option numbers, got {self.order!r}")
        order = tuple(check_count(option, "an option of a response", minimum=0) for option in self.order)
        length = _LENGTHS.get(self.kind)
        complete = self.kind != "partial" or len(order) > 0
        if self.kind == "ranking":
            complete = len(order) > 1 and sorted(order) == list(range(len(order)))
        if (length is not None and len(order) != length) or len(set(order)) != len(order) or not complete:
            raise ValueError(f"Expected a response {self.kind!r} with order {_MEANING[self.kind]}, got {order}")
        object.__setattr__(self, "order", order)
        levels = tuple(check_count(level, "a level of a response", minimum=0) for level in self.levels)
        if (self.kind == "rating") != bool(levels) or any(level >= _MOST_LEVELS for level in levels):
            raise ValueError(
                f"Expected levels in 0..{_MOST_LEVELS - 1}, one of each option, in a response 'rating' and no other, "
                f"got {levels} in {self.kind!r}"
            )
        object.__setattr__(self, "levels", levels)

    @classmethod
    def best(cls, option: int) -> Response:
        """The best option, in 0..K-1."""
        return cls("best", (option,))

    @classmethod
    def best_worst(cls, best: int, worst: int) -> Response:
        """The best and the worst option, different."""
        return cls("best_worst", (best, worst))

    @classmethod
    def ranking(cls, order: Sequence[int]) -> Response:
        """All K options, the best first."""
        return cls("ranking", tuple(order))

    @classmethod
    def partial(cls, order: Sequence[int]) -> Response:
        """The best options in the order in which the person named them, at least one; the others are worse."""
        return cls("partial", tuple(order))

    @classmethod
    def tie(cls) -> Response:
        """The person looked and cannot tell which is best."""
        return cls("tie")

    @classmethod
    def skip(cls) -> Response:
        """No answer."""
        return cls("skip")

    @classmethod
    def rating(cls, levels: Sequence[int]) -> Response:
        """The level of each of the K options, 0 the lowest."""
        return cls("rating", levels=tuple(levels))

    @property
    def first(self) -> int | None:
        """The best option; None if the answer names none (a tie, a skip, levels)."""
        return self.order[0] if self.order else None

    def checked(self, num_options: int) -> Response:
        """Return this response after checking that it fits ``num_options`` options.

        Raises:
            ValueError: An option is outside 0..K-1, a ranking or levels are of another number of options, or the only
                option is named.
        """
        if self.levels and len(self.levels) != num_options:
            raise ValueError(f"Expected a level of each of the {num_options} options, got {len(self.levels)}: {self}")
        if self.order and num_options < 2:
            raise ValueError(f"Expected at least 2 options to choose among, got {num_options}: {self}")
        if any(option >= num_options for option in self.order):
            raise ValueError(f"Expected options in 0..{num_options - 1} (K = {num_options}), got {self}")
        if self.kind == "ranking" and len(self.order) != num_options:
            raise ValueError(f"Expected a ranking of all {num_options} options, got one of {len(self.order)}: {self}")
        return self

    @property
    def numbers(self) -> tuple[int, ...]:
        """What was named, from 1, as people type it."""
        return tuple(number + 1 for number in self.order or self.levels)

    def places(self, num_options: int) -> dict[int, int]:
        """The place of each option that was named, 1 the best; that of the worst is K."""
        found = {option: place for place, option in enumerate(self.order, start=1)}
        if self.kind == "best_worst":
            found[self.order[1]] = num_options
        return found

    @classmethod
    def from_numbers(cls, kind: Kind, numbers: Sequence[int]) -> Response:
        """The inverse of ``numbers``."""
        given = tuple(number - 1 for number in numbers)
        return cls(kind, levels=given) if kind == "rating" else cls(kind, given)

    @property
    def signs(self) -> dict[int, str]:
        """A sign for each option that was named: * the best, its rank, or - the worst; the level of each."""
        signs = {"best": "*", "best_worst": "*-"}.get(self.kind)
        if self.levels:
            return {option: str(level + 1) for option, level in enumerate(self.levels)}
        return dict(zip(self.order, signs or [f"{place}." for place in range(1, len(self.order) + 1)], strict=True))

    def as_json(self) -> dict[str, Any]:
        """A dict for JSON: ``{"kind": "best_worst", "order": [2, 0]}``, with ``levels`` where there are some."""
        levels = {"levels": list(self.levels)} if self.levels else {}
        return {"kind": self.kind, "order": list(self.order), **levels}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Response:
        """The inverse of :meth:`as_json`; TypeError or ValueError for what makes no response."""
        if not isinstance(value, Mapping):
            raise TypeError(f"Expected a response as a JSON object, got {type(value).__name__}")
        if set(value) - {"levels"} != {"kind", "order"}:
            raise ValueError(f"Expected a response with the keys kind and order, got {sorted(map(str, value))}")
        for name in ("order", "levels"):
            numbers = value.get(name, ())
            if not isinstance(numbers, Sequence) or isinstance(numbers, (str, bytes)):
                raise TypeError(f"Expected the {name} of a response as a list, got {numbers!r}")
        return cls(value["kind"], tuple(value["order"]), tuple(value.get("levels", ())))
