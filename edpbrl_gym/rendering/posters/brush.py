"""Paths of a picture, drawn in the manner of a texture, and the curves that landscapes are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

from edpbrl_gym.rendering.posters.colours import difference, mix

__all__ = ["BLEED", "Brush", "around", "circle", "rect", "ridge", "trace"]

BLEED = 90.0  # units beyond the page on every side, for pictures that are tilted
_POINT = re.compile(r"(-?[\d.]+),(-?[\d.]+)")


def trace(points: Iterable[tuple[float, float]], end: str = " Z") -> str:
    """The path through points, closed unless ``end`` is empty."""
    return "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points) + end


def rect(x: float, y: float, width: float, height: float) -> str:
    """The path of a rectangle."""
    return trace(((x, y), (x + width, y), (x + width, y + height), (x, y + height)))


def around(x: float, y: float, width: float, height: float) -> str:
    """The path of all that is outside of a rectangle, to be filled by the rule "evenodd"."""
    return rect(-999, -999, 2999, 2999) + " " + rect(x, y, width, height)


def circle(x: float, y: float, rx: float, ry: float | None = None) -> str:
    """The path of a circle, or an ellipse, of four curves."""
    ry = rx if ry is None else ry
    a, b = 0.5523 * rx, 0.5523 * ry
    points = [(-rx, -b), (-a, -ry), (0, -ry), (a, -ry), (rx, -b), (rx, 0), (rx, b), (a, ry), (0, ry), (-a, ry)]
    texts = [f"{x + i:.2f},{y + j:.2f}" for i, j in [*points, (-rx, b), (-rx, 0)]]
    return f"M{x - rx:.2f},{y:.2f} " + " ".join("C" + " ".join(texts[i : i + 3]) for i in (0, 3, 6, 9)) + " Z"


def ridge(rng: Random, width: float, y: float, swing: float, count: int, bottom: float, *, sharp: bool = False) -> str:
    """The path of land below a line of hills, or of sharp peaks, that is wider than the page."""
    step = (width + 2 * BLEED) / count
    points = [(-BLEED + i * step, y + swing * rng.uniform(-1, 1)) for i in range(count + 1)]
    if sharp:
        points = [(x + step * rng.uniform(-0.25, 0.25), z - swing * (i % 2)) for i, (x, z) in enumerate(points)]
        return trace([(-BLEED, bottom), *points, (width + BLEED, bottom)])
    text = trace([(-BLEED, bottom), points[0]], "")
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        half = (x1 - x0) * 0.45
        text += f" C{x0 + half:.1f},{y0:.1f} {x1 - half:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
    return text + f" L{points[-1][0]:.1f},{bottom:.1f} Z"


class Brush:
    """Collects the elements of a picture, each drawn in the manner of a texture.

    Attributes:
        manner: Of the texture (``MANNERS``).
        tones: The colours by their parts.
        rng: Random numbers for shapes that are drawn as by hand.
        parts: The elements, from back to front.
        scale: Units of the page in a unit of what is drawn now, for the widths of lines.
        prefix: Of the names of elements, so that several pictures can stand in one page.
    """

    def __init__(self, manner: str, tones: dict[str, str], rng: Random, prefix: str) -> None:
        self.manner, self.tones, self.rng, self.prefix = manner, tones, rng, prefix
        self.parts: list[str] = []
        self.scale = 1.0

    def beside(self) -> Brush:
        """A brush of the same kind that has drawn nothing yet."""
        return Brush(self.manner, self.tones, self.rng, self.prefix)

    def add(self, element: str) -> None:
        """Add an element as it is."""
        self.parts.append(element)

    def group(self, transform: str, parts: Iterable[str], extra: str = "") -> None:
        """Add elements moved together."""
        self.parts.append(f'<g transform="{transform}"{extra}>{"".join(parts)}</g>')

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
        if self.manner in ("ink", "woodcut", "engraved"):
            width = {"ink": 2.3, "woodcut": 1.5, "engraved": 0.7}[self.manner] * unit
            edge = f' stroke="{c["line"]}" stroke-width="{width:.2f}" stroke-linejoin="round"'
            self.plain(path, mix(fill, c["page"], 0.12) if self.manner == "engraved" else fill, opacity, edge)
        elif self.manner == "collage":
            self.plain(path, "#000", 0.34 * opacity, _moved(2.2 * unit, -3.2 * unit))
            if self.scale == 1:
                torn = f' stroke="{c["page"]}" stroke-width="3" stroke-linejoin="round"'
                self.plain(self._wobble(path, 1.6), c["page"], opacity, torn + _moved(0.4, -2.4))
            self.plain(path, fill, opacity)
        elif self.manner == "wash":
            self.plain(self._wobble(path, 2.4 * unit), mix(fill, c["page"], 0.18), 0.85 * opacity)
            edge = f' stroke="{mix(fill, c["ink"], 0.3)}" stroke-width="{1.3 * unit:.2f}"'
            self.plain(self._wobble(path, 1.6 * unit), fill, 0.8 * opacity, edge)
        elif self.manner == "misaligned":
            other = c["accent"] if difference(fill, c["accent"]) > 30 else c["high"]
            self.plain(path, other, 0.85 * opacity, _moved(-6 * unit, 4 * unit))
            self.plain(path, fill, 0.9 * opacity)
        else:
            self.plain(self._wobble(path, 2.6 * unit) if self.manner == "strokes" else path, fill, opacity)

    def _wobble(self, path: str, reach: float) -> str:
        """The path with its points moved a little."""

        def moved(found: re.Match[str]) -> str:
            x, y = (float(found[i]) + reach * self.rng.uniform(-1, 1) for i in (1, 2))
            return f"{x:.1f},{y:.1f}"

        return _POINT.sub(moved, path)


def _moved(x: float, y: float) -> str:
    return f' transform="translate({x:.2f} {y:.2f})"'
