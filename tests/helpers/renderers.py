"""Renderers that draw only some texts."""

from __future__ import annotations

import io

from PIL import Image

from edpbrl_gym.rendering import Drawn, NotDrawn, Renderer


class Picky(Renderer):
    """Draws no text whose length is a multiple of ``every``, and the others in one colour, each for a price."""

    seeded, price, batch_size = False, 0.25, 4

    def __init__(self, *, every: int = 5, price: float | None = 0.25) -> None:
        self.name, self.every, self.price = "a picky one", every, price

    def describe(self):
        return {"model": self.name, "every": self.every}

    def draw(self, texts, seeds):
        return [self._one(text) for text in texts]

    def _one(self, text):
        if len(text) % self.every == 0:
            return NotDrawn("too long")
        stream = io.BytesIO()
        Image.new("RGB", (8, 8), (len(text), 0, 0)).save(stream, format="PNG")
        return Drawn(stream.getvalue())
