"""What people chose: one type for all sources."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, Indices, read_only
from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.likelihood import Terms

__all__ = ["People", "Person", "same_size"]


@dataclass(frozen=True, eq=False)
class Person:
    """Questions that a person answered (frozen; the arrays are read-only).

    Attributes:
        name: Name or number of the person.
        options: Attributes of the options, (n, K, d); of question i the first ``sizes[i]`` options are real, the
            others padding.
        sizes: Number of options of each question, (n,), 2 to K.
        chosen: The chosen option, (n,), in 0..sizes - 1.

    Raises:
        TypeError: Sizes or choices are not integers.
        ValueError: Shapes that do not match, NaN, fewer than 2 options, or a choice outside the question.
    """

    name: str
    options: Floats
    sizes: Indices
    chosen: Indices

    def __post_init__(self) -> None:
        options = check_array(self.options, "options", shape=("n", "K", "d"))
        count, most = options.shape[:2]
        if most < 2:
            raise ValueError(f"Expected questions with at least 2 options, got options of shape {options.shape}")
        sizes = check_integers(self.sizes, "sizes", shape=(count,), low=2, high=most)
        chosen = check_integers(self.chosen, "chosen", shape=(count,), low=0, high=most - 1)
        if (chosen >= sizes).any():
            row = int(np.argmax(chosen >= sizes))
            raise ValueError(f"Expected a choice in 0..{sizes[row] - 1} in question {row}, got {chosen[row]}")
        padded = np.where(np.arange(most)[None, :, None] < sizes[:, None, None], options, 0.0)
        for name, array in (("options", padded), ("sizes", sizes), ("chosen", chosen)):
            object.__setattr__(self, name, read_only(array))

    def __len__(self) -> int:
        """Number of questions n."""
        return len(self.chosen)

    def select(self, questions: ArrayLike) -> Person:
        """The questions at the given indices, in that order."""
        rows = np.asarray(questions, dtype=np.int64)
        return Person(self.name, self.options[rows], self.sizes[rows], self.chosen[rows])

    def terms(self) -> Terms:
        """The likelihood of the answers: a multinomial logit for each question."""
        absent = np.arange(self.options.shape[1])[None, :] >= self.sizes[:, None]
        return Terms(self.options, np.where(absent, -np.inf, 0.0), self.chosen)


@dataclass(frozen=True, eq=False)
class People:
    """The answers of many people about options with the same attributes.

    Attributes:
        name: Short name of the data.
        people: The people.
        attributes: Names of the d attributes.
        source: Where the data come from, in a few words.

    Raises:
        ValueError: There is nobody, a name is there twice, or a person has other attributes.
    """

    name: str
    people: tuple[Person, ...]
    attributes: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        if not self.people:
            raise ValueError(f"Expected at least one person in {self.source}, got none")
        for person in self.people:
            if person.options.shape[2] != len(self.attributes):
                raise ValueError(
                    f"Expected {len(self.attributes)} attributes for person {person.name} of {self.source}, got "
                    f"{person.options.shape[2]}; all files must have the same features"
                )
        names = [person.name for person in self.people]
        repeated = next((name for number, name in enumerate(names) if name in names[:number]), None)
        if repeated is not None:
            raise ValueError(f"Expected every person once in {self.source}, got {repeated!r} more than once")

    @property
    def dimension(self) -> int:
        """Number of attributes d."""
        return len(self.attributes)

    @property
    def num_options(self) -> int:
        """Largest number of options K of a question."""
        return max(int(person.sizes.max(initial=2)) for person in self.people)

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 of names, attributes and answers, so that a resumed run is known to have the same data."""
        digest = hashlib.sha256("\0".join(self.attributes).encode())
        for person in self.people:
            digest.update(f"\0{person.name}\0{person.options.shape}".encode())
            for array, kind in ((person.options, "<f8"), (person.sizes, "<i8"), (person.chosen, "<i8")):
                digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
        return digest.hexdigest()

    def standardised(self) -> People:
        """The same people with every attribute divided by its standard deviation over all options of all questions.

        An attribute that never varies stays as it is.
        """
        rows = np.concatenate([_real_rows(person) for person in self.people])
        deviation = rows.std(axis=0)
        deviation[deviation <= 1e-12 * np.abs(rows).max(axis=0)] = 1.0
        people = [Person(one.name, one.options / deviation, one.sizes, one.chosen) for one in self.people]
        return replace(self, people=tuple(people))


def _real_rows(person: Person) -> Floats:
    """All options without padding, (m, d)."""
    return np.asarray(person.options[np.arange(person.options.shape[1])[None, :] < person.sizes[:, None]])


def same_size(sizes: Sequence[int] | Indices) -> list[tuple[int, Indices]]:
    """The questions of each number of options: (number, their indices), in ascending order of the number."""
    counts = np.asarray(sizes, dtype=np.int64)
    return [(int(size), np.flatnonzero(counts == size)) for size in np.unique(counts)]
