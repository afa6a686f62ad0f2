"""The questions of a session: the texts shown and the features compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array, check_choice_of, check_integers
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.vocabulary import Vocabulary
from edpbrl_gym.vocabulary.tokens import fold

__all__ = ["Feedback", "Question", "QuestionMaker", "check_distinct"]

Feedback = Literal["truncated", "state"]


@dataclass(frozen=True, eq=False)
class Question:
    """K options to choose from.

    Attributes:
        number: Number of the question in the session, from 0; after ``undo`` a question keeps its number.
        episode: Episode, from 0.
        step: Step h of the episode, from 0.
        tokens: Token indices of each option's prompt so far, (K, h + 1); the last column is new.
        texts: K texts to show: the partial prompts (truncated feedback) or the new tokens (state feedback).
        features: Features of the texts, (K, d), float32.
    """

    number: int
    episode: int
    step: int
    tokens: NDArray[np.int64]
    texts: tuple[str, ...]
    features: NDArray[np.float32]

    @property
    def num_options(self) -> int:
        """Number of options K."""
        return len(self.texts)

    @property
    def prefixes(self) -> NDArray[np.int64]:
        """The options' prompts before this question, (K, h)."""
        return self.tokens[:, :-1]

    @property
    def queries(self) -> Queries:
        """This question as a batch of one, for oracles."""
        return Queries(
            features=self.features[None],
            episode=np.array([self.episode]),
            step=np.array([self.step]),
            texts=[list(self.texts)],
        )


@dataclass(frozen=True)
class QuestionMaker:
    """Creates questions from a vocabulary with an encoder.

    Attributes:
        vocabulary: Vocabulary of the prompts.
        encoder: Encoder of the texts. The texts of a question are always embedded in a batch of their own, so that a
            deterministic encoder gives a question the same features in every session.
        feedback: "truncated" compares embeddings of partial prompts, "state" those of the new tokens alone.

    Raises:
        ValueError: The feedback is unknown.
    """

    vocabulary: Vocabulary
    encoder: TextEncoder
    feedback: Feedback

    def __post_init__(self) -> None:
        check_choice_of(self.feedback, "feedback", ("truncated", "state"))

    def texts(self, tokens: NDArray[np.int64]) -> tuple[str, ...]:
        """Texts to show for prompts (K, h + 1)."""
        step = tokens.shape[1] - 1
        if self.feedback == "truncated":
            return tuple(self.vocabulary.prompt(row) for row in tokens)
        return tuple(self.vocabulary.tokens[step][token] for token in tokens[:, -1])

    def make(self, prefixes: NDArray[np.int64], new_tokens: ArrayLike, *, number: int, episode: int) -> Question:
        """Create the question that extends the prefixes (K, h) by the tokens (K,) of step h.

        Raises:
            TypeError: The tokens are not integers.
            ValueError: Step h does not have the tokens, their number is not K, or the encoder returns another shape,
                NaN or infinity.
        """
        num_options, step = prefixes.shape
        checked_tokens = check_integers(
            new_tokens,
            "tokens",
            shape=(num_options,),
            low=0,
            high=self.vocabulary.sizes[step] - 1,
            hint=f"the planner must return one token of step {step} ({self.vocabulary.names[step]!r}) for each option",
        )
        tokens = np.concatenate([prefixes, checked_tokens[:, None]], axis=1)
        tokens.flags.writeable = False
        texts = self.texts(tokens)
        features = check_array(
            self.encoder.encode(list(texts)),
            "features",
            shape=(num_options, self.encoder.dimension),
            dtype=np.float32,
            hint=f"the encoder {self.encoder.name} must return one row a text",
        )
        features = np.array(features, dtype=np.float32)
        features.flags.writeable = False
        return Question(number, episode, step, tokens, texts, features)


def check_distinct(question: Question, planner: str) -> None:
    """Reject a question that shows an option twice, so that a person would compare a prompt with itself.

    Options are equal if their texts are (ignoring case and runs of white space).

    Args:
        question: The question.
        planner: Name of the planner that chose it.

    Raises:
        ValueError: The question shows an option twice.
    """
    option_by_text: dict[str, int] = {}
    for option, text in enumerate(question.texts):
        first_option = option_by_text.setdefault(fold(text), option)
        if first_option != option:
            raise ValueError(
                f"Expected {question.num_options} different options from the planner {planner}, question "
                f"{question.number} (step {question.step}) shows {text!r} as options {first_option} and {option}; let "
                "its ask() return tokens that make different texts (distinct=True where it takes that, as "
                "RandomPlanner does), or set its attribute distinct to False where no person answers"
            )
