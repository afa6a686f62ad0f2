"""The messages of a question: the guidance, K labelled candidates, the form of the answer, and the ledger key."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._pictures import open_picture
from edpbrl_gym.oracles.judge.questions import JudgeQuestion
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = [
    "LABELS",
    "Keys",
    "answer_schema",
    "label_order",
    "make_messages",
    "most_input_tokens",
    "question_keys",
    "same_candidate",
]

LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Part of every key, since the answer depends on the wording. Raise it with any change of the words below.
_WORDING = 1
_REMINDER = (
    "\n\nReply with this one JSON object and nothing else, without explanation and without a code fence: "
    '{{"preference": "<label>"}}. Write exactly one of {labels} in place of <label>.'
)
_PNG = b"\x89PNG\r\n\x1a\n"

_GUIDANCE = (
    "You review art for a client. Judge by the style guidance below and pick the one candidate that fits it best.\n"
    'Answer with one JSON object of the form {{"preference": "<label>"}} and nothing else: no explanation, no other '
    "fields. The label is one of {labels}.\n\n"
    "Style guidance:\n{style}"
)


def label_order(identity: str, num_options: int, seed: int, look: int = 0) -> tuple[int, ...]:
    """Order of the candidates under the labels: a permutation derived from the question's identity and the seed.

    The second look gives every candidate another label than the first: the order is rotated.
    """
    digest = hashlib.sha256(json.dumps([identity, num_options, seed]).encode()).digest()
    rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
    order = rng.permutation(num_options)
    shift = int(rng.integers(1, num_options)) if look else 0
    return tuple(int(option) for option in np.roll(order, shift))


def answer_schema(num_options: int) -> dict[str, Any]:
    """The ``response_format`` that allows only ``{"preference": "<label>"}`` with one of K labels."""
    schema = {
        "type": "object",
        "properties": {"preference": {"type": "string", "enum": list(LABELS[:num_options])}},
        "required": ["preference"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "preference", "strict": True, "schema": schema}}


class Keys(NamedTuple):
    """Keys of a request in the ledger; each is a sha256."""

    request: str  # of all settings that change the reply; whatever comes of the request is under this key
    answer: str  # of an answer or a refusal, too: without the limit on its length


def make_messages(
    settings: JudgeSettings, question: JudgeQuestion, order: Sequence[int], *, reminded: bool = False
) -> list[dict[str, Any]]:
    """The chat messages of a question: the guidance, then the candidates in the order of their labels.

    Where it is ``reminded``, a sterner instruction follows in the same message: many chat templates refuse two messages
    of the user in a row.
    """
    labels = LABELS[: len(order)]
    reminder = _REMINDER.format(labels=", ".join(labels)) if reminded else ""
    system = _GUIDANCE.format(labels=", ".join(labels), style=settings.style.strip())
    if settings.show == "texts":
        assert question.texts is not None
        # one line per candidate: a text with line breaks must not look like two
        lines = [f"{label}: {' '.join(question.texts[i].split())}" for label, i in zip(labels, order, strict=True)]
        content: Any = "Candidates:\n" + "\n".join(lines) + reminder
    else:
        assert question.images is not None
        content = [{"type": "text", "text": "Candidates:"}]
        for label, option in zip(labels, order, strict=True):
            data = base64.b64encode(_png(question.images[option], settings.image_size)).decode("ascii")
            content.append({"type": "text", "text": f"{label}:"})
            content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
        if reminder:
            content.append({"type": "text", "text": reminder.strip()})
    return [{"role": "system", "content": system}, {"role": "user", "content": content}]


def question_keys(
    settings: JudgeSettings, question: JudgeQuestion, order: Sequence[int], look: int
) -> tuple[Keys, Keys]:
    """The ledger keys of a question, and of the reminder that follows a reply that can't be read.

    They are of all that changes the reply; not of the server's address, so that the server may move.
    """
    if settings.show == "texts":
        candidates: list[str] = list(question.texts or ())
    else:
        candidates = [hashlib.sha256(_bytes(image)).hexdigest() for image in question.images or ()]
    fields = {
        "wording": _WORDING,
        "model": settings.model,
        "temperature": settings.temperature,
        "style": settings.style.strip(),
        "show": settings.show,
        "candidates": candidates,
        "image_size": settings.image_size if settings.show == "images" else None,
        "order": list(order),
        "seed": settings.seed,
        "look": look,
    }
    limit = {"max_answer_tokens": settings.max_answer_tokens, "limit_parameter": settings.limit_parameter}
    keys = []
    for reminded in (False, True):
        fields |= {"structured": settings.structured, "reminded": reminded}
        keys.append(Keys(_key(fields | limit), _key(fields)))
    return keys[0], keys[1]


def _key(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def same_candidate(settings: JudgeSettings, question: JudgeQuestion, choice: int, other_choice: int) -> bool:
    """Whether two choices are the same candidate, or candidates with the same text or image."""
    if choice == other_choice:
        return True
    if settings.show == "texts":
        assert question.texts is not None
        return question.texts[choice].split() == question.texts[other_choice].split()
    assert question.images is not None
    return _bytes(question.images[choice]) == _bytes(question.images[other_choice])


def most_input_tokens(settings: JudgeSettings, question: JudgeQuestion, *, reminded: bool = False) -> int:
    """An upper bound on the input tokens of a question and the schema: a token per byte, and some for each part."""
    options = question.num_options
    num_tokens = len(_GUIDANCE.encode()) + len(settings.style.encode()) + len(json.dumps(answer_schema(options)))
    num_tokens += (len(_REMINDER) + 3 * options) * reminded
    if settings.show == "texts":
        num_tokens += sum(len(text.encode()) for text in question.texts or ())
    else:
        num_tokens += options * settings.tokens_per_image
    return num_tokens + 16 * (options + 3)


def _bytes(image: Path | bytes) -> bytes:
    return image if isinstance(image, bytes) else image.read_bytes()


def _png(image: Path | bytes, size: int | None) -> bytes:
    """The picture as PNG, scaled down so that its longer side has at most ``size`` pixels."""
    check_installed(Need("PIL", "pictures for a judge", "judge"))
    from PIL import Image

    data = _bytes(image)
    with open_picture(image) as picture:
        small = size is None or max(picture.size) <= size
        if small and data.startswith(_PNG):
            return data
        scaled = picture.convert("RGB")
    if not small:
        assert size is not None
        scaled.thumbnail((size, size), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    scaled.save(stream, format="PNG")
    return stream.getvalue()
