"""Made people who choose by a multinomial logit, their tastes drawn from one population; a stand-in for public data."""

from __future__ import annotations

import numpy as np
import pandas

from edpbrl_gym.experiments.people.data import People, Person

MEAN = np.array([1.5, -1.0, 0.0])
SPREAD = np.array([0.6, 0.8, 1.2])


def made_people(
    count: int = 30, questions: int = 9, options: int = 3, *, seed: int = 0, sizes: tuple[int, ...] | None = None
) -> People:
    """People with three attributes; of question i there are ``sizes[i % len(sizes)]`` options (None: all)."""
    rng = np.random.default_rng(seed)
    people = []
    for number in range(count):
        taste = MEAN + SPREAD * rng.standard_normal(3)
        table = rng.standard_normal((questions, options, 3)) * np.array([1.0, 5.0, 0.2])
        size = np.array([(sizes or (options,))[row % len(sizes or (options,))] for row in range(questions)])
        utilities = (table / np.array([1.0, 5.0, 0.2])) @ taste + rng.gumbel(size=(questions, options))
        utilities[np.arange(options)[None, :] >= size[:, None]] = -np.inf
        people.append(Person(f"p{number}", table, size, utilities.argmax(axis=1)))
    return People("made", tuple(people), ("warm", "loud", "wide"), "made people")


def long_table(people: People) -> pandas.DataFrame:
    """The long table of the people: person, question, option, chosen, attributes."""
    rows = []
    for person in people.people:
        for question in range(len(person)):
            for option in range(int(person.sizes[question])):
                row = {"person": person.name, "question": f"{person.name}-{question}", "option": option + 1}
                row |= {"chosen": option == person.chosen[question]}
                rows.append(row | dict(zip(people.attributes, person.options[question, option], strict=True)))
    return pandas.DataFrame(rows)


def same(first: People, second: People) -> bool:
    """Whether two people have the same attributes, questions and answers."""
    return first.fingerprint == second.fingerprint
