"""Questions without answers, and their common base with answered ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Indices, read_only
from edpbrl_gym._validation import check_array, check_integers, check_selection
from edpbrl_gym.likelihood import Response
from edpbrl_gym.likelihood.choice import check_options
from edpbrl_gym.likelihood.terms import runs_of_equal

__all__ = [
    "Queries",
    "QuestionRow",
    "QuestionShape",
    "Texts",
    "check_questions",
    "is_frame",
    "padded_options",
    "present_options",
    "rank_of",
]

Texts = list[list[str]]


def _check_texts(value: Any, sizes: Indices) -> Texts | None:
    if value is None:
        return None
    texts = [list(question) if not isinstance(question, str) else [question] for question in value]
    if len(texts) != len(sizes):
        raise ValueError(f"Expected texts for {len(sizes)} questions, got {len(texts)}")
    for index, (question, size) in enumerate(zip(texts, sizes.tolist(), strict=True)):
        if len(question) != size:
            raise ValueError(
                f"Expected {size} texts in question {index}, one for each option, got {len(question)}; where questions "
                "have different numbers of options, give sizes, or the features as a list of arrays"
            )
        for text in question:
            if not isinstance(text, str):
                raise TypeError(f"Expected texts as strings, got {type(text).__name__} in question {index}")
    return texts


def is_frame(value: object) -> bool:
    """Whether it is a pandas.DataFrame; pandas is not imported."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def padded_options(
    features: Any, sizes: Any = None, *, name: str = "features", dtype: Any = np.float32, least: int = 2
) -> tuple[NDArray[Any], Indices]:
    """Features of questions that may differ in their number of options as one array, zeros where there is no option.

    Args:
        features: (n, K, d), a sequence of n arrays (K_i, d), or a record of questions.
        sizes: Number of options of each question, (n,), of which the first are real; None: all K, or the lengths of the
            n arrays.
        name: Name of the features, for messages.
        dtype: Floating type of the result.
        least: Least number of options of a question.

    Returns:
        The options, (n, K, d) with K the largest number of options of a question, and the sizes (n,).

    Raises:
        TypeError: Features that are not numbers, or sizes that are no integers.
        ValueError: NaN, fewer options than ``least``, another shape, or sizes outside ``least``..K.
    """
    if isinstance(features, QuestionShape):
        features, sizes = features.features, features.sizes
    if sizes is None and isinstance(features, Sequence) and not isinstance(features, str):
        lengths = [len(question) if hasattr(question, "__len__") else 0 for question in features]
        if len(set(lengths)) > 1:
            rows = [check_array(one, f"{name}[{i}]", shape=("K", "d"), dtype=dtype) for i, one in enumerate(features)]
            widths = {one.shape[1] for one in rows}
            if len(widths) > 1:
                raise ValueError(f"Expected options with the same number of features in {name}, got {sorted(widths)}")
            sizes = np.array(lengths)
            features = np.zeros((len(rows), max(lengths), widths.pop()), dtype=dtype)
            for place, one in zip(features, rows, strict=True):
                place[: len(one)] = one
    if sizes is None:
        hint = "give X.reshape(n, K, d), or a list with an array (K_i, d) for each question"
        features = check_array(features, name, shape=("n", "K", "d"), dtype=dtype, finite=False, hint=hint)
        options = check_options(features, name=name, dtype=dtype, least=least)
        return options, np.full(len(options), options.shape[1])
    options = check_array(features, name, shape=("n", "K", "d"), dtype=dtype, finite=False)
    hint = f"one for each of the {len(options)} questions"
    counts = check_integers(sizes, "sizes (options of each question)", shape=(len(options),), hint=hint)
    low, high = int(counts.min(initial=options.shape[1])), int(counts.max(initial=0))
    if low < least or high > options.shape[1]:
        index = int(np.argmax((counts < least) | (counts > options.shape[1])))
        raise ValueError(
            f"Expected {least} to {options.shape[1]} options in every question, got {counts[index]} in question "
            f"{index} of {name}; leave out questions with a single option, whose choice says nothing"
        )
    if len(counts) and high < options.shape[1]:
        options = options[:, :high]
    if low < options.shape[1]:
        options = np.where(present_options(counts, options.shape[1])[:, :, None], options, options.dtype.type(0))
    return check_options(options, name=name, dtype=dtype, least=least), counts


def rank_of(options: Any) -> int:
    """Number of dimensions of features: 2 of one question's options, 3 of several, also in a list of arrays."""
    if isinstance(options, QuestionShape):
        return 3
    nested = isinstance(options, (list, tuple)) and len(options) > 0
    return 1 + np.ndim(options[0]) if nested else np.ndim(options)


