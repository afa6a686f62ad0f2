"""What an oracle is: it answers a batch of questions and says who answered and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_integers
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.responses import Response

__all__ = ["Answers", "Oracle", "Responder"]


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to a batch of questions.

    Attributes:
        choices: index of the chosen option of each question, (n,); -1 where it was not answered (refused, lost,
            unreadable): such a question tells nothing and is left out of what is estimated from.
        details: who answered and how (oracle, mode, scale, ...); JSON-able.

    Raises:
        TypeError: the choices are no integers.
        ValueError: a choice below -1, or no one-dimensional array.
    """

    choices: NDArray[np.int64]
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", check_integers(self.choices, "choices", shape=("n",), low=-1))


@runtime_checkable
class Oracle(Protocol):
    """Anything that answers questions: a synthetic user, a model, a person.

    An oracle with a ``describe()`` method (a JSON-able dict) has its description put into every result.
    """

    @property
    def name(self) -> str:
        """Who answers; recorded with every comparison."""
        ...

    def choose(self, queries: Queries) -> Answers:
        """Pick one of the K options of every question, or -1 where there is no answer."""
        ...


@runtime_checkable
class Responder(Protocol):
    """Anything that answers questions in more ways than naming the best option: orders, ties, skips.

    A synthetic user may be both an :class:`Oracle` and a responder; where both will do, ``respond`` is asked.
    """

    @property
    def name(self) -> str:
        """Who answers; recorded with every answer."""
        ...

    def respond(self, queries: Queries) -> list[Response]:
        """One response for every question, in order."""
        ...
