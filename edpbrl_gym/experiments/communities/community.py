"""The people of a community and the new ones: tastes, questions and answers.

A taste is a unit vector: a style's centred embedding and an individual part, the direction of the mean of three random
tokens of the vocabulary, centred too. Answers are the best option, or sampled by the multinomial logit at a scale.
Tastes, questions and the noise of answers are the same in all regimes of a vocabulary, and for all estimators and
rules: whoever asks a person the same question gets the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.experiments.bench.worlds import unit_rows
from edpbrl_gym.experiments.communities.settings import KINDS, NUM_OPTIONS, CommunitySettings, CommunityUnit
from edpbrl_gym.experiments.communities.styles import UNSEEN
from edpbrl_gym.experiments.communities.worlds import CommunityWorld, distinct_rows
from edpbrl_gym.experiments.people.data import Person
from edpbrl_gym.likelihood import Terms

__all__ = ["NewPerson", "draw_taste", "known_people", "new_people"]

_TOKENS = 3  # of an individual part
_DEVELOPMENT = 1000  # added to the seed


@dataclass(frozen=True, eq=False)
class NewPerson:
    """A person whom nobody has asked yet.

    Attributes:
        kind: One of ``settings.KINDS``.
        number: Number among the new people of the kind.
        taste: Unit norm, (d,).
        candidates: The questions that may be asked, in random order, with the person's answers.
    """

    kind: str
    number: int
    taste: Floats
    candidates: Person


def draw_taste(world: CommunityWorld, kind: str, number: int, individual: float, rng: np.random.Generator) -> Floats:
    """A taste of unit norm, (d,); people take the styles in turn.

    Args:
        world: Styles and tokens.
        kind: One of ``settings.KINDS``; people of the community are of the first.
        number: Of the person.
        individual: Length of the individual part.
        rng: Draws it.
    """
    if kind == "atypical":
        return unit_rows(np.asarray(rng.normal(size=world.styles.shape[1])))
    unseen = world.styles[-UNSEEN:]
    styles = unseen if kind == "unseen style" else world.styles[:-UNSEEN]
    own: Floats = np.mean(world.centred[rng.choice(len(world.centred), size=_TOKENS, replace=False)], axis=0)
    taste: Floats = styles[number % len(styles)] + individual * unit_rows(own)
    return unit_rows(taste)


def known_people(settings: CommunitySettings, unit: CommunityUnit, world: CommunityWorld) -> list[Terms]:
    """The answers of the people of the community."""
    kind = next(iter(KINDS))
    return [
        _answered(settings, unit, world, "known", kind, number, settings.questions)[1].terms()
        for number in range(settings.people)
    ]


def new_people(settings: CommunitySettings, unit: CommunityUnit, world: CommunityWorld) -> list[NewPerson]:
    """The new people, kind after kind."""
    return [
        NewPerson(kind, number, *_answered(settings, unit, world, "new", kind, number, settings.candidates))
        for kind in KINDS
        for number in range(settings.new)
    ]


def _answered(
    settings: CommunitySettings,
    unit: CommunityUnit,
    world: CommunityWorld,
    group: str,
    kind: str,
    number: int,
    questions: int,
) -> tuple[Floats, Person]:
    """A person's taste, and random questions with the person's answers."""
    seed = settings.seed + (_DEVELOPMENT if settings.development else 0)
    rng = generator(seed, "communities", unit.words, group, kind, number)
    taste = draw_taste(world, kind, number, settings.individual, rng)
    options = world.shown[distinct_rows(len(world.shown), questions, rng)]
    utilities, noise = options @ taste, rng.gumbel(size=options.shape[:2])
    chosen = (utilities if np.isinf(unit.scale) else unit.scale * utilities + noise).argmax(axis=1)
    return taste, Person(f"{kind} {number}", options, np.full(questions, NUM_OPTIONS), chosen)
