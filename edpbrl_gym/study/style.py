"""What was learnt about a participant, beside prompts drawn at random: the last question, without names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from edpbrl_gym._seeds import generator
from edpbrl_gym.session import Session
from edpbrl_gym.session.recommendation import different
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.records import Participant

__all__ = ["CHOICES", "STYLE", "STYLE_CHOICE", "Choice", "Style", "make_style"]

STYLE, STYLE_CHOICE = "style", "style_choice"
"""Kinds of events: the two groups as they were shown, and which one the participant preferred."""

Choice = Literal["learnt", "random", "tie"]
CHOICES: tuple[str, ...] = get_args(Choice)

_SEARCHED = 6  # prompts searched for each one shown, of which different ones are taken
_TRIES = 200  # random prompts drawn at most


@dataclass(frozen=True)
class Style:
    """Two groups of prompts.

    Attributes:
        learnt: Prompts of the learnt taste, best first.
        random: As many prompts drawn at random.
        learnt_first: Whether the page shows the learnt ones first.
    """

    learnt: tuple[str, ...]
    random: tuple[str, ...]
    learnt_first: bool

    @property
    def groups(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Name and prompts of the groups in the order of the page."""
        groups = (("learnt", self.learnt), ("random", self.random))
        return groups if self.learnt_first else groups[::-1]

    def as_json(self) -> dict[str, Any]:
        """For the database."""
        return {"learnt": list(self.learnt), "random": list(self.random), "learnt_first": self.learnt_first}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Style:
        """The inverse of ``as_json``."""
        return cls(tuple(value["learnt"]), tuple(value["random"]), bool(value["learnt_first"]))


def make_style(materials: Materials, participant: Participant, session: Session, count: int) -> Style | None:
    """The groups of a participant; None if no answer says anything about the taste.

    Args:
        materials: What the study's questions are made of.
        participant: The participant.
        session: Their session, told all answers.
        count: Number of prompts in each group.
    """
    if all(response.kind in ("skip", "tie") for response in session.transcript.responses):
        return None
    found = different(session.recommend(_SEARCHED * count), count)
    learnt = tuple(one.text for one in found)
    rng = generator(materials.config.seed, "style", participant.number)
    drawn: list[str] = []
    for _ in range(_TRIES):
        text = materials.vocabulary.prompt(rng.integers(materials.vocabulary.sizes))
        if len(drawn) < len(learnt) and text not in (*learnt, *drawn):
            drawn.append(text)
    number = len(drawn)  # fewer than asked for in a vocabulary of a few prompts
    return Style(learnt[:number], tuple(drawn), bool(rng.integers(2))) if number else None
