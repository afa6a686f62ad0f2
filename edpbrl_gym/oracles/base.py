"""The protocol of oracles, and the checks of their answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_integers
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response

__all__ = ["Answers", "Oracle", "answers_of", "check_oracle"]


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to a batch of questions.

    Attributes:
        responses: One for each question, in order; a skip if there is no answer (refused, lost, unreadable).
        details: Details of the oracle (name, mode, scale, ...), JSON-able.

    Raises:
        TypeError: The responses are not a sequence of ``Response``.
    """

    responses: tuple[Response, ...]
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.responses, (list, tuple)):
            raise TypeError(
                f"Expected responses as a list of edpbrl_gym.likelihood.Response, got {type(self.responses).__name__}; "
                "make answers of option numbers by Answers.of_choices(...)"
            )
        for index, response in enumerate(self.responses):
            if not isinstance(response, Response):
                raise TypeError(
                    f"Expected responses as edpbrl_gym.likelihood.Response, got {type(response).__name__} at index "
                    f"{index}; use Response.best(option), .ranking(...), .tie(), .skip(), or Answers.of_choices(...)"
                )
        object.__setattr__(self, "responses", tuple(self.responses))

    @classmethod
    def of_choices(cls, choices: ArrayLike, details: dict[str, Any] | None = None) -> Answers:
        """Answers from the best option of each question, (n,); -1 stands for no answer.

        Raises:
            TypeError: The choices are not integers.
            ValueError: A choice is below -1, or the array is not one-dimensional.
        """
        numbers = check_integers(choices, "choices", shape=("n",), low=-1).tolist()
        response_of = {number: Response.skip() if number < 0 else Response.best(number) for number in set(numbers)}
        return cls(tuple(response_of[number] for number in numbers), {} if details is None else details)

    @property
    def choices(self) -> NDArray[np.int64]:
        """The best option of each question, (n,); -1 if the response names none (a tie, a skip)."""
        best = [-1 if response.first is None else response.first for response in self.responses]
        return np.array(best, dtype=np.int64)


@runtime_checkable
class Oracle(Protocol):
    """Anything that answers questions: a synthetic user, a model, a person.

    The description of an oracle with a ``describe()`` method (a JSON-able dict) is written to every result.
    """

    @property
    def name(self) -> str:
        """Name of the oracle, recorded with every comparison."""
        ...

    def answer(self, queries: Queries) -> Answers:
        """One response for every question, in order."""
        ...


def check_oracle(oracle: object) -> None:
    """Raise a TypeError for an object without ``answer`` or name."""
    if not callable(getattr(oracle, "answer", None)):
        raise TypeError(
            f"Expected an oracle with answer(queries) -> Answers, got {type(oracle).__name__}; for example "
            "edpbrl_gym.oracles.SyntheticUser."
        )
    if not isinstance(getattr(oracle, "name", None), str):
        raise TypeError(
            f"Expected an oracle with a name, as every answer says who gave it, got {type(oracle).__name__} without; "
            'add name = "..." to the class.'
        )


def answers_of(oracle: Oracle, queries: Queries) -> Answers:
    """Ask an oracle and check its answers.

    Raises:
        TypeError: The object is not an oracle, or returned something other than ``Answers`` with a dict of details.
        ValueError: The number of responses is not that of the questions, or one names an option that doesn't exist.
    """
    check_oracle(oracle)
    answers = oracle.answer(queries)
    if not isinstance(answers, Answers):
        raise TypeError(
            f"Expected answer(queries) of {_label(oracle)} to return edpbrl_gym.oracles.Answers, got "
            f"{type(answers).__name__}; return Answers.of_choices(choices) with one option of each question, or "
            "Answers(responses)"
        )
    if not isinstance(answers.details, dict):
        raise TypeError(f"Expected the details of {_label(oracle)} as a dict, got {type(answers.details).__name__}")
    if len(answers.responses) != len(queries):
        raise ValueError(
            f"Expected {_label(oracle)} to answer {len(queries)} question(s), got {len(answers.responses)} answer(s)"
        )
    try:
        for response, size in zip(answers.responses, queries.sizes.tolist(), strict=True):
            response.checked(size)
    except ValueError as error:
        raise ValueError(f"{error}; that is an answer of {_label(oracle)}") from None
    return answers


def _label(oracle: object) -> str:
    """Class and name of an oracle."""
    return f"{type(oracle).__name__} ({getattr(oracle, 'name', 'no name')!r})"
