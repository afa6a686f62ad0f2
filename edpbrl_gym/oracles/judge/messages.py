"""What is sent: the guidance, K labelled candidates, the form of the answer, and the key under which it is kept."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._pictures import open_picture
from edpbrl_gym.oracles.judge.questions import JudgeQuestion
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = [
    "LABELS",
    "answer_schema",
    "label_order",
    "make_messages",
    "most_input_tokens",
    "question_key",
    "same_candidate",
]

LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Part of every key: an answer to other words is another answer. Raise it with any change of the words below.
_WORDING = 1
_PNG = b"\x89PNG\r\n\x1a\n"

_GUIDANCE = (
    "You review art for a client. Judge by the style guidance below and pick the one candidate that fits it best.\n"
    'Answer with one JSON object of the form {{"preference": "<label>"}} and nothing else: no explanation, no other '
    "fields. The label is one of {labels}.\n\n"
    "Style guidance:\n{style}"
)


def label_order(identity: str, num_options: int, seed: int, look: int = 0) -> tuple[int, ...]:
    """Which candidate each label names: a permutation that the question's identity and the seed decide.

    The second look moves every candidate to another label than in the first (the order is rotated), so that a judge
    that prefers a label rather than a candidate disagrees with itself.

    Args:
        identity: what the question is called.
        num_options: K, at least 2.
        seed: of all orders.
        look: 0 is the first look, 1 the second.

    Returns:
        K indices; label p names candidate order[p].
    """
    digest = hashlib.sha256(json.dumps([identity, num_options, seed]).encode()).digest()
    rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
    order = rng.permutation(num_options)
    shift = int(rng.integers(1, num_options)) if look else 0
    return tuple(int(option) for option in np.roll(order, shift))


def answer_schema(num_options: int) -> dict[str, Any]:
    """The ``response_format`` that allows ``{"preference": "<label>"}`` with one of K labels, and nothing else."""
    schema = {
        "type": "object",
        "properties": {"preference": {"type": "string", "enum": list(LABELS[:num_options])}},
        "required": ["preference"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "preference", "strict": True, "schema": schema}}


def make_messages(settings: JudgeSettings, question: JudgeQuestion, order: Sequence[int]) -> list[dict[str, Any]]:
    """The chat messages of a question: the guidance, then the candidates in the order of their labels.

    Args:
        settings: style, and whether texts or images are shown.
        question: the K candidates.
        order: ``label_order`` of the question.

    Raises:
        ValueError: an image that can't be read as one.
        OSError: an image file that is gone.
    """
    labels = LABELS[: len(order)]
    system = _GUIDANCE.format(labels=", ".join(labels), style=settings.style.strip())
    if settings.show == "texts":
        assert question.texts is not None
        # one line a candidate: a text with line breaks must not look like two
        lines = [f"{label}: {' '.join(question.texts[i].split())}" for label, i in zip(labels, order, strict=True)]
        content: Any = "Candidates:\n" + "\n".join(lines)
    else:
        assert question.images is not None
        content = [{"type": "text", "text": "Candidates:"}]
        for label, option in zip(labels, order, strict=True):
            data = base64.b64encode(_png(question.images[option], settings.image_size)).decode("ascii")
            content.append({"type": "text", "text": f"{label}:"})
            content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
    return [{"role": "system", "content": system}, {"role": "user", "content": content}]


def question_key(settings: JudgeSettings, question: JudgeQuestion, order: Sequence[int], look: int) -> str:
    """The name under which an answer is kept: sha256 of all that decides it.

    That is the model, its temperature, the wording, the style, the candidates (texts as they are, images by the sha256
    of their bytes and the size they are sent in), their order, the seed and the look; not the address of the server.

    Raises:
        OSError: an image file that can't be read.
    """
    if settings.show == "texts":
        shown: list[str] = list(question.texts or ())
    else:
        shown = [hashlib.sha256(_bytes(image)).hexdigest() for image in question.images or ()]
    parts = {
        "wording": _WORDING,
        "model": settings.model,
        "temperature": settings.temperature,
        "style": settings.style.strip(),
        "show": settings.show,
        "candidates": shown,
        "image_size": settings.image_size if settings.show == "images" else None,
        "order": list(order),
        "seed": settings.seed,
        "look": look,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def same_candidate(settings: JudgeSettings, question: JudgeQuestion, first: int, second: int) -> bool:
    """Whether two choices are the same candidate, or two that are shown as the same.

    Raises:
        OSError: an image file that can't be read.
    """
    if first == second:
        return True
    if settings.show == "texts":
        assert question.texts is not None
        return question.texts[first].split() == question.texts[second].split()
    assert question.images is not None
    return _bytes(question.images[first]) == _bytes(question.images[second])


def most_input_tokens(settings: JudgeSettings, question: JudgeQuestion) -> int:
    """An upper bound on the input tokens of a question.

    Tokenizers that work on bytes make at most one token a byte, which is about four times what they really make; each
    message and each part adds a few of its own, and the schema is read by the model too.
    """
    options = question.num_options
    words = len(_GUIDANCE.encode()) + len(settings.style.encode()) + len(json.dumps(answer_schema(options)))
    if settings.show == "texts":
        words += sum(len(text.encode()) for text in question.texts or ())
    else:
        words += options * settings.tokens_per_image
    return words + 16 * (options + 3)


def _bytes(image: Path | bytes) -> bytes:
    return image if isinstance(image, bytes) else image.read_bytes()


def _png(image: Path | bytes, size: int | None) -> bytes:
    """The picture as PNG, scaled down to at most ``size`` pixels on its longer side."""
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
