"""What a print's paper and plates add over the whole picture."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from random import Random

from edpbrl_gym.rendering.posters.brush import Brush, circle, rect
from edpbrl_gym.rendering.posters.colours import mix

__all__ = ["MANNERS", "overlay"]

MANNERS: dict[str, str] = {
    "smooth flat colour": "smooth",
    "grainy riso print": "grain",
    "large halftone dots": "halftone",
    "woodcut lines": "woodcut",
    "watercolour wash": "wash",
    "paper collage with torn edges": "collage",
    "bold ink outlines": "ink",
    "worn old paper": "worn",
    "coarse linen": "linen",
    "wide brush strokes": "strokes",
    "misaligned print layers": "misaligned",
    "finely engraved lines": "engraved",
    "mosaic tiles": "mosaic",
}
"""Texture -> its name in the code (``Brush.manner``)."""


@functools.cache
def _specks(count: int, size: float, number: int) -> str:
    """Specks in a square of 250 units, the same in every picture."""
    rng = Random(number)
    text, x0, y0 = "", 0, 0
    for y in sorted(rng.randrange(2500) for _ in range(count)):
        x, side = rng.randrange(2500), f"{size * rng.choice((0.8, 1.0, 1.3)):.1f}"
        text += f"m{(x - x0) / 10:g} {(y - y0) / 10:g}h{side}v{side}h-{side}z"
        x0, y0 = x, y
    return text


def _grain(b: Brush, w: float, h: float, rng: Random) -> None:
    turn = rng.randrange(4)
    for number, count, colour, alpha in ((1, 1700, b.tones["line"], 0.42), (2, 1300, b.tones["page"], 0.6)):
        b.add(
            f'<defs><path id="specks{number}" d="M0 0{_specks(count, 1.2, number)}" fill="{colour}" fill-opacity="{alpha}"/></defs>'
        )
        for i, (x, y) in enumerate((x, y) for x in range(0, int(w) + 1, 250) for y in range(0, int(h) + 1, 250)):
            b.add(
                f'<use href="#specks{number}" transform="translate({x} {y}) rotate({90 * ((turn + i + number) % 4)} 125 125)"/>'
            )


def _halftone(b: Brush, w: float, h: float, rng: Random) -> None:
    gap, turn, reach = 8.5, 0.47, 0.5 * (w + h)
    dots = ["", ""]
    for i in range(int(2 * reach / gap)):
        for j in range(int(2 * reach / gap)):
            u, v = (j + i % 2 / 2) * gap - reach, i * gap * 0.87 - reach
            x, y = w / 2 + u * math.cos(turn) - v * math.sin(turn), h / 2 + u * math.sin(turn) + v * math.cos(turn)
            if -4 < x < w + 4 and -4 < y < h + 4:
                level = min(1.0, max(0.0, y / h))
                for k, r in enumerate((gap * 0.46 * level**0.7, gap * 0.44 * (1 - level) ** 1.3)):
                    if r > 0.4:
                        dots[k] += (
                            f"M{x - r:.1f} {y:.1f}a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0"
                        )
    b.plain(dots[0], b.tones["line"], 0.34)
    b.plain(dots[1], b.tones["page"], 0.5)


def _woodcut(b: Brush, w: float, h: float, rng: Random) -> None:
    """Marks of the gouge along the picture, wider apart in the middle."""
    paths, y = ["", ""], 0.0
    while y < h:
        x = rng.uniform(-60, 0)
        while x < w:
            long, thick = rng.uniform(24, 80), rng.uniform(1.2, 2.6) * (0.6 + abs(y / h - 0.45))
            rise = 2 * math.sin(x / 70 + y / 50)
            mark = f"M{x:.1f} {y + rise:.1f}q{long / 2:.1f} {-thick:.1f} {long:.1f} 0q{-long / 2:.1f} {thick:.1f} {-long:.1f} 0z"
            paths[rng.random() < 0.35] += mark
            x += long + rng.uniform(6, 40)
        y += rng.uniform(4.4, 6.4)
    b.plain(paths[0], b.tones["page"], 0.72)
    b.plain(paths[1], b.tones["line"], 0.6)


def _engraved(b: Brush, w: float, h: float, rng: Random) -> None:
    """Fine lines of two directions that swell."""
    paths = ["", ""]
    for i in range(int(h / 3.1) + 1):
        y, thick = i * 3.1, 0.55 + 0.45 * math.sin(i / 9)
        paths[0] += (
            f"M0 {y:.1f}Q{w / 4:.0f} {y + 9:.1f} {w / 2:.0f} {y:.1f}T{w:.0f} {y:.1f}v{thick + 0.5:.1f}Q{0.75 * w:.0f} {y - 8 + thick:.1f} {w / 2:.0f} {y + thick + 0.5:.1f}T0 {y + thick:.1f}z"
        )
    for i in range(int((w + h) / 4.4)):
        x = i * 4.4 - h
        paths[1] += f"M{x:.1f} {h:.0f}L{x + h:.1f} 0h.8L{x + 0.8:.1f} {h:.0f}z"
    b.plain(paths[0], b.tones["page"], 0.62)
    b.plain(paths[1], b.tones["line"], 0.5)


def _worn(b: Brush, w: float, h: float, rng: Random) -> None:
    c = b.tones
    b.plain(rect(0, 0, w, h), "#e3c38f", 0.26)
    b.add(
        '<radialGradient id="worn"><stop offset=".62" stop-color="#7a5326" stop-opacity="0"/><stop offset="1" stop-color="#5d3c17" stop-opacity=".62"/></radialGradient>'
    )
    b.plain(rect(0, 0, w, h), "url(#worn)")
    for _ in range(7):
        x, y, r = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(12, 46)
        b.plain(circle(x, y, r, r * rng.uniform(0.7, 1)), "#8a5e2b", 0.13, ' stroke="#6b4419"')
    for x0, y0, x1, y1 in ((w / 2, 0, w / 2, h), (0, h / 3, w, h / 3), (0, 2 * h / 3, w, 2 * h / 3)):
        bend = [rng.uniform(-2, 2) for _ in range(2)]
        fold = f"M{x0:.0f},{y0:.0f} L{(x0 + x1) / 2 + bend[0]:.1f},{(y0 + y1) / 2 + bend[1]:.1f} L{x1:.0f},{y1:.0f}"
        b.line(fold, c["page"], 2.2, 0.62)
        b.line(fold, "#5d3c17", 0.8, 0.5, ' transform="translate(1.4 1.2)"')
    scratches = ""
    for _ in range(46):
        x, y, a = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(0, math.tau)
        scratches += f"M{x:.0f},{y:.0f} l{rng.uniform(4, 34) * math.cos(a):.1f},{rng.uniform(4, 34) * math.sin(a):.1f} "
    b.line(scratches, c["page"], 1.1, 0.6)
    b.plain(f"M0 0{_specks(420, 2.2, 3)}", c["page"], 0.7, f' transform="scale({w / 250:.2f} {h / 250:.2f})"')


def _linen(b: Brush, w: float, h: float, rng: Random) -> None:
    gap, paths = 4.2, ["", ""]
    for i in range(int(max(w, h) / gap) + 1):
        at, thick = [i * gap + rng.uniform(-0.7, 0.7) for _ in range(2)], [rng.uniform(0.8, 2.3) for _ in range(2)]
        paths[0] += f"M0 {at[0]:.1f}h{w:.0f}v{thick[0]:.1f}h{-w:.0f}z"
        paths[1] += f"M{at[1]:.1f} 0v{h:.0f}h{thick[1]:.1f}v{-h:.0f}z"
    b.plain(paths[0], b.tones["page"], 0.4)
    b.plain(paths[1], b.tones["line"], 0.32)


def _strokes(b: Brush, w: float, h: float, rng: Random) -> None:
    for i in range(110):
        x, y, long = rng.uniform(-60, w), rng.uniform(0, h), rng.uniform(60, 190)
        drop, colour = rng.uniform(-18, 10), (b.tones["page"], b.tones["ink"])[i % 2]
        for hair in range(4):
            z = y + hair * 3.3
            path = f"M{x + rng.uniform(-9, 9):.0f},{z:.0f} q{long * 0.5:.0f},{drop:.0f} {long + rng.uniform(-24, 24):.0f},{drop * 0.3:.0f}"
            b.line(path, colour, rng.uniform(1.6, 3.4), 0.16)


def _wash(b: Brush, w: float, h: float, rng: Random) -> None:
    c = b.tones
    for i in range(16):
        x, y, r = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(30, 95)
        path = (
            "M"
            + " L".join(
                f"{x + r * rng.uniform(0.82, 1.1) * math.cos(a / 9 * math.tau):.0f},{y + r * rng.uniform(0.6, 0.9) * math.sin(a / 9 * math.tau):.0f}"
                for a in range(9)
            )
            + " Z"
        )
        b.plain(
            path,
            c["page"] if i % 3 else mix(c["mid"], c["page"], 0.2),
            0.16,
            f' stroke="{c["page"]}" stroke-width="6" stroke-linejoin="round"',
        )
    edge, inner = 16, ""
    for i in range(80):  # the edge of what was painted
        t = i / 20 % 1
        x, y = ((t * w, 0), (w, t * h), (w - t * w, h), (0, h - t * h))[i // 20]
        dx, dy = ((0, 1), (-1, 0), (0, -1), (1, 0))[i // 20]
        inner += f" L{x + dx * (edge + rng.uniform(-7, 5)):.0f},{y + dy * (edge + rng.uniform(-7, 5)):.0f}"
    b.plain(
        f"M-2,-2 L{w + 2:.0f},-2 L{w + 2:.0f},{h + 2:.0f} L-2,{h + 2:.0f} Z M{inner[2:]} Z",
        c["page"],
        1,
        ' fill-rule="evenodd"',
    )


def _mosaic(b: Brush, w: float, h: float, rng: Random) -> None:
    c, side = b.tones, 12.5
    groups: list[list[str]] = [[], [], [], []]
    for i in range(int(w / side) + 1):
        for j in range(int(h / side) + 1):
            groups[rng.randrange(4)].append(f"M{i * side:g},{j * side:g}h{side}v{side}h-{side}z")
    for tiles, (colour, alpha) in zip(
        groups, (("#ffffff", 0.2), (c["line"], 0.2), (c["accent"], 0.08), (c["page"], 0.1)), strict=True
    ):
        b.plain("".join(tiles), colour, alpha)
    lines = "".join(f"M{i * side + rng.uniform(-0.7, 0.7):.1f},0V{h:.0f}" for i in range(int(w / side) + 1))
    lines += "".join(f"M0,{j * side + rng.uniform(-0.7, 0.7):.1f}H{w:.0f}" for j in range(int(h / side) + 1))
    b.line(lines, mix(c["page"], c["line"], 0.14), 1.7, 0.9)


_OVERLAYS: dict[str, Callable[[Brush, float, float, Random], None]] = {
    "grain": _grain,
    "halftone": _halftone,
    "worn": _worn,
    "linen": _linen,
    "strokes": _strokes,
    "wash": _wash,
    "woodcut": _woodcut,
    "engraved": _engraved,
    "mosaic": _mosaic,
}


def overlay(brush: Brush, width: float, height: float, rng: Random) -> None:
    """Draw what the texture adds over the whole page."""
    if brush.manner in _OVERLAYS:
        _OVERLAYS[brush.manner](brush, width, height, rng)
