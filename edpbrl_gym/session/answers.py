"""Answers to the questions of a session."""

from __future__ import annotations

from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood import Response, ResponseModel

__all__ = ["Answer", "check_answer"]

Answer = Response | int | None


def check_answer(answer: Answer, model: ResponseModel, num_options: int) -> Response:
    """Convert an answer (a response, the index of the best option, or None for a skip) to a checked response.

    Raises:
        TypeError: The answer has another type.
        ValueError: The question doesn't have the option, or the model doesn't support the format.
    """
    if answer is None:
        return Response.skip()
    if not isinstance(answer, Response):
        index = check_count(answer, "answer (index of the best option)", minimum=0)
        if index >= num_options:
            raise ValueError(f"Expected an option in 0..{num_options - 1}, got {index}")
        answer = Response.best(index)
    if answer.kind != "skip":
        answer.checked(num_options)
        if answer.kind not in model.kinds:
            kinds = " or ".join(map(repr, model.kinds))
            raise ValueError(
                f"Expected an answer of the kind {kinds} (or a skip), got {answer.kind!r}; "
                "make the session with a model of that format"
            )
    return answer
