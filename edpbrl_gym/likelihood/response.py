"""What a person can say about the K options of a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from edpbrl_gym._validation import check_choice_of, check_count

__all__ = ["KINDS", "Kind", "Response"]

Kind = Literal["best", "best_worst", "ranking", "tie", "skip"]
KINDS: tuple[str, ...] = get_args(Kind)

_LENGTHS = {"best": 1, "best_worst": 2, "tie": 0, "skip": 0}
_MEANING = {
    "best": "(the best option,)",
    "best_worst": "(best, worst)",
    "ranking": "all K options, best first",
    "tie": "()",
    "skip": "()",
}


@dataclass(frozen=True)
class Response:
    """One answer: which option is best, or best and worst, or the whole order; or no preference; or no answer.

    Build one by ``Response.best(i)``, ``.best_worst(best, worst)``, ``.ranking(order)``, ``.tie()``, ``.skip()``.

    Attributes:
        kind: "best", "best_worst", "ranking", "tie" (looked, and cannot tell) or "skip" (did not answer: says nothing
            about the taste).
        order: the options named, in 0..K-1: (best,), (best, worst), all K with the best first, or ().

    Raises:
        TypeError: options that are no integers.
        ValueError: an unknown kind, a number of options that does not fit it, or an option named twice.
    """

    kind: Kind
    order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_choice_of(self.kind, "kind", KINDS)
        if isinstance(self.order, (str, bytes)) or not hasattr(self.order, "__iter__"):
            raise TypeError(f"Expected order as a sequence of option numbers, got {self.order!r}")
        order = tuple(check_count(option, "an option of a response", minimum=0) for option in self.order)
        wanted = _LENGTHS.get(self.kind)
        whole = self.kind != "ranking" or (len(order) > 1 and sorted(order) == list(range(len(order))))
        if (wanted is not None and len(order) != wanted) or len(set(order)) != len(order) or not whole:
            raise ValueError(f"Expected a response {self.kind!r} with order {_MEANING[self.kind]}, got {order}")
        object.__setattr__(self, "order", order)

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
    def tie(cls) -> Response:
        """The person looked and cannot tell which is best."""
        return cls("tie")

    @classmethod
    def skip(cls) -> Response:
        """No answer."""
        return cls("skip")

    @property
    def first(self) -> int | None:
        """The best option, None where the answer names none (a tie, a skip)."""
        return self.order[0] if self.order else None

    def checked(self, num_options: int) -> Response:
        """This response, when it is one about ``num_options`` options.

        Raises:
            ValueError: it names an option outside 0..K-1, or ranks another number of options.
        """
        if any(option >= num_options for option in self.order):
            raise ValueError(f"Expected options in 0..{num_options - 1} (K = {num_options}), got {self}")
        if self.kind == "ranking" and len(self.order) != num_options:
            raise ValueError(f"Expected a ranking of all {num_options} options, got one of {len(self.order)}: {self}")
        return self

    def as_json(self) -> dict[str, Any]:
        """A dict that JSON can hold: ``{"kind": "best_worst", "order": [2, 0]}``."""
        return {"kind": self.kind, "order": list(self.order)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Response:
        """The response of which ``value`` is the :meth:`as_json`.

        Raises:
            TypeError: no mapping, or an order of no integers.
            ValueError: keys other than kind and order, or values that make no response.
        """
        if not isinstance(value, Mapping):
            raise TypeError(f"Expected a response as a JSON object, got {type(value).__name__}")
        if set(value) != {"kind", "order"}:
            raise ValueError(f"Expected a response with the keys kind and order, got {sorted(map(str, value))}")
        order = value["order"]
        if not isinstance(order, Sequence) or isinstance(order, (str, bytes)):
            raise TypeError(f"Expected the order of a response as a list, got {order!r}")
        return cls(value["kind"], tuple(order))
