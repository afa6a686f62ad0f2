"""What a print's paper and plates add over the whole picture."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from random import Random

from edpbrl_gym.rendering.posters.brush import Brush, rect, trace
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
    rng, text, x0, y0 = Random(number), "M0 0", 0, 0
    for y in sorted(rng.randrange(2500) for _ in range(count)):
        x, side = rng.randrange(2500), f"{size * rng.choice((0.8, 1.0, 1.3)):.1f}"
        text += f"m{(x - x0) / 10:g} {(y - y0) / 10:g}h{side}v{side}h-{side}z"
        x0, y0 = x, y
    return text


def _grain(b: Brush, w: float, h: float, rng: Random) -> None:
    turn, tiles = rng.randrange(4), [(x, y) for x in range(0, int(w) + 1, 250) for y in range(0, int(h) + 1, 250)]
    for number, count, ink, alpha in ((1, 2000, "line", 0.5), (2, 1700, "page", 0.46)):
        own = b.beside()
        own.plain(_specks(count, 1.7, number), b.tones[ink], alpha, f' id="{b.prefix}specks{number}"{_CRISP}')
        b.add(f"<defs>{own.parts[0]}</defs>")
        for i, (x, y) in enumerate(tiles):
            move = f"translate({x} {y}) rotate({90 * ((turn + i + number) % 4)} 125 125)"
            b.add(f'<use href="#{b.prefix}specks{number}" transform="{move}"/>')


def _halftone(b: Brush, w: float, h: float, rng: Random) -> None:
    """Rows of dots on a slant: those of one ink shrink from above, those of the other grow below."""
    gap, reach, rows, inks = 9.0, 0.75 * max(w, h), [], (b.tones["page"], b.tones["line"])
    upper, lower = (max(inks, key=lambda ink: difference(ink, b.tones[part])) for part in ("high", "near"))
    for i in range(int(2 * reach / (gap * 0.87))):
        y = i * gap * 0.87 - reach
        level = min(1.0, max(0.0, 0.5 + y / (1.25 * max(w, h))))
        width, ink = gap * (1.7 * level - 0.7 if level > 0.5 else 1.0 - 1.7 * level), lower if level > 0.5 else upper
        dots = "".join(f"M{x * gap + i % 2 * gap / 2 - reach:.1f} {y:.1f}h.1" for x in range(int(2 * reach / gap)))
        if width > 0.8:
            rows.append(f'<path d="{dots}" stroke="{ink}" stroke-width="{width:.1f}"/>')
    turn = f"translate({w / 2:.0f} {h / 2:.0f}) rotate(24)"
    b.group(turn, rows, ' fill="none" stroke-linecap="round" stroke-opacity=".42"' + _CRISP)


def _woodcut(b: Brush, w: float, h: float, rng: Random) -> None:
    """Marks of the gouge along the picture, finer in the middle."""
    paths, y = ["", ""], 0.0
    while y < h:
        x = rng.uniform(-60, 0)
        while x < w:
            long, thick = rng.uniform(24, 80), rng.uniform(1.2, 2.6) * (0.6 + abs(y / h - 0.45))
            mark = f"M{x:.1f} {y + 2 * math.sin(x / 70 + y / 50):.1f}q{long / 2:.1f} {-thick:.1f} {long:.1f} 0"
            paths[rng.random() < 0.35] += f"{mark}q{-long / 2:.1f} {thick:.1f} {-long:.1f} 0z"
            x += long + rng.uniform(6, 40)
        y += rng.uniform(4.4, 6.4)
    b.plain(paths[0], b.tones["page"], 0.72)
    b.plain(paths[1], b.tones["line"], 0.6)


def _engraved(b: Brush, w: float, h: float, rng: Random) -> None:
    """Fine light lines that swell, crossed by dark ones."""
    light, dark = "", ""
    for i in range(int(h / 4) + 1):
        y, thick = i * 4.0, 1.3 + 0.9 * math.sin(i / 7)
        light += trace(((0, y), (w / 2, y + 7), (w, y), (w, y + thick), (w / 2, y + 7 + thick), (0, y + thick)))
    for i in range(int((w + h) / 5)):
        x = i * 5 - h
        dark += f"M{x:.0f} {h:.0f}l{h:.0f} {-h:.0f}h1l{-h:.0f} {h:.0f}z"
    b.plain(light, b.tones["page"], 0.6, _CRISP)
    b.plain(dark, b.tones["line"], 0.55, _CRISP)


def _worn(b: Brush, w: float, h: float, rng: Random) -> None:
    """Yellowed paper with dark edges, folds, and places where the ink came off."""
    b.plain(rect(0, 0, w, h), "#e8cd9c", 0.2)
    for i in range(9):
        b.plain(rect(0, 0, w, h), "none", 0.075, f' stroke="#5d3c17" stroke-width="{64 - 7 * i}"')
    b.plain(_specks(300, 2.6, 3), b.tones["page"], 0.8, f' transform="scale({w / 250:.2f} {h / 250:.2f})"{_CRISP}')
    for x0, y0, x1, y1 in ((w / 2, 0, w / 2, h), (0, h / 3, w, h / 3), (0, 2 * h / 3, w, 2 * h / 3)):
        bend = f"{w / 2 + rng.uniform(-4, 4):.1f},{(y0 + y1) / 2 + rng.uniform(-4, 4):.1f}"
        fold = f"M{x0:.0f},{y0:.0f} Q{bend} {x1:.0f},{y1:.0f}"
        b.line(fold, b.tones["page"], 2.6, 0.75)
        b.line(fold, "#5d3c17", 0.9, 0.5, ' transform="translate(1.6 1.4)"')


def _linen(b: Brush, w: float, h: float, rng: Random) -> None:
    for across, ink, alpha in ((True, "page", 0.4), (False, "line", 0.32)):
        threads = ""
        for i in range(int((h if across else w) / 4.2) + 1):
            at, thick = i * 4.2 + rng.uniform(-0.7, 0.7), rng.uniform(0.8, 2.3)
            threads += rect(0, at, w, thick) if across else rect(at, 0, thick, h)
        b.plain(threads, b.tones[ink], alpha, _CRISP)


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
    pale = mix(b.tones["low"], b.tones["page"], 0.55)
    stop, stops = f'<stop stop-color="{pale}" offset=', ((0.2, 0.3), (0.9, 0.1), (0.97, 0.2), (1, 0))
    bloom = "".join(f'{stop}"{at}" stop-opacity="{alpha}"/>' for at, alpha in stops)
    b.add(f'<radialGradient id="{b.prefix}bloom">{bloom}</radialGradient>')
    for _ in range(8):
        x, y, r = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(22, 70)
        ring = [(r * rng.uniform(0.86, 1.05), a * math.tau / 14) for a in range(14)]
        b.plain(trace((x + d * math.cos(a), y + 0.75 * d * math.sin(a)) for d, a in ring), f"url(#{b.prefix}bloom)")
    points = []
    for i in range(88):
        t, inside = i / 22 % 1, 8 + rng.uniform(-4, 4)
        x, y = 8 + t * (w - 16), 8 + t * (h - 16)
        points.append(((x, inside), (w - inside, y), (w - x, h - inside), (inside, h - y))[i // 22])
    b.plain(rect(-99, -99, w + 198, h + 198) + trace(points), b.tones["page"], 1, ' fill-rule="evenodd"')


def _mosaic(b: Brush, w: float, h: float, rng: Random) -> None:
    c, side, xs, ys = b.tones, 12.5, range(int(w / 12.5) + 1), range(int(h / 12.5) + 1)
    tiles = {("#ffffff", 0.13): "", (c["line"], 0.13): "", (c["accent"], 0.05): "", (c["page"], 0.06): ""}
    for i in xs:
        for j in ys:
            tiles[rng.choice(list(tiles))] += f"M{i * side:g},{j * side:g}h{side}v{side}h-{side}z"
    for (colour, alpha), path in tiles.items():
        b.plain(path, colour, alpha, _CRISP)
    grout = "".join(f"M{i * side + rng.uniform(-0.7, 0.7):.1f},0V{h:.0f}" for i in xs)
    grout += "".join(f"M0,{j * side + rng.uniform(-0.7, 0.7):.1f}H{w:.0f}" for j in ys)
    b.line(grout, mix(c["page"], c["line"], 0.14), 1.5, 0.9, _CRISP)


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
