"""What an oracle is, and what is taken as its answers: it answers a batch of questions and says who and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_integers
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response

__all__ = ["Answers", "Oracle", "Responder", "check_oracle", "choices_of", "responses_of"]


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


def check_oracle(oracle: object) -> None:
    """Raise a TypeError for what has no ``choose`` or no name."""
    if not callable(getattr(oracle, "choose", None)):
        raise TypeError(
            f"Expected an oracle with choose(queries) -> Answers, got {type(oracle).__name__}; for example "
            "edpbrl_gym.oracles.SyntheticUser."
        )
    if not isinstance(getattr(oracle, "name", None), str):
        raise TypeError(
            f"Expected an oracle with a name, as every answer says who gave it, got {type(oracle).__name__} without; "
            'add name = "..." to the class.'
        )


def choices_of(oracle: Oracle, queries: Queries) -> Answers:
    """Ask an oracle; the one place where its answers are taken, so that a wrong one is refused at once.

    Args:
        oracle: Who answers.
        queries: n questions with K options.

    Returns:
        The answers: n choices in -1..K-1.

    Raises:
        TypeError: No oracle; or ``choose`` returned anything but ``Answers``, or details that are no dict.
        ValueError: Another number of choices than questions, or a choice that isn't an option.
    """
    check_oracle(oracle)
    answers = oracle.choose(queries)
    if not isinstance(answers, Answers):
        raise TypeError(
            f"Expected choose(queries) of {_who(oracle)} to return edpbrl_gym.oracles.Answers, got "
            f"{type(answers).__name__}; return Answers(choices=..., details={{...}}) with one option of each question"
        )
    if not isinstance(answers.details, dict):
        raise TypeError(f"Expected the details of {_who(oracle)} as a dict, got {type(answers.details).__name__}")
    choices = answers.choices
    if choices.shape != (len(queries),) or (choices >= queries.num_options).any():
        raise ValueError(
            f"Expected {_who(oracle)} to answer {len(queries)} question(s) with options in "
            f"0..{queries.num_options - 1} (-1: no answer), got {choices.tolist()}"
        )
    return answers


def responses_of(responder: Responder, queries: Queries) -> list[Response]:
    """Ask a responder; see ``choices_of``.

    Args:
        responder: Who answers.
        queries: n questions with K options.

    Returns:
        n responses.

    Raises:
        TypeError: ``respond`` returned anything but a list of ``Response``.
        ValueError: Another number of responses than questions, or one that names an option which isn't there.
    """
    responses = responder.respond(queries)
    what = f"Expected respond(queries) of {_who(responder)} to return a list of edpbrl_gym.likelihood.Response, got "
    if not isinstance(responses, (list, tuple)):
        raise TypeError(f"{what}{type(responses).__name__}; return one Response for each question, in order")
    for index, response in enumerate(responses):
        if not isinstance(response, Response):
            raise TypeError(
                f"{what}one with {type(response).__name__} at index {index}; use Response.best(option), .ranking(...), "
                ".tie() or .skip()"
            )
    if len(responses) != len(queries):
        raise ValueError(
            f"Expected {_who(responder)} to answer {len(queries)} question(s), got {len(responses)} response(s)"
        )
    return [response.checked(queries.num_options) for response in responses]


def _who(oracle: object) -> str:
    """Class and name of an oracle."""
    return f"{type(oracle).__name__} ({getattr(oracle, 'name', 'no name')!r})"
