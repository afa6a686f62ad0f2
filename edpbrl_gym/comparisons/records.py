"""Answered questions: the result of a collection and the data of an estimate."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Indices, read_only
from edpbrl_gym._validation import check_array, check_count
from edpbrl_gym.comparisons.queries import (
    Queries,
    QuestionRow,
    QuestionShape,
    Texts,
    check_questions,
    padded_options,
)
from edpbrl_gym.likelihood import AnswerFormat, Response, Terms
from edpbrl_gym.likelihood.choice import check_choices
from edpbrl_gym.likelihood.terms import uneven_terms

if TYPE_CHECKING:
    import pandas

__all__ = ["Comparisons"]

# Metadata of the feature space; comparisons that differ here must not be mixed.
_FEATURE_SPACE = ("encoder", "encoder_fingerprint", "feature_map", "attributes")


@dataclass(frozen=True, eq=False)
class Comparisons(QuestionShape):
    """Questions of one user with responses of any format, including skips (frozen; the arrays are read-only).

    Attributes:
        features: Features of the options, (n, K, d), stored as float32; n = 0 is allowed. Also given as a list of
            arrays (K_i, d), one for each question; shorter questions are then padded with zeros.
        responses: One response for each question.
        episode: Episode of each question, (n,).
        step: Step h of each question in its episode, (n,).
        texts: The texts of each question's options, or None.
        who: Name of the user.
        answered_at: Times of the answers, UTC, datetime64[us] (n,), NaT if unknown; None if all are unknown.
        metadata: Provenance of the answers (encoder, oracle, mode, scale, ...); must be JSON. ``attributes``, if there,
            are the names of the d features.
        sizes: Number of options of each question, (n,), 2 to K; None: all K. Of question i only the first
            ``sizes[i]`` options are real (``present``).

    Raises:
        TypeError: Episode, step or sizes are not integers, a response is not a ``Response``, texts or who are not
            strings, or the metadata is not JSON.
        ValueError: NaN features, a response with options that the question does not have, or of one option only (but
            for ratings), or lengths that do not match.
    """

    features: NDArray[np.float32]
    responses: tuple[Response, ...]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    texts: Texts | None = None
    who: str = ""
    answered_at: NDArray[np.datetime64] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    sizes: Indices = field(default=None, kw_only=True)  # type: ignore[arg-type]  # replaced by check_questions

    @property
    def least(self) -> int:
        """Least number of options: two where an answer names one of them."""
        return 1 if all(not getattr(response, "order", ()) for response in self.responses) else 2

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
        names = self.metadata.get("attributes")
        if names is not None and (not isinstance(names, list) or len(names) != self.dimension):
            raise ValueError(f"Expected attributes as the names of the {self.dimension} features, got {names!r}")

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
        return tuple(response.checked(size) for response, size in zip(responses, self.sizes.tolist(), strict=True))

    @classmethod
    def of_choices(
        cls, features: ArrayLike, choice: ArrayLike, episode: ArrayLike, step: ArrayLike, **fields: Any
    ) -> Comparisons:
        """Comparisons from best options: ``choice`` (n,) in 0..K-1; ``fields`` are the other attributes.

        ``features`` is (n, K, d), or a list of n arrays (K_i, d).

        Raises:
            TypeError: The choices are not integers; otherwise as for the class.
            ValueError: A choice is outside 0..K-1; otherwise as for the class.
        """
        options, sizes = padded_options(features, fields.pop("sizes", None))
        best = [Response.best(option) for option in range(options.shape[1])]
        responses = tuple(best[option] for option in check_choices(choice, options).tolist())
        return cls(options, responses, episode, step, sizes=sizes, **fields)  # type: ignore[arg-type]  # checked there

    @classmethod
    def empty(
        cls, num_options: int, dimension: int, *, who: str = "", metadata: dict[str, Any] | None = None
    ) -> Comparisons:
        """Comparisons without questions, to append to.

        Args:
            num_options: Number of options K of a question, >= 1.
            dimension: Number of features d, >= 1.
            who: Name of the user.
            metadata: Provenance of the answers.
        """
        count = check_count(num_options, "num_options")
        shape = (0, count, check_count(dimension, "dimension"))
        none = np.zeros(0, dtype=np.int64)
        return cls(np.zeros(shape, dtype=np.float32), (), none, none, who=who, metadata=metadata or {})

    @property
    def queries(self) -> Queries:
        """The questions without their responses."""
        return Queries(self.features, self.episode, self.step, self.texts, sizes=self.sizes)

    @cached_property
    def choice(self) -> NDArray[np.int64]:
        """The best option of each question, (n,).

        Raises:
            ValueError: A response names no best option (a tie, a skip, levels).
        """
        best = [-1 if response.first is None else response.first for response in self.responses]
        if -1 in best:
            index = best.index(-1)
            raise ValueError(
                f"Expected responses that name a best option, got a {self.responses[index].kind} at question {index}; "
                "take .decided, or estimate with the model of these answers, format_of(responses)"
            )
        return read_only(np.array(best, dtype=np.int64))

    @property
    def answered(self) -> Comparisons:
        """The answered questions: no skips."""
        return self.select([response.kind != "skip" for response in self.responses])

    @property
    def decided(self) -> Comparisons:
        """The questions whose response names a best option: no ties, no skips, no levels."""
        return self.select([response.first is not None for response in self.responses])

    @property
    def informative(self) -> Comparisons:
        """The questions whose response names options or levels: no ties, no skips."""
        return self.select([bool(response.numbers) for response in self.responses])

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the d features: those of the metadata, else feature_1, feature_2, ..."""
        names = self.metadata.get("attributes")
        return tuple(names) if names else tuple(f"feature_{number + 1}" for number in range(self.dimension))

    def terms(self, model: AnswerFormat) -> Terms:
        """The likelihood of the responses under a response model; skips add no term.

        Raises:
            ValueError: The model does not support a response's kind.
        """
        return uneven_terms(model, self.features, self.sizes, self.responses)

    def _fields_at(self, indices: Indices) -> dict[str, Any]:
        times = None if self.answered_at is None else self.answered_at[indices]
        responses = tuple(self.responses[i] for i in indices)
        return {**super()._fields_at(indices), "responses": responses, "answered_at": times}

    def _row(self, index: int) -> QuestionRow:
        time = None if self.answered_at is None or np.isnat(self.answered_at[index]) else self.answered_at[index]
        return super()._row(index)._replace(response=self.responses[index], answered_at=time)

    def __eq__(self, other: object) -> bool:
        """Whether all attributes are equal; unknown times equal each other."""
        if not isinstance(other, Comparisons):
            return NotImplemented
        return (
            self.responses == other.responses
            and (self.who, self.texts, self.metadata) == (other.who, other.texts, other.metadata)
            and all(
                np.array_equal(getattr(self, name), getattr(other, name))
                for name in ("sizes", "episode", "step", "features")
            )
            and np.array_equal(_answer_times(self), _answer_times(other), equal_nan=True)
        )

    __hash__ = None  # type: ignore[assignment]  # equal by value, and too large to hash

    def __repr__(self) -> str:
        """Sizes and kinds of the answers, without the arrays."""
        low, high = int(self.sizes.min(initial=self.num_options)), self.num_options
        kinds = Counter(response.kind for response in self.responses)
        answers = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "no answers"
        of = f"{high}" if low == high else f"{low} to {high}"
        who = f" of {self.who!r}" if self.who else ""
        texts = "" if self.texts is None else ", with texts"
        return (
            f"<Comparisons{who}: {len(self)} question(s) of {of} options, {self.dimension} features{texts}; {answers}>"
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
            features: Features of the K options, (K, d); K need not be that of the other questions.
            response: The answer.
            episode: Episode of the question.
            step: Step of the question in its episode.
            texts: Texts of the K options; either every question has texts or none.
            answered_at: Time of the answer, UTC; None if unknown.

        Raises:
            TypeError: As for the class.
            ValueError: Features of another shape, or texts for some questions only; otherwise as for the class.
        """
        hint = f"the other questions have d = {self.dimension} features"
        row = check_array(features, "features", shape=("K", self.dimension), dtype=np.float32, hint=hint)
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
    def concatenate(cls, parts: Iterable[Comparisons]) -> Comparisons:
        """All questions of the parts, in order.

        Parts may differ in K; shorter questions are padded. Metadata common to all parts are kept; the others are
        listed, part by part, under the key ``parts``. Texts are kept only if every part has them; times are NaT in a
        part without.

        Raises:
            TypeError: A part of another type.
            ValueError: There are no parts, or they differ in d, encoder, attributes or user (a theta belongs to one
                user).
        """
        parts = list(parts)
        for part in parts:
            if not isinstance(part, Comparisons):
                raise TypeError(f"Expected Comparisons to concatenate, got {type(part).__name__}; read it first")
        if not parts:
            raise ValueError("Expected at least one Comparisons to concatenate, got none")
        dimensions = {part.dimension for part in parts}
        if len(dimensions) > 1:
            raise ValueError(
                f"Expected the same number of features d in all parts, got {sorted(dimensions)}; estimate each apart"
            )
        names = {part.who for part in parts}
        if len(names) > 1:
            raise ValueError(f"Expected answers of one user, got {sorted(names)}; estimate each user separately")
        for key in _FEATURE_SPACE:
            spaces = {json.dumps(part.metadata.get(key)) for part in parts}
            if len(spaces) > 1:
                raise ValueError(
                    f"Expected the same features in all parts, got {key} {sorted(spaces)}; encode the texts again, or "
                    "read the tables with the same columns"
                )
        texts = [part.texts for part in parts if part.texts is not None]
        timed = any(part.answered_at is not None for part in parts)
        most = max(part.num_options for part in parts)
        features = np.zeros((sum(map(len, parts)), most, parts[0].dimension), dtype=np.float32)
        start = 0
        for part in parts:
            features[start : start + len(part), : part.num_options] = part.features
            start += len(part)
        return cls(
            features=features,
            sizes=np.concatenate([part.sizes for part in parts]),
            responses=tuple(response for part in parts for response in part.responses),
            episode=np.concatenate([part.episode for part in parts]),
            step=np.concatenate([part.step for part in parts]),
            texts=[question for part in texts for question in part] if len(texts) == len(parts) else None,
            who=parts[0].who,
            answered_at=np.concatenate([_answer_times(part) for part in parts]) if timed else None,
            metadata=_merge_metadata([part.metadata for part in parts]),
        )

    def to_pandas(self) -> pandas.DataFrame:
        """The questions as a long table, one row for each option.

        Columns: person, question (0..n-1), episode, step, option (1..K), text (if there are texts), chosen (whether it
        is the best option), answered_at (if times are known), and the features under the names ``attributes``. Where an
        answer is of another kind than "best", also response (the kind) and place (1 the best, as the options were
        named; of the worst beside the best K; missing for the others). ``load_comparisons`` reads it, if each answer
        names the best option, or each ranks some.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        from edpbrl_gym.comparisons.frames import long_frame

        return long_frame(self)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write to a parquet file atomically; see :func:`edpbrl_gym.comparisons.parquet.write`."""
        from edpbrl_gym.comparisons.parquet import write

        write(self, path)

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> Comparisons:
        """Read a file that :meth:`to_parquet` wrote; see :func:`edpbrl_gym.comparisons.parquet.read`."""
        from edpbrl_gym.comparisons.parquet import read

        return read(path)


def _checked_keys(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, dict) or not all(isinstance(key, str) for key in metadata):
        raise TypeError(f"{type(metadata).__name__} (or keys that are no strings)")
    return metadata


def _answer_times(comparisons: Comparisons) -> NDArray[np.datetime64]:
    """Times of the answers, NaT where unknown, (n,)."""
    if comparisons.answered_at is not None:
        return comparisons.answered_at
    return np.full(len(comparisons), np.datetime64("NaT"), dtype="datetime64[us]")


def _merge_metadata(all_metadata: list[dict[str, Any]]) -> dict[str, Any]:
    first = all_metadata[0]
    absent = object()
    agreed = {key for key in first if all(part.get(key, absent) == first[key] for part in all_metadata)}
    merged = {key: first[key] for key in first if key in agreed}
    differing = [{key: value for key, value in part.items() if key not in agreed} for part in all_metadata]
    if any(differing):
        merged["parts"] = differing
    return merged
