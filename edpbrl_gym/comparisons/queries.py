"""Questions without answers, and their common base with answered ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import read_only
from edpbrl_gym._validation import check_integers
from edpbrl_gym.likelihood.choice import check_options

__all__ = ["Queries", "QuestionShape", "Texts", "check_questions"]

Texts = list[list[str]]


def _check_texts(value: Any, shape: tuple[int, ...]) -> Texts | None:
    if value is None:
        return None
    texts = [list(question) if not isinstance(question, str) else [question] for question in value]
    if len(texts) != shape[0]:
        raise ValueError(f"Expected texts for {shape[0]} questions, got {len(texts)}")
    for index, question in enumerate(texts):
        if len(question) != shape[1]:
            raise ValueError(f"Expected {shape[1]} texts in every question, got {len(question)} in question {index}")
        for text in question:
            if not isinstance(text, str):
                raise TypeError(f"Expected texts as strings, got {type(text).__name__} in question {index}")
    return texts


def check_questions(questions: Any) -> None:
    """Check features, episode, step and texts of a record, and replace them by the checked arrays."""
    features = check_options(questions.features, name="features", dtype=np.float32)
    object.__setattr__(questions, "features", read_only(features))
    hint = f"one for each of the {len(features)} questions"
    for name in ("episode", "step"):
        values = check_integers(getattr(questions, name), name, shape=(len(features),), low=0, hint=hint)
        object.__setattr__(questions, name, read_only(values))
    object.__setattr__(questions, "texts", _check_texts(questions.texts, features.shape))


class QuestionShape:
    """Sizes of a record with ``features`` of shape (n, K, d)."""

    features: NDArray[np.float32]

    def __len__(self) -> int:
        """Number of questions n."""
        return len(self.features)

    @property
    def num_options(self) -> int:
        """Number of options K of a question."""
        return int(self.features.shape[1])

    @property
    def dimension(self) -> int:
        """Number of features d of an option."""
        return int(self.features.shape[2])


@dataclass(frozen=True, eq=False)
class Queries(QuestionShape):
    """Questions without answers.

    Attributes:
        features: Features of the options, (n, K, d), stored as float32; K >= 2; n = 0 is allowed.
        episode: Episode of each question, (n,).
        step: Step h of each question in its episode, (n,).
        texts: The K texts of each question, or None.

    Raises:
        TypeError: Episode or step are not integers, or texts are not strings.
        ValueError: K < 2, NaN features, or lengths that do not match.
    """

    features: NDArray[np.float32]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    texts: Texts | None = None

    def __post_init__(self) -> None:
        check_questions(self)
