"""Frames, lettering and shapes around a picture."""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from edpbrl_gym.rendering.posters.brush import Brush, circle, rect, trace
from edpbrl_gym.rendering.posters.colours import difference, lines_of, mix
from edpbrl_gym.rendering.posters.shapes import motif

__all__ = ["ORNAMENTS", "Ornament", "letters"]

_RED = "#c4301f"  # of a seal, whatever the palette


@functools.cache
def letters() -> dict[str, tuple[float, str]]:
    """Letter -> its width, where its height is 6, and its strokes."""
    rows = (line.split(" ", 2) for line in lines_of("letters.txt"))
    return {" ": (2.0, "")} | {letter: (float(width), path) for letter, width, path in rows}


def _write(
    b: Brush, text: str, box: tuple[float, float, float, float], weight: float, gap: float, colour: str
) -> float:
    """Write capitals in the middle of a box (x, y, width, height); returns their width.

    ``weight`` of the strokes and ``gap`` between letters are in sixths of their height.
    """
    x, y, wide, tall = box
    long = sum(letters()[letter][0] + gap for letter in text) - gap
    size, at, parts = min(tall, 6 * wide / (long + 1)), 0.0, []
    for letter in text:
        width, path = letters()[letter]
        parts.append(f'<path transform="translate({at:.2f} 0)" d="{path}"/>')
        at += width + gap
    style = f' fill="none" stroke="{colour}" stroke-width="{weight}" stroke-linejoin="round"'
    left, top = x + (wide - long * size / 6) / 2, y + (tall - size) / 2
    b.group(f"translate({left:.1f} {top:.1f}) scale({size / 6:.3f})", parts, style)
    return long * size / 6


def _readable(b: Brush, behind: str) -> str:
    return max((b.tones["page"], b.tones["line"]), key=lambda one: difference(one, behind))


def _frame(b: Brush, w: float, h: float, inset: float, width: float, colour: str) -> None:
    b.plain(rect(inset, inset, w - 2 * inset, h - 2 * inset), "none", 1, f' stroke="{colour}" stroke-width="{width}"')


