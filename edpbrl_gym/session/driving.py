"""Let an oracle answer a session."""

from __future__ import annotations

from collections.abc import Callable

from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import Oracle, answers_of
from edpbrl_gym.session.questions import Question
from edpbrl_gym.session.session import Session

__all__ = ["answer_of", "run"]


def answer_of(oracle: Oracle, question: Question) -> Response:
    """The answer of an oracle to one question.

    Raises:
        TypeError, ValueError: The oracle is none, or returned what is no answer; the message says what one is.
    """
    return answers_of(oracle, question.queries).responses[0]


def run(
    session: Session,
    oracle: Oracle,
    questions: int,
    *,
    until_sure: bool = False,
    check_every: int = 6,
    track: Callable[[Session], object] | None = None,
) -> int:
    """Ask and tell, so many questions or until the session's stopping rule says stop.

    Args:
        session: Goes on where it is.
        oracle: Who answers.
        questions: Most questions to ask, >= 1.
        until_sure: Stop as soon as ``session.progress()`` says so.
        check_every: Questions between two looks at the progress.
        track: Called with the session after every answer.

    Returns:
        Questions asked.

    Raises:
        ValueError: An answer that the session doesn't take.
    """
    total, every = check_count(questions, "questions"), check_count(check_every, "check_every")
    for done in range(total):
        if until_sure and done % every == 0 and done and session.progress().should_stop:
            return done
        session.tell(answer_of(oracle, session.ask()))
        if track is not None:
            track(session)
    return total
