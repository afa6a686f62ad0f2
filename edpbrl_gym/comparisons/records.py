"""Answered questions: the result of a collection and the data of an estimate."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import read_only
from edpbrl_gym._validation import check_array, check_count, check_integers
from edpbrl_gym.comparisons.queries import Queries, QuestionShape, Texts, check_questions
from edpbrl_gym.likelihood import Response, ResponseModel, Terms
from edpbrl_gym.likelihood.choice import check_choices, check_options

__all__ = ["Comparisons"]

# Metadata of the feature space; comparisons that differ here must not be mixed.
_FEATURE_SPACE = ("encoder", "encoder_fingerprint", "feature_map")


@dataclass(frozen=True, eq=False)
class Comparisons(QuestionShape):
    """Questions of one user with responses of any format, including skips (frozen; the arrays are read-only).

    Attributes:
        features: Features of the options, (n, K, d), stored as float32; n = 0 is allowed.
        responses: One response for each question.
        episode: Episode of each question, (n,).
        step: Step h of each question in its episode, (n,).
        texts: The K texts of each question, or None.
        who: Name of the user.
        answered_at: Times of the answers, UTC, datetime64[us] (n,), NaT if unknown; None if all are unknown.
        metadata: Provenance of the answers (encoder, oracle, mode, scale, ...); must be JSON.

    Raises:
        TypeError: Episode or step are not integers, a response is not a ``Response``, texts or who are not strings, or
            the metadata is not JSON.
        ValueError: K < 2, NaN features, a response with options that the question does not have, or lengths that do not
            match.
    """

    features: NDArray[np.float32]
    responses: tuple[Response, ...]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    texts: Texts | None = None
    who: str = ""
    answered_at: NDArray[np.datetime64] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_questions(self)
        object.__setattr__(self, "responses", self._checked_responses())
        if not isinstance(self.who, str):
            raise TypeError(f"Expected who as a string, got {type(self.who).__name__}")
        if self.answered_at is not None:
            times = np.asarray(self.answered_at)
            if times.dtype.kind != "M":
                raise TypeError(f"Expected answered_at as numpy datetime64 (UTC), got dtype {times.dtype}")
            if times.shape != (len(self),):
                raise ValueError(f"Expected answered_at of shape ({len(self)},), got shape {times.shape}")
            object.__setattr__(self, "answered_at", read_only(times.astype("datetime64[us]")))
        try:
            # a copy through JSON, so that a written file reads back equal
            object.__setattr__(self, "metadata", json.loads(json.dumps(_checked_keys(self.metadata), allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"Expected metadata as a dict that JSON can hold, got {error}; convert arrays to lists"
            ) from None

    def _checked_responses(self) -> tuple[Response, ...]:
        responses = tuple(self.responses)
        for index, response in enumerate(responses):
            if not isinstance(response, Response):
                raise TypeError(
                    f"Expected responses as Response, got {type(response).__name__} at question {index}; where the "
                    "best option was named, use Comparisons.of_choices(features, choice, ...)"
                )
        if len(responses) != len(self):
            raise ValueError(f"Expected one response for each of the {len(self)} questions, got {len(responses)}")
        return tuple(response.checked(self.num_options) for response in responses)

    @classmethod
    def of_choices(
        cls, features: ArrayLike, choice: ArrayLike, episode: ArrayLike, step: ArrayLike, **fields: Any
    ) -> Comparisons:
        """Comparisons from best options: ``choice`` (n,) in 0..K-1; ``fields`` are the other attributes.

        Raises:
            TypeError: The choices are not integers; otherwise as for the class.
            ValueError: A choice is outside 0..K-1; otherwise as for the class.
        """
        options = check_options(features, name="features", dtype=np.float32)
        best = [Response.best(option) for option in range(options.shape[1])]
        responses = tuple(best[option] for option in check_choices(choice, options).tolist())
        return cls(options, responses, episode, step, **fields)  # type: ignore[arg-type]  # checked by the class

    @classmethod
    def empty(
        cls, num_options: int, dimension: int, *, who: str = "", metadata: dict[str, Any] | None = None
    ) -> Comparisons:
        """Comparisons without questions, to append to.

        Args:
            num_options: Number of options K of a question, >= 2.
            dimension: Number of features d, >= 1.
            who: Name of the user.
            metadata: Provenance of the answers.
        """
        count = check_count(num_options, "num_options", minimum=2)
        shape = (0, count, check_count(dimension, "dimension"))
        none = np.zeros(0, dtype=np.int64)
        return cls(np.zeros(shape, dtype=np.float32), (), none, none, who=who, metadata=metadata or {})

    @property
    def queries(self) -> Queries:
        """The questions without their responses."""
        return Queries(self.features, self.episode, self.step, self.texts)

    @cached_property
    def choice(self) -> NDArray[np.int64]:
        """The best option of each question, (n,).

        Raises:
            ValueError: A response names no best option (a tie, a skip).
        """
        best = [-1 if response.first is None else response.first for response in self.responses]
        if -1 in best:
            index = best.index(-1)
            raise ValueError(
                f"Expected responses that name a best option, got a {self.responses[index].kind} at question {index}; "
                "take .decided, or estimate with model=WithTies()"
            )
        return read_only(np.array(best, dtype=np.int64))

    @property
    def answered(self) -> Comparisons:
        """The answered questions: no skips."""
        return self.select([response.kind != "skip" for response in self.responses])

    @property
    def decided(self) -> Comparisons:
        """The questions whose response names a best option: no ties, no skips."""
        return self.select([response.first is not None for response in self.responses])

    def terms(self, model: ResponseModel) -> Terms:
        """The likelihood of the responses under a response model; skips add no term.

        Raises:
            ValueError: The model does not support a response's kind.
        """
        return model.terms(self.features, self.responses)

    def select(self, mask: ArrayLike) -> Comparisons:
        """The questions where ``mask`` is true, or those at the given indices (also repeated or reordered).

        Args:
            mask: Booleans (n,) or integer indices.

        Raises:
            TypeError: The mask has neither booleans nor integers.
            ValueError: The mask has another length, or an index is out of range.
        """
        selection = np.asarray(mask)
        if selection.dtype == bool:
            if selection.shape != (len(self),):
                raise ValueError(f"Expected a mask of shape ({len(self)},), got shape {selection.shape}")
            selection = np.flatnonzero(selection)
        indices = check_integers(selection, "indices", shape=("m",), low=-len(self), high=len(self) - 1)
        return Comparisons(
            features=self.features[indices],
            responses=tuple(self.responses[i] for i in indices),
            episode=self.episode[indices],
            step=self.step[indices],
            texts=None if self.texts is None else [self.texts[i] for i in indices],
            who=self.who,
            answered_at=None if self.answered_at is None else self.answered_at[indices],
            metadata=self.metadata,
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
    ) -> Comparisons:
        """These questions and one more.

        Args:
            features: Features of the K options, (K, d).
            response: The answer.
            episode: Episode of the question.
            step: Step of the question in its episode.
            texts: Texts of the K options; either every question has texts or none.
            answered_at: Time of the answer, UTC; None if unknown.

        Raises:
            TypeError: As for the class.
            ValueError: Features of another shape, or texts for some questions only; otherwise as for the class.
        """
        shape = (self.num_options, self.dimension)
        row = check_array(features, "features", shape=shape, dtype=np.float32, hint="(K, d) of the other questions")
        if len(self) and (self.texts is None) != (texts is None):
            raise ValueError("Expected texts for all questions or for none, got them for some")
        question = Comparisons(
            features=row[None],
            responses=(response,),
            episode=np.array([check_count(episode, "episode", minimum=0)]),
            step=np.array([check_count(step, "step", minimum=0)]),
            texts=None if texts is None else [list(texts)],
            who=self.who,
            answered_at=None if answered_at is None else np.array([answered_at]),
            metadata=self.metadata,
        )
        return Comparisons.concatenate([self, question]) if len(self) else question

    def undone(self, count: int = 1) -> Comparisons:
        """These questions without the last ``count``.

        Raises:
            ValueError: There are fewer questions.
        """
        if check_count(count, "count") > len(self):
            raise ValueError(f"Expected at least {count} question(s) to undo, got {len(self)}")
        return self.select(np.arange(len(self) - count))

    @classmethod
    def concatenate(cls, parts: Sequence[Comparisons]) -> Comparisons:
        """All questions of the parts, in order.

        Metadata common to all parts are kept; the others are listed, part by part, under the key ``parts``. Texts are
        kept only if every part has them; times are NaT in a part without.

        Raises:
            ValueError: There are no parts, or they differ in K, d, encoder or user (a theta belongs to one user).
        """
        if not parts:
            raise ValueError("Expected at least one Comparisons to concatenate, got none")
        shapes = {(part.num_options, part.dimension) for part in parts}
        if len(shapes) > 1:
            raise ValueError(f"Expected the same (K, d) in all parts, got {sorted(shapes)}; estimate them separately")
        names = {part.who for part in parts}
        if len(names) > 1:
            raise ValueError(f"Expected answers of one user, got {sorted(names)}; estimate each user separately")
        for key in _FEATURE_SPACE:
            spaces = {json.dumps(part.metadata.get(key)) for part in parts}
            if len(spaces) > 1:
                raise ValueError(
                    f"Expected features of one encoder, got {key} {sorted(spaces)}; encode the texts again"
                )
        texts = [part.texts for part in parts if part.texts is not None]
        timed = any(part.answered_at is not None for part in parts)
        return cls(
            features=np.concatenate([part.features for part in parts]),
            responses=tuple(response for part in parts for response in part.responses),
            episode=np.concatenate([part.episode for part in parts]),
            step=np.concatenate([part.step for part in parts]),
            texts=[question for part in texts for question in part] if len(texts) == len(parts) else None,
            who=parts[0].who,
            answered_at=np.concatenate([_times(part) for part in parts]) if timed else None,
            metadata=_merge_metadata([part.metadata for part in parts]),
        )

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write to a parquet file atomically; see :mod:`edpbrl_gym.comparisons.parquet`.

        Raises:
            OSError: The folder does not exist or can't be written; the message names the file.
        """
        from edpbrl_gym.comparisons.parquet import write

        write(self, path)

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> Comparisons:
        """Read a file that :meth:`to_parquet` wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: It is corrupted, not of this package, or of another version; the message names the file.
        """
        from edpbrl_gym.comparisons.parquet import read

        return read(path)


def _times(comparisons: Comparisons) -> NDArray[np.datetime64]:
    if comparisons.answered_at is not None:
        return comparisons.answered_at
    return np.full(len(comparisons), np.datetime64("NaT"), dtype="datetime64[us]")


def _checked_keys(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, dict) or not all(isinstance(key, str) for key in metadata):
        raise TypeError(f"{type(metadata).__name__} (or keys that are no strings)")
    return metadata


def _merge_metadata(all_metadata: list[dict[str, Any]]) -> dict[str, Any]:
    first = all_metadata[0]
    absent = object()
    agreed = {key for key in first if all(part.get(key, absent) == first[key] for part in all_metadata)}
    merged = {key: first[key] for key in first if key in agreed}
    differing = [{key: value for key, value in part.items() if key not in agreed} for part in all_metadata]
    if any(differing):
        merged["parts"] = differing
    return merged
