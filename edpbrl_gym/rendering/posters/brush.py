"""Paths of a picture, drawn in the manner of a texture, and the curves that landscapes are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from edpbrl_gym.rendering.posters.colours import difference, mix

__all__ = ["Brush", "circle", "rect", "ridge"]

_POINT = re.compile(r"(-?[\d.]+),(-?[\d.]+)")
_BLEED = 90.0  # units beyond the page on both sides, for pictures that are tilted


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def rect(x: float, y: float, width: float, height: float) -> str:
    """The path of a rectangle."""
    right, bottom = _n(x + width), _n(y + height)
    return f"M{_n(x)},{_n(y)} L{right},{_n(y)} L{right},{bottom} L{_n(x)},{bottom} Z"


def circle(x: float, y: float, rx: float, ry: float | None = None) -> str:
    """The path of a circle, or an ellipse, of four curves."""
    ry = rx if ry is None else ry
    a, b = 0.5523 * rx, 0.5523 * ry
    points = [(-rx, -b), (-a, -ry), (0, -ry), (a, -ry), (rx, -b), (rx, 0), (rx, b), (a, ry), (0, ry), (-a, ry)]
    points += [(-rx, b), (-rx, 0)]
    texts = [f"{x + i:.2f},{y + j:.2f}" for i, j in points]
    return f"M{x - rx:.2f},{y:.2f} " + " ".join("C" + " ".join(texts[i : i + 3]) for i in (0, 3, 6, 9)) + " Z"


def ridge(rng: Random, width: float, y: float, swing: float, count: int, bottom: float, *, sharp: bool = False) -> str:
    """The path of land below a line of hills, or of sharp peaks, that is wider than the page."""
    step = (width + 2 * _BLEED) / count
    points = [(-_BLEED + i * step, y + swing * rng.uniform(-1, 1)) for i in range(count + 1)]
    if sharp:
        points = [
            (x + step * rng.uniform(-0.25, 0.25), y0 - (swing if i % 2 else 0)) for i, (x, y0) in enumerate(points)
        ]
    text = f"M{_n(-_BLEED)},{_n(bottom)} L{_n(points[0][0])},{_n(points[0][1])} "
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        half = (x1 - x0) * 0.45
        text += (
            f"L{_n(x1)},{_n(y1)} "
            if sharp
            else f"C{_n(x0 + half)},{_n(y0)} {_n(x1 - half)},{_n(y1)} {_n(x1)},{_n(y1)} "
        )
    return text + f"L{_n(points[-1][0])},{_n(bottom)} Z"


class Brush:
    """Collects the elements of a picture, each drawn in the manner of a texture.

    Attributes:
        parts: The elements, from back to front.
        scale: Units of the page in a unit of what is drawn now, for the widths of lines.
    """

    def __init__(self, manner: str, tones: dict[str, str], rng: Random) -> None:
        self.parts: list[str] = []
        self.manner, self.tones, self.scale = manner, tones, 1.0
        self._rng = rng

    def add(self, element: str) -> None:
        """Add an element as it is."""
        self.parts.append(element)

    def plain(self, path: str, fill: str, opacity: float = 1.0, extra: str = "") -> None:
        """Fill a path, whatever the texture."""
        alpha = "" if opacity == 1 else f' fill-opacity="{opacity:.2f}" stroke-opacity="{opacity:.2f}"'
        self.parts.append(f'<path d="{path}" fill="{fill}"{alpha}{extra}/>')

    def line(self, path: str, colour: str, width: float, opacity: float = 1.0, extra: str = "") -> None:
        """Draw a path as a line, whatever the texture."""
        extra += f' stroke="{colour}" stroke-width="{width:.2f}" stroke-linecap="round" stroke-linejoin="round"'
        self.plain(path, "none", opacity, extra)

    def shape(self, path: str, fill: str, opacity: float = 1.0) -> None:
        """Fill a path in the manner of the texture."""
        c, unit = self.tones, 1 / self.scale
        if self.manner == "ink":
            self.plain(
                path, fill, opacity, f' stroke="{c["line"]}" stroke-width="{2.3 * unit:.2f}" stroke-linejoin="round"'
            )
        elif self.manner == "collage":
            self.plain(path, "#000", 0.34, f' transform="translate({2.2 * unit:.2f} {-3.2 * unit:.2f})"')
            if self.scale == 1:
                torn = f' stroke="{c["page"]}" stroke-width="3" stroke-linejoin="round"'
                self.plain(self._wobble(path, 1.6), c["page"], opacity, torn + ' transform="translate(0.4 -2.4)"')
            self.plain(path, fill, opacity)
        elif self.manner == "wash":
            self.plain(self._wobble(path, 2.4 * unit), mix(fill, c["page"], 0.18), 0.85 * opacity)
            edge = f' stroke="{mix(fill, c["ink"], 0.3)}" stroke-width="{1.3 * unit:.2f}"'
            self.plain(self._wobble(path, 1.6 * unit), fill, 0.8 * opacity, edge)
        elif self.manner == "strokes":
            self.plain(self._wobble(path, 2.6 * unit), fill, opacity)
        elif self.manner == "misaligned":
            other = c["accent"] if difference(fill, c["accent"]) > 30 else c["high"]
            self.plain(path, other, 0.85 * opacity, f' transform="translate({-4.5 * unit:.2f} {3.2 * unit:.2f})"')
            self.plain(path, fill, 0.9 * opacity)
        elif self.manner in ("woodcut", "engraved"):
            width = (1.5 if self.manner == "woodcut" else 0.7) * unit
            tint = fill if self.manner == "woodcut" else mix(fill, c["page"], 0.12)
            self.plain(path, tint, opacity, f' stroke="{c["line"]}" stroke-width="{width:.2f}" stroke-linejoin="round"')
        else:
            self.plain(path, fill, opacity)

    def _wobble(self, path: str, reach: float) -> str:
        """The path with its points moved a little."""
        rng = self._rng

        def moved(found: re.Match[str]) -> str:
            x, y = float(found[1]), float(found[2])
            return f"{x + reach * rng.uniform(-1, 1):.1f},{y + reach * rng.uniform(-1, 1):.1f}"

        return _POINT.sub(moved, path)

    def group(self, transform: str, parts: Sequence[str], extra: str = "") -> None:
        """Add elements moved together."""
        self.parts.append(f'<g transform="{transform}"{extra}>{"".join(parts)}</g>')