def present_options(sizes: Indices, num_options: int) -> Booleans:
    """Whether an option is real, (n, K), where question i has the first ``sizes[i]`` of K options."""
    return np.asarray(np.arange(num_options)[None, :] < sizes[:, None])


def check_questions(questions: Any) -> None:
    """Check features, sizes, episode, step and texts of a record, and replace them by the checked arrays."""
    features, sizes = padded_options(questions.features, questions.sizes, least=questions.least)
    object.__setattr__(questions, "features", read_only(features))
    object.__setattr__(questions, "sizes", read_only(sizes))
    hint = f"one for each of the {len(features)} questions"
    for name in ("episode", "step"):
        values = check_integers(getattr(questions, name), name, shape=(len(features),), low=0, hint=hint)
        object.__setattr__(questions, name, read_only(values))
    object.__setattr__(questions, "texts", _check_texts(questions.texts, sizes))


class QuestionRow(NamedTuple):
    """One question of ``Queries`` or ``Comparisons``.

    Attributes:
        options: Features of its options, (K, d).
        texts: Their texts, or None.
        episode: Its episode.
        step: Its step in the episode.
        response: The answer; None for a question of ``Queries``.
        answered_at: Time of the answer, UTC; None if unknown.
    """

    options: NDArray[np.float32]
    texts: list[str] | None
    episode: int
    step: int
    response: Response | None = None
    answered_at: np.datetime64 | None = None

    @property
    def choice(self) -> int | None:
        """The best option, in 0..K-1; None if the answer names none (a tie, a skip)."""
        return None if self.response is None else self.response.first


def _is_number(key: Any) -> bool:
    """Whether a key names one question, not several."""
    return not isinstance(key, (slice, bool, np.bool_)) and np.ndim(key) == 0


class QuestionShape:
    """Sizes of a record with ``features`` of shape (n, K, d), of whose options the first ``sizes`` (n,) are real."""

    features: NDArray[np.float32]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    texts: Texts | None
    sizes: Indices

    @property
    def least(self) -> int:
        """Least number of options: that of the formats that need the fewest, as the answers are not known."""
        return 1

    def __len__(self) -> int:
        """Number of questions n."""
        return len(self.features)

    @property
    def num_options(self) -> int:
        """Number of options K of a question; the largest, where questions differ."""
        return int(self.features.shape[1])

    @property
    def dimension(self) -> int:
        """Number of features d of an option."""
        return int(self.features.shape[2])

    @property
    def even(self) -> bool:
        """Whether every question has K options."""
        return bool((self.sizes == self.num_options).all())

    @property
    def present(self) -> Booleans:
        """Whether an option is real, not padding, (n, K)."""
        return present_options(self.sizes, self.num_options)

    def __iter__(self) -> Iterator[QuestionRow]:
        """The questions, one after the other."""
        return map(self._row, range(len(self)))

    def _row(self, index: int) -> QuestionRow:
        return QuestionRow(
            self.features[index, : self.sizes[index]],
            None if self.texts is None else self.texts[index],
            int(self.episode[index]),
            int(self.step[index]),
        )

    def runs(self) -> list[slice]:
        """Slices of consecutive questions with the same number of options."""
        return runs_of_equal(self.sizes)

    def select(self, selection: Any) -> Self:
        """The questions at a slice, a mask (n,) or indices, also repeated or reordered.

        Raises:
            TypeError: The selection holds neither booleans nor integers.
            ValueError: A mask of another length, or an index out of range.
        """
        return replace(self, **self._fields_at(check_selection(selection, len(self))))  # type: ignore[type-var]

    def _fields_at(self, indices: Indices) -> dict[str, Any]:
        """The fields of a record of these questions that differ from those of this one."""
        texts = None if self.texts is None else [self.texts[i] for i in indices]
        arrays = {name: getattr(self, name)[indices] for name in ("features", "episode", "step", "sizes")}
        return {**arrays, "texts": texts}

    @overload
    def __getitem__(self, key: SupportsIndex) -> QuestionRow: ...

    @overload
    def __getitem__(self, key: slice | ArrayLike) -> Self: ...

    def __getitem__(self, key: Any) -> QuestionRow | Self:
        """The question with a number, or those at a slice, a mask (n,) or indices."""
        return self._row(int(check_selection(key, len(self))[0])) if _is_number(key) else self.select(key)


@dataclass(frozen=True, eq=False)
class Queries(QuestionShape):
    """Questions without answers: features, episode, step, texts and sizes, as in ``Comparisons``, and their errors."""

    features: NDArray[np.float32]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]
    texts: Texts | None = None
    sizes: Indices = field(default=None, kw_only=True)  # type: ignore[arg-type]  # replaced by check_questions

    def __post_init__(self) -> None:
        check_questions(self)
