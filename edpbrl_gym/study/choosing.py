"""The question of a place in a participant's order: what the queue stores, and an audit makes once more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import generator
from edpbrl_gym.study.drawing import draw_options
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.records import History, Participant, Post, QuestionKind
from edpbrl_gym.study.schedule import Slot

__all__ = ["Chosen", "choose"]


@dataclass(frozen=True)
class Chosen:
    """A question to be stored; see ``StoredQuestion``."""

    kind: QuestionKind
    tokens: list[list[int]]
    texts: list[str]
    positions: list[int]
    expected: int | None = None
    repeat_of: int | None = None


def choose(
    materials: Materials,
    participant: Participant,
    slot: Slot,
    history: History,
    planned: Callable[[History], NDArray[np.int64]],
    post: Post | None = None,
) -> Chosen:
    """The question of a slot.

    Args:
        materials: What the study's questions are made of.
        participant: The participant.
        slot: The slot.
        history: The questions before it with their answers, without those taken back.
        planned: Gives the prompts (K, h + 1) that the participant's planner asks about after a history; called for
            questions that count.
        post: What an oracle has posted for this slot, which is then asked instead; it has no tokens.
    """
    config = materials.config
    options = config.questions.options
    rng = generator(config.seed, "question", participant.number, len(history))
    positions = rng.permutation(options).tolist()
    if post is not None:
        return Chosen(slot.kind, [[] for _ in post.texts], post.texts, positions)
    if slot.kind == "normal":
        tokens = planned(history)
        return Chosen(slot.kind, tokens.tolist(), list(materials.maker.texts(tokens)), positions)
    if slot.kind == "repeat":
        asked = [one for one, _ in history if one.kind == "normal"][slot.index]
        if positions == asked.positions:
            positions = [*positions[1:], positions[0]]  # in another order
        return Chosen(slot.kind, asked.tokens, asked.texts, positions, repeat_of=asked.id)
    if slot.kind == "test":  # the same for everybody
        tokens = draw_options(materials.maker, options, generator(config.seed, "test question", slot.index))
    else:
        tokens = draw_options(materials.maker, options, rng)
    expected = int(rng.integers(options)) if slot.kind == "attention" else None
    return Chosen(slot.kind, tokens.tolist(), list(materials.maker.texts(tokens)), positions, expected)
