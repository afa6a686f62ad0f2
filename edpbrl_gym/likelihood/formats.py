"""``AnswerFormat``: what a person may answer, its likelihood, and how it is asked for and read.

A format assigns a probability to each answer to a question with options x_1..x_K at a taste theta. The probability
depends only on the utilities v_k = theta . x_k. A format provides

* its likelihood as a sum of multinomial logits (:class:`~edpbrl_gym.likelihood.terms.Terms`), so that one estimator
  serves every format;
* its Fisher information sum_n X_n' W_n X_n, with W_n the (K, K) weights of question n, positive semidefinite;
* random answers;
* what people are asked, what they give (`Input`), and the answer that this makes. The terminal and the web study draw
  it, files are read with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood.logits import checked_values, information_from_weights
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["AnswerFormat", "Input", "Keys", "Texts", "Words"]


@dataclass(frozen=True)
class Input:
    """Something that a person gives: one option, options in order, or a level of each.

    Attributes:
        kind: "option": one of the K options. "order": options in order, all of them or some. "levels": a level of each.
        name: Name of the fields of a form, and of the messages about it.
        complete: Whether an order needs all options.
        levels: Number of levels L; 0 for other kinds.
    """

    kind: Literal["option", "order", "levels"]
    name: str
    complete: bool = True
    levels: int = 0


@dataclass(frozen=True)
class Keys:
    """How single keys make an answer.

    Attributes:
        last: The keys are 1 to ``last``.
        taps: Number of keys that complete an answer; 0: it is an order from the beginning.
        order: Number of keys that complete an order, which R begins and Enter ends earlier; 0: none can be given.
        again: Whether a key may be pressed more than once.
    """

    last: int
    taps: int
    order: int = 0
    again: bool = False


@dataclass(frozen=True)
class Words:
    """What the terminal says, in English.

    Attributes:
        task: What to do with options.
        question: What is asked.
        expected: What to type, for errors.
        keys: What the keys do.
        example: What to type.
    """

    task: str
    question: str
    expected: str
    keys: str
    example: str


@dataclass(frozen=True)
class Texts:
    """Names of the messages on the pages of a study, and what its report says that people name.

    Attributes:
        question: What is asked.
        attention: The request of an attention check, about a ``number``.
        incomplete: What an answer needs.
        keys: What the ``keys`` do.
        named: What people name, for reports.
    """

    question: str
    attention: str
    incomplete: str
    keys: str
    named: str


class AnswerFormat(ABC):
    """An answer format. Arrays: options (n, K, d), theta (d,).

    Attributes:
        name: Its name in ``FORMATS``.
        kinds: Kinds of the answers that a person may give beside a skip.
        least: Least number of options of a question.
        asked: Least number of options to ask people about.
        unsure: Kind of the answer of who can't tell, in the terminal.
        relative: Whether only differences between options matter: a common shift of the utilities changes nothing.
        texts: Names of the messages of a study.
        columns: The columns of a file of questions that hold such an answer; none: those of another format do.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]]
    least: ClassVar[int] = 2
    asked: ClassVar[int] = 2
    unsure: ClassVar[Kind] = "skip"
    relative: ClassVar[bool] = True
    texts: ClassVar[Texts]
    columns: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, responses: Sequence[Response]) -> AnswerFormat:
        """The format with what answers tell of its options."""
        return cls()

    # the likelihood

    @abstractmethod
    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """All answers to a question of K options that tell something, in the order of :meth:`probabilities`."""

    @abstractmethod
    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability of each outcome, (n, outcomes), rows sum to 1."""

    @abstractmethod
    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """The likelihood of n answers as multinomial logits; a skip adds no term.

        Raises:
            ValueError: An answer of a kind that the format does not know, or one that does not match the options.
        """

    @abstractmethod
    def weights(self, values: ArrayLike) -> Floats:
        """The weights W (n, K, K) in information = sum_n X_n' W_n X_n, from the utilities (n, K)."""

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Expected Fisher information of the questions, (d, d); None stands for theta = 0."""
        features, values = checked_values(options, theta)
        return information_from_weights(features, self.weights(values))

    @abstractmethod
    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question from the draws ``uniforms`` (n,) in [0, 1); None gives the most probable answers."""

    def picks(self, num_options: int) -> tuple[int, ...]:
        """The choices that an answer consists of, each among the options not yet picked: 1 for a best, -1 for a worst.

        Planners value a question by them where ``relative``. Ties are taken for choices.
        """
        return (1,)

    def mistaken(self, answer: Response, num_options: int, draw: float) -> Response:
        """A uniformly drawn other answer, but no tie, from a draw in [0, 1)."""
        others = [one for one in self.outcomes(num_options) if one != answer and one.kind != "tie"]
        return others[int(draw * len(others))]

    def at(self, known: Sequence[float] | None) -> AnswerFormat:
        """The format with the values of its own parameters (``Terms.own``); None: as it is."""
        return self

    def followed(self, response: Response, expected: int) -> bool:
        """Whether an answer to an attention check is what was asked for: option ``expected`` first."""
        return response.first == expected

    # people

    @property
    @abstractmethod
    def inputs(self) -> tuple[Input, ...]:
        """What a person gives."""

    @abstractmethod
    def words(self, num_options: int) -> Words:
        """What the terminal says."""

    @abstractmethod
    def seconds(self, num_options: int) -> float:
        """About how long an answer takes once the options have been looked at."""

    @abstractmethod
    def response(self, given: Sequence[int], num_options: int) -> Response:
        """The answer of the numbers that a person gave, from 0, input after input.

        Raises:
            ValueError: They are no answer: too few or too many, one twice, or one that doesn't exist.
        """

    def highest(self, num_options: int) -> int:
        """The highest number in a cell of a file, from 1."""
        return num_options

    def from_cells(self, given: Sequence[int], num_options: int) -> Response:
        """The answer of the numbers in the ``columns`` of a file; errors are those of ``response``."""
        return self.response(given, num_options)

    def typed(self, text: str, num_options: int) -> Response:
        """The answer of a typed line such as "3" or "2, 5".

        Raises:
            ValueError: It is no answer.
        """
        words = text.replace(",", " ").split()
        if not words or not all(word.isascii() and word.isdecimal() and len(word) < 6 for word in words):
            raise ValueError("Expected numbers, got other words or none")
        return self.said([int(word) - 1 for word in words], num_options)

    def said(self, given: Sequence[int], num_options: int) -> Response:
        """The answer of the numbers that a person typed or tapped, from 0; errors are those of ``response``."""
        return self.response(given, num_options)

    def keys(self, num_options: int) -> Keys:
        """How single keys make an answer."""
        return Keys(num_options, len(self.inputs))

    def spoken(self, num_options: int) -> AnswerFormat:
        """The format for who types: this one, or a richer one that takes its answers too.

        Raises:
            ValueError: Fewer options than that format needs.
        """
        check_count(num_options, "num_options (K)", minimum=self.asked)
        return self
