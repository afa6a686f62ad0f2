"""What the options of a question are compared by.

truncated   K partial prompts (embeddings of the trajectories so far), at every step
state       K last tokens (features of what the last action showed), at every step
prompt      K complete prompts, once an episode, at its last step: what a person who looks at pictures compares
"""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["FEEDBACKS", "Feedback", "check_feedback"]

Feedback = Literal["truncated", "state", "prompt"]

FEEDBACKS: tuple[Feedback, ...] = get_args(Feedback)


def check_feedback(feedback: object, *, every_step: str = "") -> Feedback:
    """Return a known feedback.

    Args:
        feedback: The feedback.
        every_step: Name of what designs a question for every step of an episode, and so refuses "prompt"; "" accepts
            all.

    Raises:
        ValueError: Another feedback, or "prompt" where a question is designed for every step.
    """
    known = tuple(name for name in FEEDBACKS if not (every_step and name == "prompt"))
    if feedback in known:
        return feedback
    why = f"; {every_step} designs a question for every step of an episode" if feedback == "prompt" else ""
    raise ValueError(f"Expected feedback as one of {', '.join(map(repr, known))}, got {feedback!r}{why}")
