"""A process that answers questions of a study, and prints what was acknowledged; tests kill it.

python -m tests.helpers.study_writer URL CODE [COUNT]
"""

from __future__ import annotations

import sys

from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.store import Store


def answer_all(url: str, code: str, count: int) -> None:
    """Answer ``count`` questions, or without end for 0."""
    store = Store(url, config="c" * 64)
    try:
        participant = store.participant(code).id
        number = len(store.history(participant))
        pending = [question for question, answer in store.history(participant) if answer is None]
        done = 0
        while not count or done < count:
            question = pending.pop() if pending else ask(store, participant, number)
            receipt = store.answer(participant, question.key, Response.best(question.number % 3))
            print(question.key, *receipt.answer.response.order, flush=True)
            number, done = question.number + 1, done + 1
    finally:
        store.close()


def ask(store: Store, participant: int, number: int):
    texts = [f"option {option} of question {number}" for option in range(3)]
    return store.add_question(
        participant, number, "normal", tokens=[[option] for option in range(3)], texts=texts, positions=[2, 0, 1]
    )


if __name__ == "__main__":
    answer_all(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
