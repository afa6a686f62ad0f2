"""Questions and answered questions: what the collection produces and the estimate consumes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_integers
from edpbrl_gym.likelihood.choice import check_choices, check_options

__all__ = ["Comparisons", "Queries", "QuestionShape"]

Texts = list[list[str]]

# Metadata that says in which space the features live; comparisons that differ here must not be mixed.
_FEATURE_SPACE = ("encoder", "encoder_fingerprint")


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


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _check_questions(questions: Queries | Comparisons) -> None:
    """Check the fields that both records share and put the checked arrays in their place."""
    features = check_options(questions.features, name="features", dtype=np.float32)
    object.__setattr__(questions, "features", _read_only(features))
    hint = f"one for each of the {len(features)} questions"
    for name in ("episode", "step"):
        values = check_integers(getattr(questions, name), name, shape=(len(features),), low=0, hint=hint)
        object.__setattr__(questions, name, _read_only(values))
    object.__setattr__(questions, "texts", _check_texts(questions.texts, features.shape))


class QuestionShape:
    """Sizes of what holds ``features`` of shape (n, K, d)."""

    features: NDArray[np.float32]

    def __len__(self) -> int:
        """Number of questions n."""
        return len(self.features)

    @property
    def num_options(self) -> int:
        """Options in a question, K."""
        return int(self.features.shape[1])

    @property
    def dimension(self) -> int:
        """Features of an option, d."""
        return int(self.features.shape[2])


@dataclass(frozen=True, eq=False)
class Queries(QuestionShape):
    """Questions without answers.

    Attributes:
        features: what the user compares, (n, K, d), stored as float32; K >= 2; n = 0 is allowed.
        episode: the episode of each question, (n,).
        step: the step h of each question in its episode, (n,).
        texts: the K texts of each question, or None where there are none.

    Raises:
        TypeError: episode or step are no integers, texts are no strings.
        ValueError: K < 2, NaN features, or lengths that do not match.
    """

    features: NDArray[np.float32]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    texts: Texts | None = None

    def __post_init__(self) -> None:
        _check_questions(self)


@dataclass(frozen=True, eq=False)
class Comparisons(QuestionShape):
    """Answered questions of one user (frozen; the arrays are read-only).

    Attributes:
        features: what the user compared, (n, K, d), stored as float32.
        choice: index of the chosen option, (n,), in 0..K-1.
        episode: the episode of each question, (n,).
        step: the step h of each question in its episode, (n,).
        texts: the K texts of each question, or None.
        who: the name of the one who answered.
        answered_at: when, UTC, datetime64[us] (n,); None where it is not known.
        metadata: how the answers came about (encoder, oracle, mode, scale, ...); must be JSON.

    Raises:
        TypeError: choice, episode or step are no integers; texts or who are no strings; metadata is no JSON.
        ValueError: K < 2, NaN features, a choice outside 0..K-1, or lengths that do not match.
    """

    features: NDArray[np.float32]
    choice: NDArray[np.int64]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    texts: Texts | None = None
    who: str = ""
    answered_at: NDArray[np.datetime64] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_questions(self)
        object.__setattr__(self, "choice", _read_only(check_choices(self.choice, self.features)))
        if not isinstance(self.who, str):
            raise TypeError(f"Expected who as a string, got {type(self.who).__name__}")
        if self.answered_at is not None:
            times = np.asarray(self.answered_at)
            if times.dtype.kind != "M":
                raise TypeError(f"Expected answered_at as numpy datetime64 (UTC), got dtype {times.dtype}")
            if times.shape != (len(self),):
                raise ValueError(f"Expected answered_at of shape ({len(self)},), got shape {times.shape}")
            object.__setattr__(self, "answered_at", _read_only(times.astype("datetime64[us]")))
        try:
            # a copy that JSON has seen, so that what is written is what was given
            object.__setattr__(self, "metadata", json.loads(json.dumps(_checked_keys(self.metadata), allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"Expected metadata as a dict that JSON can hold, got {error}; convert arrays to lists"
            ) from None

    @property
    def queries(self) -> Queries:
        """The questions without their answers."""
        return Queries(self.features, self.episode, self.step, self.texts)

    def select(self, mask: ArrayLike) -> Comparisons:
        """The questions where ``mask`` is true, or those at the given indices (also repeated or reordered).

        Args:
            mask: booleans (n,) or integer indices.

        Raises:
            TypeError: neither booleans nor integers.
            ValueError: a mask of another length, or an index that does not exist.
        """
        chosen = np.asarray(mask)
        if chosen.dtype == bool:
            if chosen.shape != (len(self),):
                raise ValueError(f"Expected a mask of shape ({len(self)},), got shape {chosen.shape}")
            chosen = np.flatnonzero(chosen)
        indices = check_integers(chosen, "indices", shape=("m",), low=-len(self), high=len(self) - 1)
        return Comparisons(
            features=self.features[indices],
            choice=self.choice[indices],
            episode=self.episode[indices],
            step=self.step[indices],
            texts=None if self.texts is None else [self.texts[i] for i in indices],
            who=self.who,
            answered_at=None if self.answered_at is None else self.answered_at[indices],
            metadata=self.metadata,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Comparisons]) -> Comparisons:
        """All questions of the parts, in order.

        Metadata on which all parts agree stay; the others are listed, part by part, under the key ``parts``. Texts and
        times stay only when every part has them.

        Raises:
            ValueError: no parts, or parts that differ in K, d, encoder or who answered (a theta belongs to one user).
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
        times = [part.answered_at for part in parts if part.answered_at is not None]
        texts = [part.texts for part in parts if part.texts is not None]
        return cls(
            features=np.concatenate([part.features for part in parts]),
            choice=np.concatenate([part.choice for part in parts]),
            episode=np.concatenate([part.episode for part in parts]),
            step=np.concatenate([part.step for part in parts]),
            texts=[question for part in texts for question in part] if len(texts) == len(parts) else None,
            who=parts[0].who,
            answered_at=np.concatenate(times) if len(times) == len(parts) else None,
            metadata=_merge_metadata([part.metadata for part in parts]),
        )

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write to a parquet file, at once or not at all; see :mod:`edpbrl_gym.comparisons.parquet`.

        Raises:
            OSError: the folder does not exist or cannot be written.
        """
        from edpbrl_gym.comparisons.parquet import write

        write(self, path)

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> Comparisons:
        """Read a file that :meth:`to_parquet` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is corrupted, foreign, or of a newer format; the message names it.
        """
        from edpbrl_gym.comparisons.parquet import read

        return read(path)


def _checked_keys(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, dict) or not all(isinstance(key, str) for key in metadata):
        raise TypeError(f"{type(metadata).__name__} (or keys that are no strings)")
    return metadata


def _merge_metadata(all_metadata: list[dict[str, Any]]) -> dict[str, Any]:
    first = all_metadata[0]
    absent = object()
    agreed = {key for key in first if all(other.get(key, absent) == first[key] for other in all_metadata)}
    merged = {key: first[key] for key in first if key in agreed}
    rest = [{key: value for key, value in one.items() if key not in agreed} for one in all_metadata]
    if any(rest):
        merged["parts"] = rest
    return merged
