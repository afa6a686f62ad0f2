"""A renderer that paints a text's hash, for tests: quick, slow, or with failures."""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Sequence
from typing import Any

from edpbrl_gym.rendering import Drawn, NotDrawn, Renderer


class Painted(Renderer):
    """Pictures of colours that the words of a text decide.

    Args:
        seconds: How long each takes.
        failing: A word; texts with it can't be drawn.
        price: Of each.
    """

    def __init__(self, seconds: float = 0.0, failing: str = "", price: float | None = None) -> None:
        self.name = "the painter of the tests"
        self.seconds, self.failing, self.price = seconds, failing, price

    def describe(self) -> dict[str, Any]:
        return {"model": "painted", "failing": self.failing}

    def draw(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Drawn | NotDrawn]:
        time.sleep(self.seconds)
        return [self._draw(text) for text in texts]

    def _draw(self, text: str) -> Drawn | NotDrawn:
        from PIL import Image, ImageDraw

        if self.failing and self.failing in text:
            return NotDrawn(f"Expected no {self.failing}, got one; ask for something else")
        image = Image.new("RGB", (256, 256), _colour(text.split(", ")[0]))
        pen = ImageDraw.Draw(image)
        for number, word in enumerate(text.split(", ")[1:]):
            left, top, size = 20 + 55 * (number % 3), 30 + 80 * (number // 3), 90 - 8 * number
            pen.ellipse((left, top, left + size, top + size), fill=_colour(word))
        file = io.BytesIO()
        image.save(file, "PNG")
        return Drawn(file.getvalue())


def _colour(word: str) -> tuple[int, int, int]:
    code = zlib.crc32(word.encode())
    return 60 + (code & 127), 60 + (code >> 8 & 127), 60 + (code >> 16 & 127)
