"""The answer formats by name, for options and files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final

from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.likelihood.best import BestOf
from edpbrl_gym.likelihood.best_worst import BestWorst
from edpbrl_gym.likelihood.formats import AnswerFormat
from edpbrl_gym.likelihood.partial import PartialRanking
from edpbrl_gym.likelihood.ranking import Ranking
from edpbrl_gym.likelihood.rating import Like, Rating
from edpbrl_gym.likelihood.response import Response
from edpbrl_gym.likelihood.ties import WithTies

__all__ = ["FORMATS", "format_by_columns", "format_of", "make_format", "takes"]

FORMATS: Final[dict[str, type[AnswerFormat]]] = {
    one.name: one
    for one in (
        BestOf,
        BestWorst,
        Ranking,
        PartialRanking,
        WithTies,
        Rating,
        Like,
    )
}


def make_format(name: str, **options: Any) -> AnswerFormat:
    """Return the answer format with a name.

    Args:
        name: One of ``FORMATS``.
        **options: ``nu``, the inclination to call a tie; ``taps``, the number of options that a simulated user names;
            ``levels``, of ratings; a format ignores those of others.

    Raises:
        ValueError: The name is unknown, or an option out of range.
    """
    cls = FORMATS[check_choice_of(name, "answer format", tuple(FORMATS))]
    own = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # each is a dataclass
    return cls(**{key: value for key, value in options.items() if key in own})


def takes(kinds: Iterable[str]) -> bool:
    """Whether one format takes answers of all these kinds; skips, which all take, don't count."""
    return any(set(kinds) - {"skip"} <= set(one.kinds) for one in FORMATS.values())


def format_of(responses: Iterable[Response]) -> AnswerFormat:
    """Return a format that takes all of these answers; "best" alone fits most of them, skips do not count.

    Raises:
        ValueError: No single format takes them (a ranking and a worst option, for example).
    """
    answers = list(responses)
    kinds = {response.kind for response in answers} - {"skip", "best"}
    for one in FORMATS.values():
        if kinds <= set(one.kinds):
            return one.of(answers)
    raise ValueError(f"Expected answers that one answer format takes, got the kinds {', '.join(sorted(kinds))}")


def format_by_columns(columns: Iterable[str]) -> AnswerFormat | None:
    """The format whose answers fill these columns of a file of questions; None: none does."""
    filled = set(columns)
    return next((one() for one in FORMATS.values() if one.columns and set(one.columns) == filled), None)
