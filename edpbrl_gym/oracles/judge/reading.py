"""Strict parsing of an answer."""

from __future__ import annotations

import json
from typing import Any, Literal

from edpbrl_gym.oracles.judge.messages import LABELS

__all__ = ["read_answer"]


def read_answer(text: str, num_options: int, mode: Literal["schema", "text"]) -> int | None:
    """The position of the label that an answer names, None if the answer does not have the required form.

    Args:
        text: Text of the model.
        num_options: Number of candidates K; the labels are the first K letters.
        mode: "schema": the whole answer is the object ``{"preference": "<label>"}``. "text": the text contains exactly
            one JSON object, which has that form, within any other text (a code fence, a sentence).
    """
    if mode == "schema":
        try:
            objects = [json.loads(text, object_pairs_hook=_unique)]
        except (ValueError, RecursionError):
            return None
    else:
        objects = _objects(text)
    if len(objects) != 1 or not isinstance(objects[0], dict) or set(objects[0]) != {"preference"}:
        return None
    label = objects[0]["preference"]
    if not isinstance(label, str) or len(label) != 1:
        return None
    position = LABELS.find(label)
    return position if 0 <= position < num_options else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, without repeated fields."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a field is named twice")
    return dict(pairs)


def _objects(text: str) -> list[Any]:
    """The outermost JSON objects in a text; none if an opening brace does not begin one."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    objects: list[Any] = []
    start = text.find("{")
    while start >= 0:
        try:
            value, stop = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return []
        objects.append(value)
        start = text.find("{", stop)
    return objects
