"""Who is tested on what: folds over people, held-out questions of each, and the order of the others.

People are shuffled once and cut into folds. A fold's people are new: what is known about others comes from the people
of all other folds. Of each new person some questions are held out, drawn by a generator seeded with the person's place
in the data; the others are asked, one after the other, and the held-out ones are predicted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edpbrl_gym._arrays import Indices
from edpbrl_gym.experiments.people.data import People, Person

__all__ = ["Fold", "NewPerson", "make_fold"]


@dataclass(frozen=True, eq=False)
class NewPerson:
    """A person whose answers are replayed.

    Attributes:
        place: Place of the person in the data.
        asked: The questions that may be asked, in random order.
        held_out: The questions that are predicted.
    """

    place: int
    asked: Person
    held_out: Person


@dataclass(frozen=True, eq=False)
class Fold:
    """People known and people new.

    Attributes:
        known: All people of the other folds, with all their answers.
        new: The people of this fold that are replayed.
        left_out: How many of the fold were left out for too few questions.
    """

    known: tuple[Person, ...]
    new: tuple[NewPerson, ...]
    left_out: int


def make_fold(people: People, number: int, *, folds: int, most: int, held_out: int) -> Fold:
    """One fold over people.

    Args:
        people: The data.
        number: Number of the fold, from 0.
        folds: How many there are, >= 2.
        most: Largest number of people of the fold that are replayed.
        held_out: Questions of a person that are held out; a person needs one more.

    Raises:
        ValueError: There are fewer people than folds, or nobody in the fold has enough questions.
    """
    if len(people.people) < max(folds, 2):
        raise ValueError(
            f"Expected at least {max(folds, 2)} people for {folds} folds in {people.source}, got {len(people.people)}"
        )
    order = np.random.default_rng(0).permutation(len(people.people))
    members = np.array_split(order, folds)[number]
    able = [int(place) for place in members if len(people.people[place]) > held_out]
    if not able:
        longest = max(len(people.people[place]) for place in members)
        raise ValueError(
            f"Expected people with more than {held_out} questions in fold {number} of {people.source}, where "
            f"{held_out} are held out; got at most {longest}. Give a smaller --held-out"
        )
    new = tuple(_replayed(people.people[place], place, held_out) for place in able[:most])
    inside = set(members.tolist())
    known = tuple(person for place, person in enumerate(people.people) if place not in inside)
    return Fold(known, new, len(members) - len(able))


def _replayed(person: Person, place: int, held_out: int) -> NewPerson:
    order: Indices = np.random.default_rng(place).permutation(len(person))
    return NewPerson(place, person.select(order[held_out:]), person.select(order[:held_out]))
