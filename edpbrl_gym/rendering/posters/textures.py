"""What a print's paper and plates add over the whole picture."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from random import Random

from edpbrl_gym.rendering.posters.brush import Brush, circle, rect
from edpbrl_gym.rendering.posters.colours import difference, mix

__all__ = ["MANNERS", "overlay"]

_CRISP = ' shape-rendering="crispEdges"'  # several times quicker for thousands of small shapes, and smaller files

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
    for number, count, colour, alpha in ((1, 2000, b.tones["line"], 0.5), (2, 1700, b.tones["page"], 0.62)):
        b.add(
            f'<defs><path id="specks{number}" d="M0 0{_specks(count, 1.7, number)}" fill="{colour}" fill-opacity="{alpha}"{_CRISP}/></defs>'
        )
        for i, (x, y) in enumerate((x, y) for x in range(0, int(w) + 1, 250) for y in range(0, int(h) + 1, 250)):
            b.add(
                f'<use href="#specks{number}" transform="translate({x} {y}) rotate({90 * ((turn + i + number) % 4)} 125 125)"/>'
            )


def _halftone(b: Brush, w: float, h: float, rng: Random) -> None:
    """Rows of dots on a slant: light ones that shrink from above, dark ones that grow below."""
    gap, reach, rows = 9.0, 0.75 * max(w, h), []
    inks = (b.tones["page"], b.tones["line"])
    upper, lower = (max(inks, key=lambda ink: difference(ink, b.tones[one])) for one in ("high", "near"))
    for i in range(int(2 * reach / (gap * 0.87))):
        y = i * gap * 0.87 - reach
        level = min(1.0, max(0.0, 0.5 + y / (1.25 * max(w, h))))
        width, colour = gap * (1.0 - 1.7 * level), upper
        if level > 0.5:
            width, colour = gap * (1.7 * level - 0.7), lower
        dots = "".join(f"M{x * gap + i % 2 * gap / 2 - reach:.1f} {y:.1f}h.1" for x in range(int(2 * reach / gap)))
        if width > 0.8:
            rows.append(f'<path d="{dots}" stroke="{colour}" stroke-width="{width:.1f}"/>')
    turn = f"translate({w / 2:.0f} {h / 2:.0f}) rotate(24)"
    b.group(turn, rows, ' fill="none" stroke-linecap="round" stroke-opacity=".42"' + _CRISP)


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
    """Fine light lines that swell, crossed by dark ones."""
    light, dark, gap = "", "", 4.0
    for i in range(int(h / gap) + 1):
        y, thick = i * gap, 1.3 + 0.9 * math.sin(i / 7)
        light += f"M0 {y:.1f}L{w / 2:.0f} {y + 7:.1f} {w:.0f} {y:.1f}v{thick:.1f}L{w / 2:.0f} {y + 7 + thick:.1f} 0 {y + thick:.1f}z"
    for i in range(int((w + h) / 5)):
        x = i * 5 - h
        dark += f"M{x:.0f} {h:.0f}l{h:.0f} {-h:.0f}h1l{-h:.0f} {h:.0f}z"
    b.plain(light, b.tones["page"], 0.6, _CRISP)
    b.plain(dark, b.tones["line"], 0.55, _CRISP)


def _worn(b: Brush, w: float, h: float, rng: Random) -> None:
    """Yellowed paper with dark edges, folds and places where the ink came off."""
    b.plain(rect(0, 0, w, h), "#e8cd9c", 0.2)
    for i in range(9):
        b.line(rect(0, 0, w, h), "#5d3c17", 64 - 7 * i, 0.075)
    flakes = f"M0 0{_specks(300, 2.6, 3)}"
    b.plain(flakes, b.tones["page"], 0.8, f' transform="scale({w / 250:.2f} {h / 250:.2f})"' + _CRISP)
    for x0, y0, x1, y1 in ((w / 2, 0, w / 2, h), (0, h / 3, w, h / 3), (0, 2 * h / 3, w, 2 * h / 3)):
        fold = f"M{x0:.0f},{y0:.0f} Q{w / 2 + rng.uniform(-4, 4):.1f},{(y0 + y1) / 2 + rng.uniform(-4, 4):.1f} {x1:.0f},{y1:.0f}"
        b.line(fold, b.tones["page"], 2.6, 0.75)
        b.line(fold, "#5d3c17", 0.9, 0.5, ' transform="translate(1.6 1.4)"')


def _linen(b: Brush, w: float, h: float, rng: Random) -> None:
    gap, paths = 4.2, ["", ""]
    for i in range(int(max(w, h) / gap) + 1):
        at, thick = [i * gap + rng.uniform(-0.7, 0.7) for _ in range(2)], [rng.uniform(0.8, 2.3) for _ in range(2)]
        paths[0] += f"M0 {at[0]:.1f}h{w:.0f}v{thick[0]:.1f}h{-w:.0f}z"
        paths[1] += f"M{at[1]:.1f} 0v{h:.0f}h{thick[1]:.1f}v{-h:.0f}z"
    b.plain(paths[0], b.tones["page"], 0.4, _CRISP)
    b.plain(paths[1], b.tones["line"], 0.32, _CRISP)


def _strokes(b: Brush, w: float, h: float, rng: Random) -> None:
    """Strokes of a wide brush, each of a few hairs."""
    paths = {(tone, width): "" for tone in ("page", "ink") for width in (1.6, 3.2, 5.0)}
    for i in range(64):
        x, y, long, drop = rng.uniform(-80, w), rng.uniform(0, h), rng.uniform(90, 300), rng.uniform(-26, 14)
        for hair in range(5):
            left, right = x + rng.uniform(-12, 12), long + rng.uniform(-30, 30)
            hairs = f"M{left:.0f} {y + 4.4 * hair:.0f}q{right / 2:.0f} {drop:.0f} {right:.0f} {drop * 0.3:.0f}"
            paths[("page", "ink")[i % 2], rng.choice((1.6, 3.2, 5.0))] += hairs
    for (tone, width), path in paths.items():
        b.line(path, b.tones[tone], width, 0.2 if tone == "page" else 0.15)


def _wash(b: Brush, w: float, h: float, rng: Random) -> None:
    """Pale blooms where water stood, and the uneven edge of what was painted."""
    for _ in range(9):
        x, y, r = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(30, 110)
        for share in (1.0, 0.86, 0.7):
            b.plain(circle(x, y, r * share, r * share * 0.7), b.tones["page"], 0.05)
    points = []
    for i in range(88):
        t, inside = i / 22 % 1, 16 + rng.uniform(-6, 4)
        x, y = ((t * w, inside), (w - inside, t * h), (w - t * w, h - inside), (inside, h - t * h))[i // 22]
        points.append(f"{x:.0f},{y:.0f}")
    b.plain(f"{rect(-99, -99, w + 198, h + 198)} M{' L'.join(points)} Z", b.tones["page"], 1, ' fill-rule="evenodd"')


def _mosaic(b: Brush, w: float, h: float, rng: Random) -> None:
    c, side = b.tones, 12.5
    groups: list[list[str]] = [[], [], [], []]
    for i in range(int(w / side) + 1):
        for j in range(int(h / side) + 1):
            groups[rng.randrange(4)].append(f"M{i * side:g},{j * side:g}h{side}v{side}h-{side}z")
    for tiles, (colour, alpha) in zip(
        groups, (("#ffffff", 0.13), (c["line"], 0.13), (c["accent"], 0.05), (c["page"], 0.06)), strict=True
    ):
        b.plain("".join(tiles), colour, alpha, _CRISP)
    lines = "".join(f"M{i * side + rng.uniform(-0.7, 0.7):.1f},0V{h:.0f}" for i in range(int(w / side) + 1))
    lines += "".join(f"M0,{j * side + rng.uniform(-0.7, 0.7):.1f}H{w:.0f}" for j in range(int(h / side) + 1))
    b.line(lines, mix(c["page"], c["line"], 0.14), 1.5, 0.9, _CRISP)


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


def overlay(brush: Brush, width: float, height: float, rng: Random, *, page: bool) -> None:
    """Draw what the texture adds over the picture, or what it adds over the whole page with its margins."""
    if brush.manner in _OVERLAYS and page == (brush.manner in ("grain", "worn", "linen")):
        _OVERLAYS[brush.manner](brush, width, height, rng)
