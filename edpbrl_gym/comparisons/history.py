"""The record of a conversation: every question with the response to it, whatever its format, skips included."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_array, check_count
from edpbrl_gym.comparisons.records import Comparisons, Queries, QuestionShape
from edpbrl_gym.likelihood import Response, ResponseModel, Terms

__all__ = ["History"]


@dataclass(frozen=True, eq=False)
class History(QuestionShape):
    """All questions of one user and the responses (frozen; arrays are read-only; changes make a new one).

    Attributes:
        features: what the user saw, (n, K, d), stored as float32; n = 0 is allowed.
        responses: one for each question.
        episode: the episode of each question, (n,).
        step: the step h of each question in its episode, (n,).
        texts: the K texts of each question, or None.
        who: the name of the one who answered.
        answered_at: when, UTC, datetime64[us] (n,), NaT where it is not known; None where no time is.
        metadata: how the answers came about (encoder, response model, ...); must be JSON.

    Raises:
        TypeError: responses that are no Response; otherwise as for ``Comparisons``.
        ValueError: another number of responses than of questions, or one about options that the question has not;
            otherwise as for ``Comparisons``.
    """

    features: NDArray[np.float32]
    responses: tuple[Response, ...]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    texts: list[list[str]] | None = None
    who: str = ""
    answered_at: NDArray[np.datetime64] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # the fields that both records share are checked by the other one
        checked = Comparisons(
            features=self.features,
            choice=np.zeros(len(self.features), dtype=np.int64),
            episode=self.episode,
            step=self.step,
            texts=self.texts,
            who=self.who,
            answered_at=self.answered_at,
            metadata=self.metadata,
        )
        for name in ("features", "episode", "step", "texts", "answered_at", "metadata"):
            object.__setattr__(self, name, getattr(checked, name))
        responses = tuple(self.responses)
        if len(responses) != len(checked):
            raise ValueError(f"Expected one response for each of the {len(checked)} questions, got {len(responses)}")
        for index, response in enumerate(responses):
            if not isinstance(response, Response):
                raise TypeError(f"Expected responses as Response, got {type(response).__name__} at question {index}")
            response.checked(checked.num_options)
        object.__setattr__(self, "responses", responses)

    @classmethod
    def empty(
        cls, num_options: int, dimension: int, *, who: str = "", metadata: dict[str, Any] | None = None
    ) -> History:
        """A history without questions, to append to.

        Args:
            num_options: K of the questions to come, >= 2.
            dimension: d of their features, >= 1.
            who: the name of the one who will answer.
            metadata: how the answers will come about.
        """
        count = check_count(num_options, "num_options", minimum=2)
        shape = (0, count, check_count(dimension, "dimension"))
        none = np.zeros(0, dtype=np.int64)
        return cls(np.zeros(shape, dtype=np.float32), (), none, none, who=who, metadata=metadata or {})

    @classmethod
    def from_comparisons(cls, comparisons: Comparisons) -> History:
        """The history whose responses name the best options."""
        return cls(
            features=comparisons.features,
            responses=tuple(Response.best(int(choice)) for choice in comparisons.choice),
            episode=comparisons.episode,
            step=comparisons.step,
            texts=comparisons.texts,
            who=comparisons.who,
            answered_at=comparisons.answered_at,
            metadata=comparisons.metadata,
        )

    def appended(
        self,
        features: ArrayLike,
        response: Response,
        *,
        episode: int,
        step: int,
        texts: Sequence[str] | None = None,
        answered_at: np.datetime64 | None = None,
    ) -> History:
        """This history and one more question with its response.

        Args:
            features: of the K options, (K, d).
            response: the answer.
            episode: of the question.
            step: of the question in its episode.
            texts: of the K options; given for every question of a history or for none.
            answered_at: when, UTC; None where it is not known.

        Raises:
            TypeError: as for the class.
            ValueError: features of another shape than the history's, texts for some questions only; as for the class.
        """
        shape = (self.num_options, self.dimension)
        row = check_array(features, "features", shape=shape, dtype=np.float32, hint="(K, d) of the history")
        if isinstance(answered_at, np.datetime64) or answered_at is None:
            times = None if answered_at is None else np.array([answered_at], dtype="datetime64[us]")
        else:
            raise TypeError(f"Expected answered_at as numpy datetime64 (UTC), got {type(answered_at).__name__}")
        one = History(
            features=row[None],
            responses=(response,),
            episode=np.array([check_count(episode, "episode", minimum=0)]),
            step=np.array([check_count(step, "step", minimum=0)]),
            texts=None if texts is None else [list(texts)],
            who=self.who,
            answered_at=times,
            metadata=self.metadata,
        )
        return self.extended(one)

    def extended(self, other: History) -> History:
        """This history and then the questions of another one of the same user; the metadata are this one's.

        Raises:
            ValueError: another K, d or user, or texts in one of the two only.
        """
        if (other.num_options, other.dimension, other.who) != (self.num_options, self.dimension, self.who):
            raise ValueError(
                f"Expected a history with (K, d, who) = {(self.num_options, self.dimension, self.who)}, got "
                f"{(other.num_options, other.dimension, other.who)}; keep one history for each user"
            )
        if not len(self):
            return replace(other, metadata=self.metadata)
        if not len(other):
            return self
        if (self.texts is None) != (other.texts is None):
            raise ValueError("Expected texts for all questions of a history or for none, got them for some")
        times = None
        if self.answered_at is not None or other.answered_at is not None:
            times = np.concatenate([_times(self), _times(other)])
        return replace(
            self,
            features=np.concatenate([self.features, other.features]),
            responses=(*self.responses, *other.responses),
            episode=np.concatenate([self.episode, other.episode]),
            step=np.concatenate([self.step, other.step]),
            texts=None if self.texts is None or other.texts is None else [*self.texts, *other.texts],
            answered_at=times,
        )

    def undone(self, count: int = 1) -> History:
        """This history without its last ``count`` questions.

        Raises:
            ValueError: there are fewer.
        """
        if check_count(count, "count") > len(self):
            raise ValueError(f"Expected at least {count} question(s) to undo, got a history of {len(self)}")
        keep = len(self) - count
        return replace(
            self,
            features=self.features[:keep],
            responses=self.responses[:keep],
            episode=self.episode[:keep],
            step=self.step[:keep],
            texts=None if self.texts is None else self.texts[:keep],
            answered_at=None if self.answered_at is None else self.answered_at[:keep],
        )

    def terms(self, model: ResponseModel) -> Terms:
        """The likelihood of the responses under a response model, for ``estimation.estimate``; skips add none.

        Raises:
            ValueError: a response of a kind that the model does not know.
        """
        return model.terms(self.features, self.responses)

    @property
    def queries(self) -> Queries:
        """The questions without their responses."""
        return Queries(self.features, self.episode, self.step, self.texts)

    @property
    def comparisons(self) -> Comparisons:
        """The questions whose response names a best option, with it as the choice: no ties, no skips."""
        named = [index for index, response in enumerate(self.responses) if response.first is not None]
        places = np.array(named, dtype=np.int64)
        return Comparisons(
            features=self.features[places],
            choice=np.array([self.responses[index].order[0] for index in named], dtype=np.int64),
            episode=self.episode[places],
            step=self.step[places],
            texts=None if self.texts is None else [self.texts[index] for index in named],
            who=self.who,
            answered_at=None if self.answered_at is None else self.answered_at[places],
            metadata=self.metadata,
        )

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write to a parquet file, whole or not at all; format in ``edpbrl_gym.comparisons.parquet``.

        Raises:
            OSError: the folder does not exist or cannot be written; the message names the file.
        """
        from edpbrl_gym.comparisons.parquet import write_history

        write_history(self, path)

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> History:
        """Read a file that :meth:`to_parquet` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is corrupted, foreign, or of a newer format; the message names it.
        """
        from edpbrl_gym.comparisons.parquet import read_history

        return read_history(path)


def _times(history: History) -> NDArray[np.datetime64]:
    if history.answered_at is not None:
        return history.answered_at
    return np.full(len(history), np.datetime64("NaT"), dtype="datetime64[us]")