def _thin(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    _frame(b, w, h, 16, 3.4, _readable(b, b.tones["top"]))


def _double(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    for inset, width, colour in ((7, 14, "line"), (21, 3, "line"), (17, 4.5, "page")):
        _frame(b, w, h, inset, width, b.tones[colour])


def _below(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    b.plain(rect(0, h - 92, w, 92), b.tones["page"])
    _write(b, title, (28, h - 71, w - 56, 50), 1.15, 1.7, b.tones["line"])


def _above(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    colour = _readable(b, b.tones["top"])
    _write(b, title, (18, 24, w - 36, 20), 1.0, 4.0, colour)
    for y in (12, 54):
        b.line(trace(((18, y), (w - 18, y)), ""), colour, 2.4)


def _side(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    c, own = b.tones, b.beside()
    b.plain(rect(0, 0, 74, h), c["near"] if difference(c["near"], c["page"]) > 45 else c["line"])
    _write(own, title, (30, 17, h - 60, 40), 1.0, 2.2, c["page"])
    b.group(f"translate(0 {h:.1f}) rotate(-90)", own.parts)


def _deco(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    _frame(b, w, h, 6, 4, b.tones["line"])
    own = Brush("smooth", b.tones, rng, b.prefix)
    for x, y, turn in ((0, 0, "1 1"), (w, 0, "-1 1"), (0, h, "1 -1"), (w, h, "-1 -1")):
        motif(own, "corner", f"translate({x:.1f} {y:.1f}) scale({turn})")
    b.parts += own.parts


def _triangles(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    c, top, side = b.tones, h - 62, w / 10
    b.plain(rect(0, top, w, 62), c["page"])
    for i in range(11):
        x, colour = i * side, c[("accent", "near", "glow", "mid")[i % 4]]
        b.plain(trace(((x, top + 54), (x + side / 2, top + 8), (x + side, top + 54))), colour)
        b.plain(trace(((x - side / 2, top + 8), (x, top + 54), (x + side / 2, top + 8))), c["line"], 0.9)
    b.plain(rect(0, top, w, 5) + rect(0, h - 5, w, 5), c["line"])


def _shapes(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    spots = ((0.06, 0.08), (0.9, 0.12), (0.08, 0.92), (0.88, 0.86), (0.03, 0.45), (0.97, 0.52))
    parts = ("accent", "glow", "line", "page", "mid", "accent")
    for i, (x, y) in enumerate(spots):
        x, y, r = (x + rng.uniform(-0.03, 0.03)) * w, (y + rng.uniform(-0.03, 0.03)) * h, rng.uniform(26, 44)
        half = f"M{-r:.0f},0 C{-r:.0f},{-1.3 * r:.0f} {r:.0f},{-1.3 * r:.0f} {r:.0f},0 Z"
        square, triangle = rect(-r, -r, 2 * r, 2 * r), trace(((0, -r), (r, 0.8 * r), (-r, 0.8 * r)))
        path = (circle(0, 0, r), square, triangle, half, rect(-2 * r, -4, 4 * r, 8), circle(0, 0, 0.6 * r))[i]
        turn = f' transform="translate({x:.0f} {y:.0f}) rotate({rng.uniform(-30, 30):.0f})"'
        b.plain(path, b.tones[parts[i]], 1, turn)


def _seal(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    c, x, y, tall = b.tones, w - 66, 26, min(190.0, h * 0.42)
    b.plain(rect(x, y, 40, tall), c["page"], 1, f' stroke="{c["line"]}" stroke-width="2"')
    bend = rng.uniform(-5, 5)
    place = f' transform="translate({x:.1f} {y:.1f})"'
    b.line(f"M20,12 Q{20 + bend:.1f},{tall / 2:.1f} 20,{tall - 12:.1f}", c["line"], 2, 1, place)
    at, side = 26.0, rng.choice((-1, 1))
    while at < tall - 16:  # a twig with leaves
        root, long = 20 + bend * 2 * (at / tall) * (1 - at / tall), rng.uniform(13, 16)
        tip = f"{root + side * long:.1f},{at - long:.1f}"
        leaf = f"M{root:.1f},{at:.1f} Q{root + side * 2:.1f},{at - 13:.1f} {tip} Q{root + side * 13:.1f},{at - 2:.1f} "
        b.plain(f"{leaf}{root:.1f},{at:.1f} Z", c["line"], 1, place)
        at, side = at + 15, -side
    place = f' transform="translate({x + 3:.1f} {y + tall + 10:.1f})"'
    b.plain(rect(0, 0, 34, 34), _RED, 1, place)
    b.line("M5,26 L14,10 L19,18 L22,14 L29,26 Z", c["page"], 2.4, 1, place)


def _stamp(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    across, down = round(w / 20), round(h / 20)
    holes = [circle(i * w / across, y, 6.6) for i in range(across + 1) for y in (0, h)]
    holes += [circle(x, i * h / down, 6.6) for i in range(down + 1) for x in (0, w)]
    b.plain("".join(holes), mix(b.tones["near"], b.tones["line"], 0.4))
    _frame(b, w, h, 26, 1.4, b.tones["line"])


def _stripes(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    for i, part in enumerate(("line", "accent", "glow", "mid", "page")):
        x, y = w * 0.84 + 13 * i, h * 0.88 + 13 * i
        path = f"M-20,{y:.0f} L{w * 0.5:.0f},{y:.0f} C{w * 0.7:.0f},{y:.0f} {x:.0f},{h * 0.8 + 8 * i:.0f} "
        path += f"{x:.0f},{h * 0.6:.0f} L{x:.0f},-20"
        b.plain(path, "none", 1, f' stroke="{b.tones[part]}" stroke-width="13.6"')


def _nothing(b: Brush, w: float, h: float, title: str, rng: Random) -> None:
    pass


class Ornament(NamedTuple):
    """What surrounds a picture.

    Attributes:
        draw: Draws it over the page, of a width and height, with a title and random numbers.
        inset: What it takes from the left, top, right and bottom of the page.
        corner: Radius of the picture's corners.
        apart: What it takes from the top of a page whose picture is seen through windows.
    """

    draw: Callable[[Brush, float, float, str, Random], None]
    inset: tuple[float, float, float, float] = (0, 0, 0, 0)
    corner: float = 0.0
    apart: float = 0.0


ORNAMENTS: dict[str, Ornament] = {
    "edge to edge without a frame": Ornament(_nothing),
    "a thin frame": Ornament(_thin),
    "a wide cream border": Ornament(_nothing, (38, 38, 38, 38)),
    "a dark double frame": Ornament(_double),
    "rounded corners": Ornament(_nothing, (14, 14, 14, 14), 66),
    "a bold title below": Ornament(_below, (0, 0, 0, 92)),
    "small lettering at the top": Ornament(_above, apart=62),
    "tall letters up the side": Ornament(_side, (74, 0, 0, 0)),
    "art deco corners": Ornament(_deco),
    "a band of triangles": Ornament(_triangles, (0, 0, 0, 62)),
    "scattered geometric shapes": Ornament(_shapes),
    "a red seal and a paper strip": Ornament(_seal),
    "a postage stamp edge": Ornament(_stamp, (26, 26, 26, 26)),
    "sweeping retro stripes": Ornament(_stripes),
}
"""Ornament -> how it is drawn."""
