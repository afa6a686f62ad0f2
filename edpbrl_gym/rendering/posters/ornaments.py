"""Frames, lettering and shapes around a picture."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from edpbrl_gym.rendering.posters.brush import Brush, circle, rect
from edpbrl_gym.rendering.posters.colours import difference, mix

__all__ = ["ORNAMENTS", "Ornament", "letters"]

_RED = "#c4301f"  # of a seal, whatever the palette


@functools.cache
def letters() -> dict[str, tuple[float, str]]:
    found = {" ": (2.0, "")}
    for line in (Path(__file__).resolve().parent / "letters.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            letter, width, path = line.split(" ", 2)
            found[letter] = (float(width), path)
    return found


def _width(text: str, gap: float) -> float:
    return sum(letters()[letter][0] + gap for letter in text) - gap


def _letter(b: Brush, text: str, x: float, y: float, size: float, weight: float, colour: str, gap: float) -> None:
    """Draw capitals from their upper left corner; sizes in units of the page, ``weight`` and ``gap`` in sixths of it."""
    unit, parts = size / 6, []
    for letter in text:
        width, path = letters()[letter]
        parts.append(f'<path transform="translate({x / unit:.2f} {y / unit:.2f})" d="{path}"/>')
        x += (width + gap) * unit
    style = f' fill="none" stroke="{colour}" stroke-width="{weight}" stroke-linejoin="round"'
    b.group(f"scale({unit:.3f})", parts, style)


def _readable(b: Brush, behind: str) -> str:
    return max((b.tones["page"], b.tones["line"]), key=lambda one: difference(one, behind))


def _frame(b: Brush, w: float, h: float, inset: float, width: float, colour: str) -> None:
    path = rect(inset, inset, w - 2 * inset, h - 2 * inset)
    b.plain(path, "none", 1, f' stroke="{colour}" stroke-width="{width}"')


def _thin(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    colour = _readable(b, b.tones["top"])
    _frame(b, w, h, 16, 3.4, colour)


def _double(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    _frame(b, w, h, 7, 14, b.tones["line"])
    _frame(b, w, h, 21, 3, b.tones["line"])
    _frame(b, w, h, 17, 4.5, b.tones["page"])


def _below(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    top = h - 92
    b.plain(rect(0, top, w, 92), b.tones["page"])
    size = min(50.0, 6 * (w - 56) / (_width(title, 1.7) + 1))
    _letter(b, title, (w - _width(title, 1.7) * size / 6) / 2, top + 46 - size / 2, size, 1.15, b.tones["line"], 1.7)


def _above(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    colour, size = _readable(b, b.tones["top"]), 20.0
    long = _width(title, 4.0) * size / 6
    _letter(b, title, (w - long) / 2, 24, size, 1.0, colour, 4.0)
    for y in (12, 54):
        b.line(f"M18,{y} L{w - 18:.1f},{y}", colour, 2.4)


def _side(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    band = b.tones["near"] if difference(b.tones["near"], b.tones["page"]) > 45 else b.tones["line"]
    b.plain(rect(0, 0, 74, h), band)
    own = Brush("smooth", b.tones, rng)
    size = min(40.0, 6 * (h - 60) / (_width(title, 2.2) + 1))
    _letter(own, title, (h - _width(title, 2.2) * size / 6) / 2, 37 - size / 2, size, 1.0, b.tones["page"], 2.2)
    b.group(f"translate(0 {h:.1f}) rotate(-90)", own.parts)


def _deco(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    c = b.tones
    corner = f'<path d="M0,0 L96,0 C96,53 53,96 0,96 Z" fill="{c["line"]}"/>'
    for r, colour in ((84, c["glow"]), (64, c["accent"]), (44, c["glow"]), (26, c["page"])):
        corner += f'<path d="M0,0 L{r},0 C{r},{r * 0.55:.1f} {r * 0.55:.1f},{r} 0,{r} Z" fill="{colour}" stroke="{c["line"]}" stroke-width="3"/>'
    rays = "".join(f"M0,0 L{92 * math.cos(a):.1f},{92 * math.sin(a):.1f} " for a in (0.26, 0.52, 0.785, 1.05, 1.31))
    corner += f'<path d="{rays}" stroke="{c["line"]}" stroke-width="2"/>'
    _frame(b, w, h, 6, 4, c["line"])
    for x, y, sx, sy in ((0, 0, 1, 1), (w, 0, -1, 1), (0, h, 1, -1), (w, h, -1, -1)):
        b.group(f"translate({x:.0f} {y:.0f}) scale({sx} {sy})", [corner])


def _triangles(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    c, top = b.tones, h - 62
    b.plain(rect(0, top, w, 62), c["page"])
    count = 10
    side = w / count
    colours = (c["accent"], c["near"], c["glow"], c["mid"])
    for i in range(count):
        b.plain(
            f"M{i * side:.1f},{top + 54} L{(i + 0.5) * side:.1f},{top + 8} L{(i + 1) * side:.1f},{top + 54} Z",
            colours[i % 4],
        )
        b.plain(
            f"M{(i - 0.5) * side:.1f},{top + 8} L{i * side:.1f},{top + 54} L{(i + 0.5) * side:.1f},{top + 8} Z",
            c["line"],
            0.9,
        )
    b.plain(rect(0, top, w, 5), c["line"])
    b.plain(rect(0, h - 5, w, 5), c["line"])


def _shapes(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    c = b.tones
    colours = (c["accent"], c["glow"], c["line"], c["page"], c["mid"], c["accent"])
    spots = ((0.06, 0.08), (0.9, 0.12), (0.08, 0.92), (0.88, 0.86), (0.03, 0.45), (0.97, 0.52))
    for i, (x, y) in enumerate(spots):
        x, y, r = (x + rng.uniform(-0.03, 0.03)) * w, (y + rng.uniform(-0.03, 0.03)) * h, rng.uniform(26, 44)
        own = [
            circle(0, 0, r), rect(-r, -r, 2 * r, 2 * r), f"M0,{-r:.0f} L{r:.0f},{0.8 * r:.0f} L{-r:.0f},{0.8 * r:.0f} Z",
            f"M{-r:.0f},0 C{-r:.0f},{-1.3 * r:.0f} {r:.0f},{-1.3 * r:.0f} {r:.0f},0 Z", rect(-2 * r, -4, 4 * r, 8), circle(0, 0, 0.6 * r),
        ][i]  # fmt: skip
        b.plain(own, colours[i], 1, f' transform="translate({x:.0f} {y:.0f}) rotate({rng.uniform(-30, 30):.0f})"')


def _seal(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    c, x, y, wide, tall = b.tones, w - 66, 26, 40, min(190, h * 0.42)
    b.plain(rect(x, y, wide, tall), c["page"], 1, f' stroke="{c["line"]}" stroke-width="2"')
    at = y + 14
    while at + 26 < y + tall:  # strokes that look like writing
        marks = [
            f"M{x + 11},{at + 4} L{x + 29},{at + 3}",
            f"M{x + 20},{at} L{x + 20 + rng.uniform(-3, 3):.1f},{at + 22}",
        ]
        marks += [
            f"M{x + 12},{at + rng.uniform(9, 13):.1f} L{x + 28},{at + rng.uniform(9, 13):.1f}",
            f"M{x + 20},{at + 12} L{x + rng.choice((11, 29))},{at + 22}",
        ]
        b.line(" ".join(marks), c["line"], 2.4)
        at += 31
    b.plain(f"M{x + 3},{y + tall + 10} h34 v34 h-34 Z", _RED, 1, ' stroke="#9d2417" stroke-width="1.5"')
    z = y + tall + 10
    b.line(f"M{x + 9},{z + 7} h22 v20 h-22 Z M{x + 20},{z + 7} v20 M{x + 9},{z + 17} h22", c["page"], 2.4)


def _stamp(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    c, edge = b.tones, 26
    b.plain(rect(0, 0, w, h) + " " + rect(edge, edge, w - 2 * edge, h - 2 * edge), c["page"], 1, ' fill-rule="evenodd"')
    back, path = mix(c["near"], c["line"], 0.4), ""
    across, down = round(w / 20), round(h / 20)
    for i in range(across + 1):
        path += circle(i * w / across, 0, 6.6) + circle(i * w / across, h, 6.6)
    for i in range(down + 1):
        path += circle(0, i * h / down, 6.6) + circle(w, i * h / down, 6.6)
    b.plain(path, back)
    b.plain(rect(edge, edge, w - 2 * edge, h - 2 * edge), "none", 1, f' stroke="{c["line"]}" stroke-width="1.4"')


def _stripes(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    c = b.tones
    for i, colour in enumerate((c["line"], c["accent"], c["glow"], c["mid"], c["page"])):
        x, y = w * 0.84 + 13 * i, h * 0.88 + 13 * i
        path = f"M-20,{y:.0f} L{w * 0.5:.0f},{y:.0f} C{w * 0.7:.0f},{y:.0f} {x:.0f},{h * 0.8 + 8 * i:.0f} {x:.0f},{h * 0.6:.0f} L{x:.0f},-20"
        b.plain(path, "none", 1, f' stroke="{colour}" stroke-width="13.6"')


def _nothing(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    pass


class Ornament(NamedTuple):
    """What surrounds a picture.

    Attributes:
        inset: What it takes from the left, top, right and bottom of the page.
        draw: Draws it over the page, of a width and height, with a title and random numbers.
        corner: Radius of the picture's corners.
        apart: What it takes from the top of a page whose picture is seen through windows.
    """

    inset: tuple[float, float, float, float]
    draw: Callable[[Brush, float, float, str, Random], None]
    corner: float = 0.0
    apart: float = 0.0


ORNAMENTS: dict[str, Ornament] = {
    "edge to edge without a frame": Ornament((0, 0, 0, 0), _nothing),
    "a thin frame": Ornament((0, 0, 0, 0), _thin),
    "a wide cream border": Ornament((38, 38, 38, 38), _nothing),
    "a dark double frame": Ornament((0, 0, 0, 0), _double),
    "rounded corners": Ornament((14, 14, 14, 14), _nothing, 66),
    "a bold title below": Ornament((0, 0, 0, 92), _below),
    "small lettering at the top": Ornament((0, 0, 0, 0), _above, apart=62),
    "tall letters up the side": Ornament((74, 0, 0, 0), _side),
    "art deco corners": Ornament((0, 0, 0, 0), _deco),
    "a band of triangles": Ornament((0, 0, 0, 62), _triangles),
    "scattered geometric shapes": Ornament((0, 0, 0, 0), _shapes),
    "a red seal and a paper strip": Ornament((0, 0, 0, 0), _seal),
    "a postage stamp edge": Ornament((26, 26, 26, 26), _stamp),
    "sweeping retro stripes": Ornament((0, 0, 0, 0), _stripes),
}
"""Ornament -> how it is drawn."""
