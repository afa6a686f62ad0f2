"""The questions of a session, the texts shown and the features compared, and what may be answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import Feedback, check_array, check_count, check_feedback, check_integers
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.features import TextEncoder, as_encoder
from edpbrl_gym.likelihood import AnswerFormat, Response
from edpbrl_gym.vocabulary import Vocabulary
from edpbrl_gym.vocabulary.tokens import fold

__all__ = ["Answer", "Question", "QuestionMaker", "check_answer", "check_distinct"]

Answer = Response | int | None


@dataclass(frozen=True, eq=False)
class Question:
    """K options to choose from.

    Attributes:
        number: Number of the question in the session, from 0; after ``undo`` a question keeps its number.
        episode: Episode, from 0.
        step: Step h of the episode, from 0; the last one where complete prompts are compared.
        tokens: Token indices of each option's prompt so far, (K, h + 1); the last ``num_new`` columns are new.
        texts: K texts to show: the partial prompts (truncated feedback), the new tokens (state feedback) or the
            complete prompts (prompt feedback).
        features: Features of the texts, (K, d), float32.
        num_new: Number of tokens by which the question extends its prompts: 1, or all H where complete prompts are
            compared.
    """

    number: int
    episode: int
    step: int
    tokens: NDArray[np.int64]
    texts: tuple[str, ...]
    features: NDArray[np.float32]
    num_new: int = 1

    @property
    def num_options(self) -> int:
        """Number of options K."""
        return len(self.texts)

    @property
    def prefixes(self) -> NDArray[np.int64]:
        """The options' prompts before this question, (K, h + 1 - num_new)."""
        return self.tokens[:, : -self.num_new]

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
        feedback: "truncated" compares embeddings of partial prompts, "state" those of the new tokens alone, "prompt"
            those of complete prompts, one question an episode.

    Raises:
        ValueError: The feedback is unknown.
    """

    vocabulary: Vocabulary
    encoder: TextEncoder
    feedback: Feedback

    def __post_init__(self) -> None:
        check_feedback(self.feedback)
        object.__setattr__(self, "encoder", as_encoder(self.encoder))

    @property
    def num_new(self) -> int:
        """Number of tokens by which a question extends its prompts: 1, or H where complete prompts are compared."""
        return self.vocabulary.horizon if self.feedback == "prompt" else 1

    def texts(self, tokens: NDArray[np.int64]) -> tuple[str, ...]:
        """Texts to show for prompts (K, h + 1)."""
        step = tokens.shape[1] - 1
        if self.feedback == "state":
            return tuple(self.vocabulary.tokens[step][token] for token in tokens[:, -1])
        return tuple(self.vocabulary.prompt(row) for row in tokens)

    def extended(self, prefixes: NDArray[np.int64], new_tokens: ArrayLike) -> NDArray[np.int64]:
        """Prompts (K, h + 1): the prefixes (K, h) and the tokens (K,) of step h.

        Raises:
            TypeError: The tokens are not integers.
            ValueError: Step h does not have the tokens, or their number is not K.
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
        return np.concatenate([prefixes, checked_tokens[:, None]], axis=1)

    def make(self, tokens: NDArray[np.int64], *, number: int, episode: int) -> Question:
        """Create the question about prompts (K, h + 1), as ``extended`` returns them; embeds the texts shown.

        Raises:
            ValueError: The encoder returns another shape, NaN or infinity.
        """
        texts = self.texts(tokens)
        features = check_array(
            self.encoder.encode(list(texts)),
            "features",
            shape=(len(tokens), self.encoder.dimension),
            dtype=np.float32,
            hint=f"the encoder {self.encoder.name} must return one row a text",
        )
        return self.restored(tokens, np.array(features, dtype=np.float32), number=number, episode=episode)

    def restored(
        self, tokens: NDArray[np.int64], features: NDArray[np.float32], *, number: int, episode: int
    ) -> Question:
        """The question about prompts (K, h + 1) with known features (K, d); both arrays become read-only."""
        for array in (tokens, features):
            array.flags.writeable = False
        return Question(
            number, episode, tokens.shape[1] - 1, tokens, self.texts(tokens), features, num_new=self.num_new
        )


def check_distinct(texts: Sequence[str], planner: str, *, number: int, step: int) -> None:
    """Reject a question that shows an option twice, so that a person would compare a prompt with itself.

    Options are equal if their texts are (ignoring case and runs of white space).

    Raises:
        ValueError: The question shows an option twice.
    """
    option_by_text: dict[str, int] = {}
    for option, text in enumerate(texts):
        first_option = option_by_text.setdefault(fold(text), option)
        if first_option != option:
            raise ValueError(
                f"Expected {len(texts)} different options from the planner {planner}, question {number} (step {step}) "
                f"shows {text!r} as options {first_option} and {option}; let its ask() return tokens that make "
                "different texts (distinct=True where it takes that, as RandomPlanner does), or set its attribute "
                "distinct to False where no person answers"
            )


def check_answer(answer: Answer, model: AnswerFormat, num_options: int) -> Response:
    """Convert an answer (a response, the index of the best option, or None for a skip) to a checked response.

    Raises:
        TypeError: The answer has another type.
        ValueError: The question doesn't have the option, or the model doesn't support the format.
    """
    if answer is None:
        return Response.skip()
    if not isinstance(answer, Response):
        index = check_count(answer, "answer (index of the best option)", minimum=0)
        if index >= num_options:
            raise ValueError(f"Expected an option in 0..{num_options - 1}, got {index}")
        answer = Response.best(index)
    if answer.kind != "skip":
        if answer.kind not in model.kinds:
            kinds = " or ".join(map(repr, model.kinds))
            raise ValueError(
                f"Expected an answer of the kind {kinds} (or a skip), got {answer.kind!r}; "
                "make the session with a model of that format"
            )
        answer.checked(num_options)
    return answer
