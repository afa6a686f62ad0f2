"""One question of a session: what is shown, and what is compared."""

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
        number: Place in the session, from 0; a question that is asked again after ``undo`` keeps its number.
        episode: Episode, from 0.
        step: Step h of the episode, from 0.
        tokens: Token indices of each option's prompt so far, (K, h + 1); the last column is new.
        texts: What to show, K texts: the partial prompts (truncated feedback) or the new tokens (state feedback).
        features: What is compared, (K, d), float32.
    """

    number: int
    episode: int
    step: int
    tokens: NDArray[np.int64]
    texts: tuple[str, ...]
    features: NDArray[np.float32]

    @property
    def num_options(self) -> int:
        """K."""
        return len(self.texts)

    @property
    def prefixes(self) -> NDArray[np.int64]:
        """The options' prompts before this question, (K, h)."""
        return self.tokens[:, :-1]

    @property
    def queries(self) -> Queries:
        """This question as a batch of one, as oracles take it."""
        return Queries(
            features=self.features[None],
            episode=np.array([self.episode]),
            step=np.array([self.step]),
            texts=[list(self.texts)],
        )


@dataclass(frozen=True)
class QuestionMaker:
    """Makes questions of a vocabulary with an encoder.

    Attributes:
        vocabulary: Where the tokens come from.
        encoder: Embeds what is compared. The texts of a question are always embedded together and by themselves, so
            that a deterministic encoder gives a question the same features whatever else it has embedded.
        feedback: "truncated" compares embeddings of partial prompts, "state" those of the new tokens alone.

    Raises:
        ValueError: An unknown feedback.
    """

    vocabulary: Vocabulary
    encoder: TextEncoder
    feedback: Feedback

    def __post_init__(self) -> None:
        check_choice_of(self.feedback, "feedback", ("truncated", "state"))

    def texts(self, tokens: NDArray[np.int64]) -> tuple[str, ...]:
        """What to show for prompts (K, h + 1)."""
        step = tokens.shape[1] - 1
        if self.feedback == "truncated":
            return tuple(self.vocabulary.prompt(row) for row in tokens)
        return tuple(self.vocabulary.tokens[step][token] for token in tokens[:, -1])

    def make(self, prefixes: NDArray[np.int64], new: ArrayLike, *, number: int, episode: int) -> Question:
        """The question that extends the prefixes (K, h) by the tokens (K,) of step h.

        Raises:
            TypeError: Tokens that are no integers.
            ValueError: Tokens that step h does not have, or another number of them; or an encoder that returns another
                shape, NaN or infinity.
        """
        num_options, step = prefixes.shape
        chosen = check_integers(
            new,
            "tokens",
            shape=(num_options,),
            low=0,
            high=self.vocabulary.sizes[step] - 1,
            hint=f"the planner must return one token of step {step} ({self.vocabulary.names[step]!r}) for each option",
        )
        tokens = np.concatenate([prefixes, chosen[:, None]], axis=1)
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
    """Refuse a question that shows an option twice: who answers it would compare a prompt with itself.

    Options are equal if their texts are (case and runs of white space ignored).

    Args:
        question: The question.
        planner: Name of who chose it.

    Raises:
        ValueError: It shows an option twice.
    """
    shown: dict[str, int] = {}
    for option, text in enumerate(question.texts):
        first = shown.setdefault(fold(text), option)
        if first != option:
            raise ValueError(
                f"Expected {question.num_options} different options from the planner {planner}, question "
                f"{question.number} (step {question.step}) shows {text!r} as options {first} and {option}; let its "
                "ask() return tokens that make different texts (distinct=True where it takes that, as RandomPlanner "
                "does), or set its attribute distinct to False where no person answers"
            )
