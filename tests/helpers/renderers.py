"""Renderers that draw only some texts."""

from __future__ import annotations

import io

import numpy as np
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


class Colours(Renderer):
    """One colour for each text and seed, none for "nothing"."""

    name = "colours"
    batch_size = 2

    def __init__(self, version: int = 1) -> None:
        self.version, self.drawn = version, 0

    def describe(self):
        return {"model": "colours", "version": self.version}

    def draw(self, texts, seeds):
        self.drawn += len(texts)
        return [self._one(text, seed) for text, seed in zip(texts, seeds, strict=True)]

    def _one(self, text, seed):
        if text == "nothing":
            return NotDrawn("there is nothing to draw")
        colour = tuple(np.random.default_rng([seed, *text.encode()]).integers(0, 256, 3).tolist())
        file = io.BytesIO()
        Image.new("RGB", (8, 8), colour).save(file, "PNG")
        return Drawn(file.getvalue())
