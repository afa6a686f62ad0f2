"""Small studies for the tests of the study."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from edpbrl_gym.study.template import write_template
from tests.helpers.small_vocabulary import write_vocabulary

SMALL = """
title = "A small study"
seed = 3
[recruitment.codes]
complete = "C1"
[consent]
version = "2026-11"
[questions]
vocabulary = "words"
options = 3
number = 6
[practice]
questions = 1
[checks]
attention = 1
repeated = 2
[[arms]]
name = "adaptive"
planner = "adaptive"
[[arms]]
name = "random"
planner = "random"
weight = 2
"""

UNDERSTOOD = """
[[pages]]
name = "understood"
place = "instructions"
title = "Before we start"
attempts = 2
[[pages.questions]]
name = "what"
kind = "choice"
text = "What?"
choices = ["this", "that"]
accept = { is = "that" }
"""

CHECKED = SMALL + UNDERSTOOD


def write_study(folder: Path, text: str = SMALL, *, languages: Iterable[str] = ()) -> Path:
    """Write a study of three options about the small vocabulary, with texts in more languages; return its folder."""
    for path in write_template(folder)[1:]:
        for language in languages:
            path.with_name(path.name.replace(".en.", f".{language}.")).write_bytes(path.read_bytes())
    write_vocabulary(folder / "words")
    (folder / "study.toml").write_text(text, encoding="utf-8")
    return folder


def ask(store, participant: int, number: int):
    """Add a question of three options to a store, without a queue."""
    texts = [f"option {option} of question {number}" for option in range(3)]
    return store.add_question(
        participant, number, "normal", tokens=[[option] for option in range(3)], texts=texts, positions=[2, 0, 1]
    )
