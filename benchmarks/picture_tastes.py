"""Tastes in pictures as functions of pixels, for simulated people: the library never sees them.

``calm``: calm, blue, much empty space. ``warm``: warm, dense, graphic. Both are sums of a few measures of a picture of
96 pixels height, so that they follow neither words nor any encoder's features.

The encoder "colours" was added after these two had been measured. ``symmetric`` and ``fine`` were written later, before
any result of theirs was seen, and no histogram of colours tells them: they are about the lightness of pixels beside
others.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["FRESH", "TASTES", "calm", "fine", "lab", "measures", "symmetric", "warm"]

_HEIGHT = 96  # pixels, at which a picture is measured
_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = np.array([0.9505, 1.0, 1.089])


def lab(rgb: np.ndarray) -> np.ndarray:
    """Turn sRGB values in 0..1, (..., 3), into CIE Lab of D65."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = linear @ _TO_XYZ.T / _WHITE
    root = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def _seen(picture: Any, height: int) -> np.ndarray:
    """A picture in CIE Lab, (height, width, 3)."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)) if isinstance(picture, bytes) else picture
    size = (max(8, round(image.width * height / image.height)), height)
    return lab(np.asarray(image.convert("RGB").resize(size, Image.Resampling.BOX), dtype=float) / 255)


def measures(picture: Any) -> dict[str, float]:
    """What the tastes are made of, each about 0..1.

    Args:
        picture: A PNG (bytes), or a PIL image.

    Returns:
        "blue" and "warm": mean hue, weighted by chroma; "empty": share of pixels without an edge near by; "light":
        mean lightness; "contrast": spread of lightness; "colourful": mean chroma; "dense": share of strong edges.
    """
    colours = _seen(picture, _HEIGHT)
    lightness, a, b = np.moveaxis(colours, -1, 0)
    edge = np.hypot(*(np.pad(np.diff(colours, axis=axis), [(0, axis == 0), (0, axis == 1), (0, 0)]) for axis in (0, 1)))
    strength = np.linalg.norm(edge, axis=-1)
    near = np.max([np.roll(strength, (i, j), (0, 1)) for i in (-2, 0, 2) for j in (-2, 0, 2)], axis=0)
    return {
        "blue": float(np.clip(0.5 - (b + 0.4 * a) / 80, 0, 1).mean()),
        "warm": float(np.clip(0.5 + (a + b) / 120, 0, 1).mean()),
        "empty": float((near < 6).mean()),
        "light": float(lightness.mean() / 100),
        "contrast": float(min(1.0, lightness.std() / 40)),
        "colourful": float(min(1.0, np.hypot(a, b).mean() / 70)),
        "dense": float((strength > 12).mean()),
    }


def calm(picture: Any) -> float:
    """How calm, blue and empty a picture is (PNG bytes or a PIL image); larger is better, about 0..4."""
    found = measures(picture)
    return 3.0 * found["blue"] + 1.5 * found["empty"] - 0.5 * found["contrast"] - 0.5 * found["dense"]


def warm(picture: Any) -> float:
    """How warm, dense and graphic a picture is (PNG bytes or a PIL image); larger is better, about 0..5."""
    found = measures(picture)
    return 3.0 * found["warm"] + 1.5 * found["dense"] + 0.8 * found["contrast"] + 0.7 * found["colourful"]


def symmetric(picture: Any) -> float:
    """The correlation of a picture's lightness with that of its mirror image, left for right, -1..1."""
    lightness = _seen(picture, _HEIGHT)[..., 0]
    lightness = lightness - lightness.mean()
    return float((lightness * lightness[:, ::-1]).mean() / max(float(np.square(lightness).mean()), 1e-9))


def fine(picture: Any) -> float:
    """How much fine texture a picture has: the mean gradient of lightness from pixel to pixel at 384 pixels height."""
    down, across = np.gradient(_seen(picture, 4 * _HEIGHT)[..., 0])
    return float(np.hypot(down, across).mean())


TASTES: dict[str, Callable[[Any], float]] = {"calm": calm, "warm": warm}
"""Name -> taste."""
FRESH: dict[str, Callable[[Any], float]] = {"symmetric": symmetric, "fine": fine}
"""Those that no encoder was made after."""
