"""The questions of a file of `edpbrl design`, asked of everybody: a static design."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edpbrl_gym._feedback import Feedback
from edpbrl_gym.comparisons.question_files import read_questions
from edpbrl_gym.planners.replay import ReplayPlanner
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary

__all__ = ["fixed_planner"]


def fixed_planner(path: Path, vocabulary: Vocabulary, feedback: Feedback, num_options: int) -> ReplayPlanner:
    """A planner that asks the questions of a file, one after the other.

    Args:
        path: File of `edpbrl design` (.csv or .parquet).
        vocabulary: Vocabulary of its prompts.
        feedback: What its options are.
        num_options: Number of options K that it must have.

    Raises:
        ValueError: The file isn't one of such questions; the message names the row.
    """
    questions = read_questions(path)
    if len(questions[0][2]) != num_options:
        raise ValueError(
            f"Expected questions of {num_options} options in {path}, got {len(questions[0][2])}; set options in "
            "[questions]"
        )
    horizon = vocabulary.horizon
    per_episode = 1 if feedback == "prompt" else horizon
    tokens = []
    for start in range(0, len(questions), per_episode):
        rows = questions[start : start + per_episode]
        if len(rows) < per_episode:
            raise ValueError(f"Expected {per_episode} questions in each episode of {path}, the last has {len(rows)}")
        if feedback == "state":
            lanes = [SEPARATOR.join(texts[option] for _, _, texts in rows) for option in range(num_options)]
        else:
            lanes = rows[-1][2]
        tokens.append([_indices(text, vocabulary, path, start + per_episode) for text in lanes])
    return ReplayPlanner(np.array(tokens), distinct=True)


def _indices(text: str, vocabulary: Vocabulary, path: Path, row: int) -> list[int]:
    """Token indices of a complete prompt."""
    found = _parsed(text, vocabulary, 0)
    if found is None:
        raise ValueError(
            f"Expected prompts of {vocabulary.horizon} tokens of the vocabulary in {path}, got {text!r} in question "
            f"{row}; was it made with another vocabulary or feedback?"
        )
    return found


def _parsed(text: str, vocabulary: Vocabulary, step: int) -> list[int] | None:
    """Tokens of the steps from ``step`` that make the text, which may hold separators within a token; None: none do."""
    last = step + 1 == vocabulary.horizon
    for index, token in enumerate(vocabulary.tokens[step]):
        if last and text == token:
            return [index]
        if not last and text.startswith(token + SEPARATOR):
            rest = _parsed(text[len(token) + len(SEPARATOR) :], vocabulary, step + 1)
            if rest is not None:
                return [index, *rest]
    return None
