"""The options that a study will show whatever people answer, so that their pictures can be drawn before it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edpbrl_gym.study.schedule import arm_of, choose, schedule
from edpbrl_gym.study.visits import Visit

if TYPE_CHECKING:
    from edpbrl_gym.study.materials import Materials

__all__ = ["known_options"]


def known_options(materials: Materials, participants: int | None = None) -> list[str]:
    """The texts of options that are known before anybody answers, each once.

    Where an option is one token (a pool of prompts or of pictures, or feedback "state"), these are all options. Else
    they are those of the questions that depend on no answer: practice, attention checks, test questions, fixed
    questions and random ones.

    Args:
        materials: Of the study.
        participants: So many participants from the first on are looked at (None: one block, in which every arm occurs).

    Raises:
        ValueError, OSError: An arm can't ask.
    """
    config, vocabulary = materials.config, materials.vocabulary
    if vocabulary.horizon == 1 or config.questions.feedback == "state":
        return list(dict.fromkeys(token for tokens in vocabulary.tokens for token in tokens))
    count = sum(arm.weight for arm in config.arms) if participants is None else participants
    return list(dict.fromkeys(text for number in range(count) for text in _shown_to(materials, number)))


def _shown_to(materials: Materials, number: int) -> list[str]:
    """What the participant with a number will be shown, without what follows answers or comes from elsewhere."""
    config = materials.config
    participant: Any = SimpleNamespace(number=number)
    visit = Visit(materials, participant, arm_of(config.arms, number, config.seed))
    history: list[Any] = []  # as the study's, with what ``choose`` and ``Visit`` look at
    texts: list[str] = []
    for slot in schedule(config, number):
        if slot.kind == "repeat" or (slot.kind == "normal" and not visit.is_independent):
            history.append((SimpleNamespace(kind="unknown"), None))
            continue
        chosen = choose(materials, participant, slot, history, visit.choose)
        history.append((chosen, None))
        texts += chosen.texts
    return texts
