"""The loop of `edpbrl ask`: show a question, read the answer, save it, say what was learnt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from edpbrl_gym.session.typed import Wish, in_words

if TYPE_CHECKING:
    from edpbrl_gym.cli.ask_drawing import Paper
    from edpbrl_gym.cli.ask_terminal import Reader
    from edpbrl_gym.likelihood import Response
    from edpbrl_gym.session import Progress, Session, StoppingRule
    from edpbrl_gym.session.typed import AnswerForm

__all__ = ["Asking", "days_since"]

_AHEAD = (0, 1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40, 50, 60, 70)  # further questions of the forecast
_THOUGHTS = 3  # parts of what the first forecast needs


class Asking:
    """Asks until the person stops, the input ends, or a number of questions is answered.

    Args:
        session: The session, saved.
        form: What may be answered.
        rule: The session's stopping rule.
        reader: Where answers come from.
        paper: Where questions go.
    """

    def __init__(self, session: Session, form: AnswerForm, rule: StoppingRule, reader: Reader, paper: Paper) -> None:
        self.session, self.form, self.rule = session, form, rule
        self.reader, self.paper = reader, paper
        self._evaluated = -1  # number of answered questions of the last forecast
        self._warm = False

    def run(self, questions: int | None) -> None:
        """Ask.

        Args:
            questions: Number of answered or skipped questions after which to end, None: the person says when.
        """
        while questions is None or self.session.answered < questions:
            question = self.session.ask()
            self.paper.question(self.session, question)
            said = self.reader.answer(self.form, self.paper, self._work())
            if said is Wish.STOP:
                self.paper.close()
                return
            if said is Wish.UNDO:
                self._undo()
                continue
            self._tell(None if said is Wish.SKIP else said)

    def _tell(self, response: Response | None) -> None:
        session = self.session
        session.tell(response)
        self.paper.answered(session, session.answered - 1, session.transcript.responses[-1])
        if not self.reader.live and not self.reader.asks:
            self._evaluate()
        self.paper.told()

    def _undo(self) -> None:
        if not self.session.answered:
            self.paper.note("There is no answer to take back yet.")
            return
        before = in_words(self.session.transcript.responses[-1])
        question = self.session.undo()
        self._evaluated = -1
        self.paper.note(f"Took back the answer to question {question.number + 1}, which was {before}.")

    def _work(self) -> Iterator[None]:
        """What can be computed while the person reads, part by part."""
        session = self.session
        if not self._warm:
            self._warm = True
            encoder = session.maker.encoder  # loads the model, where all texts so far were in the cache
            getattr(encoder, "encoder", encoder).encode([session.ask().texts[0]])
            yield
        if self._evaluated != session.answered:
            self._evaluate()
            yield
        for _ in range(_THOUGHTS):
            session.think()
            yield

    def _evaluate(self) -> None:
        """Say in words how sure the session is."""
        session = self.session
        self._evaluated = session.answered
        if all(response.kind == "skip" for response in session.transcript.responses):
            self.paper.sure = ""
            return
        progress = session.progress((*_AHEAD, *(count + self.rule.lookahead for count in _AHEAD)))
        self.paper.sure = certainty(progress, self.rule)


def certainty(progress: Progress, rule: StoppingRule) -> str:
    """How sure a session is, and about how many questions are left by its stopping rule."""
    from edpbrl_gym.cli.ask_drawing import plural

    left = rule.questions_left(progress.answers, progress.further, progress.curve)
    if progress.should_stop or left == 0:
        rest = "enough: Q ends, or go on"
    elif left is None:
        rest = f"more than {progress.further[-1] - rule.lookahead} questions left"
    else:
        rest = f"about {plural(left, 'question')} left"
    return f"{progress.accuracy:.0%} sure, {rest}"


def days_since(time: str) -> int:
    """Whole days since a time in ISO 8601."""
    return (datetime.now(UTC) - datetime.fromisoformat(time)).days
