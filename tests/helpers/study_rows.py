"""Rows of the tables of a study's export, made by hand."""

from __future__ import annotations

STUDY = {
    "kind": "study", "title": "By hand", "feedback": "prompt", "format": "best", "options": 4, "number": 4, "least": 4,
    "practice": 0, "comprehension": 1, "attention": 1, "repeated": 1, "test": 2, "pictures": False,
    "vocabulary": "images", "encoder": "minilm", "seed": 0, "config": "c" * 16, "deleted": 2,
    "arms": [{"name": name, "planner": name, "weight": 1, "population": False} for name in ("adaptive", "random")],
}  # fmt: skip


def participant(name, arm, status, answered=0, *, consented=True, attention=(0, 0), repeats=(0, 0), minutes=None):
    return {
        "participant": name, "arm": arm, "language": "en", "consent_version": "1" if consented else None,
        "status": status, "answered": answered, "undone": 0, "attention_asked": attention[1],
        "attention_passed": attention[0], "repeats_asked": repeats[1], "repeats_agreed": repeats[0], "minutes": minutes,
        "median_s": None, "excluded": None,
    }  # fmt: skip


def answer(name, arm, asked, kind="normal", best=1, *, milliseconds=1000, taken_back=False, response="best", text=""):
    given = response is not None
    return {
        "participant": name, "arm": arm, "asked": asked, "number": asked, "kind": kind, "taken_back": taken_back,
        "counts": kind == "normal" and given and not taken_back, "options": [f"{text}{option}" for option in range(4)],
        "tokens": [[option] for option in range(4)], "positions": [1, 2, 3, 4], "expected": None, "repeats": None,
        "answer": response, "order": [best] if response == "best" else ([] if given else None),
        "shown_s": 10.0 * asked, "answered_s": 10.0 * asked + 3 if given else None, "first_input_ms": None,
        "answer_ms": milliseconds, "visibility_changes": 0, "device": "phone", "config": "c" * 16, "code_version": "1",
    }  # fmt: skip


def event(name, kind, **detail):
    return {"participant": name, "after_s": 0.0, "kind": kind, "detail": detail}


def prediction(name, asked, probabilities, after=4, last=True):
    return {"participant": name, "asked": asked, "after": after, "last": last, "probabilities": probabilities}
