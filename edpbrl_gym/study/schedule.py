"""The order of a participant's questions: practice, questions that count, attention checks, repeats, tests."""

from __future__ import annotations

from dataclasses import dataclass

from edpbrl_gym._seeds import generator
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.records import QuestionKind

__all__ = ["Slot", "schedule"]


@dataclass(frozen=True)
class Slot:
    """A place in the order.

    Attributes:
        kind: Kind of its question.
        index: Of a question that counts and of a test question, its number among these; of a repeat, the number of the
            one asked again.
    """

    kind: QuestionKind
    index: int = 0


def schedule(config: StudyConfig, number: int) -> list[Slot]:
    """The order for the participant with a number; it depends on the configuration and the number only.

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
    for count in range(config.questions.number + 1):
        slots += after.get(count, [])
        if count < config.questions.number:
            slots.append(Slot("normal", count))
    return slots
