"""A person's answer to a question with K options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from edpbrl_gym._validation import check_choice_of, check_count

__all__ = ["KINDS", "Kind", "Response"]

Kind = Literal["best", "best_worst", "ranking", "partial", "tie", "skip"]
KINDS: tuple[str, ...] = get_args(Kind)

_LENGTHS = {"best": 1, "best_worst": 2, "tie": 0, "skip": 0}
_MEANING = {
    "best": "(the best option,)",
    "best_worst": "(best, worst)",
    "ranking": "all K options, best first",
    "partial": "one or more options, best first",
    "tie": "()",
    "skip": "()",
}


@dataclass(frozen=True)
class Response:
    """One answer: the best option, the best and the worst, a ranking of all or some, no preference, or no answer.

    Create one with ``Response.best(i)``, ``.best_worst(best, worst)``, ``.ranking(order)``, ``.partial(order)``,
    ``.tie()``, ``.skip()``.

    Attributes:
        kind: "best", "best_worst", "ranking", "partial" (the best options in order, as far as the person cared to go),
            "tie" (the person cannot tell which is best) or "skip" (no answer, which carries no information about the
            taste, except by the model ``WithOutside``).
        order: Option indices in 0..K-1: (best,), (best, worst), all K with the best first, some with the best first, or
            ().

    Raises:
        TypeError: The options are not integers.
        ValueError: The kind is unknown, the number of options does not match it, or an option occurs twice.
    """

    kind: Kind
    order: tuple[int, ...] = ()

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

    @property
    def first(self) -> int | None:
        """The best option; None if the answer names none (a tie, a skip)."""
        return self.order[0] if self.order else None

    def checked(self, num_options: int) -> Response:
        """Return this response after checking that it fits ``num_options`` options.

        Raises:
            ValueError: An option is outside 0..K-1, or a ranking has another number of options.
        """
        if any(option >= num_options for option in self.order):
            raise ValueError(f"Expected options in 0..{num_options - 1} (K = {num_options}), got {self}")
        if self.kind == "ranking" and len(self.order) != num_options:
            raise ValueError(f"Expected a ranking of all {num_options} options, got one of {len(self.order)}: {self}")
        return self

    def as_json(self) -> dict[str, Any]:
        """A dict for JSON: ``{"kind": "best_worst", "order": [2, 0]}``."""
        return {"kind": self.kind, "order": list(self.order)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Response:
        """The inverse of :meth:`as_json`.

        Raises:
            TypeError: The value is not a mapping, or its order has no integers.
            ValueError: The keys are not kind and order, or their values make no response.
        """
        if not isinstance(value, Mapping):
            raise TypeError(f"Expected a response as a JSON object, got {type(value).__name__}")
        if set(value) != {"kind", "order"}:
            raise ValueError(f"Expected a response with the keys kind and order, got {sorted(map(str, value))}")
        order = value["order"]
        if not isinstance(order, Sequence) or isinstance(order, (str, bytes)):
            raise TypeError(f"Expected the order of a response as a list, got {order!r}")
        return cls(value["kind"], tuple(order))
