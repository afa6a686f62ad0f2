"""Sessions answered by an oracle."""

from __future__ import annotations

from collections.abc import Callable

from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import Oracle, answers_of
from edpbrl_gym.session.questions import Question
from edpbrl_gym.session.session import Session

__all__ = ["answer_of", "run"]


def answer_of(oracle: Oracle, question: Question) -> Response:
    """Return an oracle's answer to one question.

    Raises:
        TypeError, ValueError: The oracle or its answer is invalid; the message says what is expected.
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
    """Ask and tell, up to a number of questions or until the session's stopping rule says stop.

    Args:
        session: The session, continued from its current state.
        oracle: Oracle that answers.
        questions: Maximum number of questions, >= 1.
        until_sure: Stop as soon as ``session.progress()`` says so.
        check_every: Number of questions between two checks of the progress.
        track: Callback of the session, called after every answer.

    Returns:
        Number of questions asked.

    Raises:
        ValueError: The session does not accept an answer.
    """
    total, every = check_count(questions, "questions"), check_count(check_every, "check_every")
    for count in range(total):
        if until_sure and count % every == 0 and count and session.progress().should_stop:
            return count
        session.tell(answer_of(oracle, session.ask()))
        if track is not None:
            track(session)
    return total
