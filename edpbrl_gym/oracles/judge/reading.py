"""What came back: strict reading of an answer."""

from __future__ import annotations

import json
from typing import Any, Literal

from edpbrl_gym.oracles.judge.messages import LABELS

__all__ = ["read_answer"]


def read_answer(text: str, num_options: int, how: Literal["schema", "text"]) -> int | None:
    """The position of the label that an answer names, None for an answer that is not in the agreed form.

    Args:
        text: what the model wrote.
        num_options: K; the labels are the first K letters.
        how: "schema": the whole answer is the object ``{"preference": "<label>"}``. "text": exactly one JSON object
            stands in the text, whatever surrounds it (a code fence, a sentence), and it is of that form.
    """
    if how == "schema":
        try:
            found = [json.loads(text, object_pairs_hook=_unique)]
        except (ValueError, RecursionError):
            return None
    else:
        found = _objects(text)
    if len(found) != 1 or not isinstance(found[0], dict) or set(found[0]) != {"preference"}:
        return None
    label = found[0]["preference"]
    if not isinstance(label, str) or len(label) != 1:
        return None
    position = LABELS.find(label)
    return position if 0 <= position < num_options else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; one that names a field twice is no answer."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a field is named twice")
    return dict(pairs)


def _objects(text: str) -> list[Any]:
    """The outermost JSON objects in a text; a brace that opens none makes the text unreadable."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    found: list[Any] = []
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return []
        found.append(value)
        start = text.find("{", end)
    return found
