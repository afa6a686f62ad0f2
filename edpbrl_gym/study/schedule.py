"""The order of a participant's questions, the arm that asks them, and the question of each slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import generator
from edpbrl_gym.study.config import Arm, StudyConfig
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.records import History, Participant, Post, QuestionKind

__all__ = ["Chosen", "Slot", "arm_of", "choose", "schedule"]


def arm_of(arms: Sequence[Arm], number: int, seed: int) -> Arm:
    """The arm of a place, from 0, by permuted-block randomisation (see ``quotas``).

    A block is a random order in which each arm occurs as often as its weight, so that after every block the arms have
    participants in the ratio of their weights. It depends on the seed and the place only.
    """
    weights = tuple(arm.weight for arm in arms)
    block, place = divmod(number, sum(weights))
    return arms[_block_of(weights, block, seed)[place]]


@lru_cache(4096)  # whoever comes looks at all places before the first free one
def _block_of(weights: tuple[int, ...], block: int, seed: int) -> tuple[int, ...]:
    """The indices of the arms of a block."""
    slots = np.repeat(np.arange(len(weights)), weights)
    return tuple(generator(seed, "block of arms", block).permutation(slots).tolist())


@dataclass(frozen=True)
class Slot:
    """A place in the order.

    Attributes:
        index: Of a question that counts and of a test question, its number among these; of a repeat, the number of the
            one asked again.
    """

    kind: QuestionKind  # kind of its question
    index: int = 0


def schedule(config: StudyConfig, number: int, count: int | None = None) -> list[Slot]:
    """The order for the participant with a number; it depends on the configuration and the number only.

    Where only ``count`` questions that count are asked (``ArmKind.count``), the others and their repeats are left out.

    Attention checks, repeats and test questions come before the first question that a stopping rule may save. A repeat
    is of a question of the first half, at least a third of the questions later where that is possible; test questions
    come in the second half, in an order of the participant's own.
    """
    rng = generator(config.seed, "schedule", number)
    least, checks = config.questions.least, config.checks
    after: dict[int, list[Slot]] = {}  # by how many questions that count come before them
    for place in rng.integers(1, max(2, least), size=checks.attention).tolist():
        after.setdefault(place, []).append(Slot("attention"))
    for index in rng.permutation(max(1, least // 2))[: checks.repeated].tolist():
        place = int(rng.integers(min(index + 1 + least // 3, least), least + 1))
        after.setdefault(place, []).append(Slot("repeat", index))
    for index in rng.permutation(checks.test).tolist():  # last, so that it moves no others
        after.setdefault(int(rng.integers((least + 1) // 2, least + 1)), []).append(Slot("test", index))
    slots = [Slot("practice")] * config.practice.questions
    for place in range(config.questions.number + 1):
        slots += after.get(place, [])
        if place < config.questions.number:
            slots.append(Slot("normal", place))
    return [slot for slot in slots if count is None or slot.kind not in ("normal", "repeat") or slot.index < count]


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
    replaced: int = 0,
) -> Chosen:
    """The question of a slot, after the questions before it without those taken back.

    Of one that counts, ``planned`` gives the prompts (K, h + 1) after this history; what an oracle has posted for the
    slot is asked instead, and has no tokens. ``replaced`` is how many were replaced there before this one.
    """
    config = materials.config
    options = config.questions.options
    again = (replaced,) if replaced else ()
    rng = generator(config.seed, "question", participant.number, len(history), *again)
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
        tokens = materials.draw_options(generator(config.seed, "test question", slot.index, *again))
    else:
        tokens = materials.draw_options(rng)
    expected = int(rng.integers(options)) if slot.kind == "attention" else None
    return Chosen(slot.kind, tokens.tolist(), list(materials.maker.texts(tokens)), positions, expected)
