"""When a stopping rule ends a participant's questions, and about how many are left until then."""

from __future__ import annotations

from edpbrl_gym.session.forecast import Progress
from edpbrl_gym.session.stopping import StoppingRule
from edpbrl_gym.study.records import Participant, StoredQuestion
from edpbrl_gym.study.schedule import Slot
from edpbrl_gym.study.store import Store

__all__ = ["Stopping"]

_EVERY = 6  # questions between two looks at the rule
_SURE, _FORECAST = "sure", "forecast"  # kinds of events


class Stopping:
    """Applies a study's stopping rule; what it says is kept as events.

    Args:
        rule: The rule; None: everyone answers all questions.
        store: The study's database.
    """

    def __init__(self, rule: StoppingRule | None, store: Store) -> None:
        self._rule, self._store = rule, store

    def is_due(self, slot: Slot) -> bool:
        """Whether the rule is to be asked before a question."""
        if self._rule is None or slot.kind != "normal" or slot.index < self._rule.minimum:
            return False
        return (slot.index - self._rule.minimum) % _EVERY == 0

    def decide(self, participant: Participant, progress: Progress, number: int) -> bool:
        """Whether the questions end before the one with a number, which is due."""
        assert self._rule is not None
        detail = {"questions": progress.questions, "accuracy": progress.accuracy}
        if progress.should_stop:
            self._store.add_event(participant.id, _SURE, {**detail, "reason": progress.reason})
        else:
            left = self._rule.questions_left(progress.answers, progress.further, progress.curve)
            self._store.add_event(participant.id, _FORECAST, {**detail, "number": number, "left": left})
        return progress.should_stop

    def questions_left(self, participant: Participant, question: StoredQuestion, most: int) -> int | None:
        """About how many of at most ``most`` questions follow this one, by the last forecast.

        None: there is no forecast yet, or it does not reach so far.
        """
        if self._rule is None:
            return most
        made = [one["detail"] for one in self._store.events(participant.id) if one["kind"] == _FORECAST]
        made = [one for one in made if one["number"] <= question.number]
        if not made or made[-1]["left"] is None:
            return None
        return int(min(most, max(0, made[-1]["left"] - (question.number - made[-1]["number"]) - 1)))
