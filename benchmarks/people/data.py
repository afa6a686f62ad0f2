"""What people chose, from long tables; who is tested on what."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym.comparisons.long_tables import read_long
from edpbrl_gym.comparisons.tables import read_table
from edpbrl_gym.likelihood import Terms

Group = Literal["development", "reported", "all"]


@dataclass(frozen=True, eq=False)
class Person:
    """Questions that a person answered, all with the same number of options."""

    name: str
    options: Floats  # attributes of the options, (n, K, d)
    chosen: Indices  # the chosen option of each question, (n,)

    def __len__(self) -> int:
        """Number of questions n."""
        return len(self.chosen)

    def select(self, questions: ArrayLike) -> Person:
        """The questions at the given indices, in that order."""
        rows = np.asarray(questions, dtype=np.int64)
        return Person(self.name, self.options[rows], self.chosen[rows])

    def terms(self) -> Terms:
        """The likelihood of the answers: a multinomial logit for each question."""
        return Terms(self.options, np.zeros(self.options.shape[:2]), self.chosen)


@dataclass(frozen=True, eq=False)
class People:
    """The answers of many people about options with the same attributes."""

    name: str  # of the data
    people: tuple[Person, ...]
    attributes: tuple[str, ...]
    source: str  # where the data come from, in a few words

    @property
    def num_options(self) -> int:
        """Number of options K of a question."""
        return int(self.people[0].options.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 of names, attributes and answers, so that a resumed run is known to have the same data."""
        digest = hashlib.sha256("\0".join(self.attributes).encode())
        for person in self.people:
            digest.update(f"\0{person.name}\0{person.options.shape}".encode())
            for array, kind in ((person.options, "<f8"), (person.chosen, "<i8")):
                digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
        return digest.hexdigest()

    def standardised(self) -> People:
        """The same people with every attribute divided by its standard deviation over all options of all questions.

        An attribute that never varies stays as it is.
        """
        rows = np.concatenate([person.options.reshape(-1, len(self.attributes)) for person in self.people])
        deviation = rows.std(axis=0)
        deviation[deviation <= 1e-12 * np.abs(rows).max(axis=0)] = 1.0
        return replace(self, people=tuple(replace(one, options=one.options / deviation) for one in self.people))


def load_people(files: Sequence[str]) -> list[People]:
    """Load long tables, one row for each option of a question; of a ranking the first choice counts.

    Raises:
        ValueError: No file, two of the same name, a damaged one, or questions with different numbers of options.
    """
    if not files:
        raise ValueError("Expected data of people, got none; give long tables (person, question, option, chosen, ...)")
    found = [_load(Path(one)) for one in files]
    names = [people.name for people in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Expected data with different names, got {name!r} more than once; rename a file")
    return found


def _load(path: Path) -> People:
    if not path.is_file():
        raise FileNotFoundError(f"Expected data of people at {path}, found no such file")
    table = read_long(read_table(path, "a table of people's choices"), None)
    sizes = {len(rows) for questions in table.people.values() for rows in questions}
    if len(sizes) != 1:
        raise ValueError(
            f"Expected questions with the same number of options in {path}, got {sorted(sizes)}; keep those of one size"
        )
    name = path.name.split(".")[0]
    people = tuple(
        Person(who or name, table.features[np.array(questions)], np.array([one[0] for one in table.orders[who]]))
        for who, questions in table.people.items()
    )
    return People(name, people, table.attributes, path.name)


# -- who is tested on what -------------------------------------------------------------------------------------------
# People are shuffled once and cut into folds. A fold's people are new: what is known about others comes from the people
# of all other folds. Of each new person some questions are held out, drawn by a generator seeded with the person's
# place in the data; the others are asked, one after the other, and the held-out ones are predicted.


@dataclass(frozen=True, eq=False)
class NewPerson:
    """A person whose answers are replayed."""

    place: int  # of the person in the data
    asked: Person  # the questions that may be asked, in random order
    held_out: Person  # the questions that are predicted


@dataclass(frozen=True, eq=False)
class Fold:
    """People known and people new."""

    known: tuple[Person, ...]  # all people of the other folds, with all their answers
    new: tuple[NewPerson, ...]  # the people of this fold that are replayed


def make_fold(people: People, number: int, *, folds: int, most: int, held_out: int, group: Group = "all") -> Fold:
    """One of the folds over people, of whom at most ``most`` are replayed; each needs a question more than held out.

    Constants of the library may be set on two fifths of all people, the development group.

    Raises:
        ValueError: There are fewer people than folds, or nobody in the fold has enough questions.
    """
    if len(people.people) < folds:
        raise ValueError(
            f"Expected at least {folds} people for {folds} folds in {people.source}, got {len(people.people)}"
        )
    order = np.random.default_rng(0).permutation(len(people.people))
    members = np.array_split(order, folds)[number]
    everybody = np.random.default_rng(1).permutation(len(people.people)).tolist()
    cut = round(0.4 * len(everybody))
    chosen = set({"development": everybody[:cut], "reported": everybody[cut:], "all": everybody}[group])
    able = [int(place) for place in members if place in chosen and len(people.people[place]) > held_out]
    if not able:
        raise ValueError(
            f"Expected people with more than {held_out} questions in fold {number} of {people.source}, where "
            f"{held_out} are held out; give a smaller --held-out"
        )
    new = []
    for place in able[:most]:
        person = people.people[place]
        shuffled = np.random.default_rng(place).permutation(len(person))
        new.append(NewPerson(place, person.select(shuffled[held_out:]), person.select(shuffled[:held_out])))
    inside = set(members.tolist())
    known = tuple(person for place, person in enumerate(people.people) if place not in inside)
    return Fold(known, tuple(new))
