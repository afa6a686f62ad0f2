"""The renderer of posters: drawn by this library, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edpbrl_gym._validation import check_count
from edpbrl_gym.rendering.base import Drawn, Renderer
from edpbrl_gym.rendering.posters.scene import HEIGHT, WIDTH, poster_svg

__all__ = ["VERSION", "PostersRenderer"]

VERSION = 1  # of the drawing, to be raised with every change of a picture
_MAX_SIDE = 4096


class PostersRenderer(Renderer):
    """Draws posters of any text, without a model: ``poster_svg`` as PNG.

    Args:
        width: In pixels, 64 to 4096.
        height: In pixels, 64 to 4096; at most four times the width, and at least a quarter of it.

    Raises:
        ValueError: A size is out of its range.
        TypeError: A size is no integer.
    """

    batch_size, keeps_python = 16, True

    def __init__(self, *, width: int = WIDTH, height: int = HEIGHT) -> None:
        self.width = check_count(width, "width", minimum=64, maximum=_MAX_SIDE)
        self.height = check_count(height, "height", minimum=64, maximum=_MAX_SIDE)
        if not 0.25 <= self.width / self.height <= 4:
            raise ValueError(
                f"Expected a poster at most four times as long as wide, got {self.width} x {self.height} pixels; "
                "choose width and height closer to each other"
            )
        self.name = "posters"

    def describe(self) -> dict[str, Any]:
        """The version of the drawing, and the size."""
        return {"model": self.name, "version": VERSION, "width": self.width, "height": self.height}

    def svg(self, text: str, seed: int) -> str:
        """The scene itself: browsers draw it as quickly as they decode its pixels."""
        return poster_svg(text, seed, width=self.width, height=self.height)

    def draw(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Drawn]:
        """Draw a poster of every text with its seed.

        Raises:
            ModuleNotFoundError: resvg_py isn't installed.
        """
        from resvg_py import svg_to_bytes

        pictures: list[Drawn] = []
        for text, seed in zip(texts, seeds, strict=True):
            pictures.append(Drawn(bytes(svg_to_bytes(svg_string=self.svg(text, seed), skip_system_fonts=True))))
        return pictures
