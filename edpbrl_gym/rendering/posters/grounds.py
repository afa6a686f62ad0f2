"""The land, water or room around a subject, as ``grounds.txt`` says."""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random

from edpbrl_gym.rendering.posters.brush import BLEED, circle, rect, ridge, trace
from edpbrl_gym.rendering.posters.colours import blend, lines_of, mix
from edpbrl_gym.rendering.posters.stage import Stage

__all__ = ["foot", "land"]


@functools.cache
def _layers() -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = {}
    layers: list[list[str]] = []
    for line in lines_of("grounds.txt"):
        if line.startswith("["):
            layers = found[line[1:-1]] = []
        else:
            layers.append(line.split())
    return found


def land(s: Stage, part: str) -> None:
    """Draw the "far" part of the land, at the horizon, or the "near" one, down to the lower edge."""
    unit, rng = min(1.0, 0.45 + s.size / 4), s.rng(part)
    for layer, kind, recipe, at, *rest in _layers()[s.subject.ground]:
        if layer != part:
            continue
        y = s.horizon + (float(at) * unit if part == "far" else float(at) / 100 * s.depth)
        swing, bottom, colour = (unit if part == "far" else 1.0), s.floor, blend(s.tones, recipe)
        if kind in ("ridge", "sharp"):
            swing *= float(rest[0])
            s.brush.shape(ridge(rng, s.width, y, swing, int(rest[1]), bottom, sharp=kind == "sharp"), colour)
        elif kind in _OUTLINES:
            s.brush.shape(_outline(kind, rng, s.width, y, swing * float(rest[0]), bottom), colour)
        elif kind == "motif":
            aside = 0.2 if s.middle >= s.width / 2 else 0.8
            s.motif(rest[0], s.width * aside, max(y, s.horizon * 0.24), unit)
        else:
            _KINDS[kind](s, rng, colour, float(rest[0]) / 100 if rest else 0.0)


def foot(s: Stage) -> None:
    """Draw what is before a subject's foot."""
    b, c, rng, k = s.brush, s.tones, s.rng("foot"), s.size
    for place in s.places:
        if s.subject.stands == "water":
            for row in range(4):
                half, y = s.subject.half * k * (0.95 - 0.2 * row), s.base + (2 + 6.5 * row) * k
                x = place + half * rng.uniform(-0.15, 0.15)
                b.line(trace(((x - half, y), (x + half, y)), ""), c["paper"], 1.5 * k, 0.75 - 0.15 * row)
        elif s.subject.ground in ("alps", "forest", "desert"):
            for _ in range(9):
                x, y = place + k * rng.uniform(-60, 60), s.base + k * rng.uniform(1, 9)
                tuft = ((0, 0), (-1.6, -5), (0, -3), (1.8, -9), (1.8, -1))
                b.plain(trace((x + i * k, y + j * k) for i, j in tuft), mix(c["near"], c["ink"], 0.5))


# What is repeated: steps of x (0 to 1 of a length) and y (0 to 1 of a height); then the least and the greatest length,
# and distance to the next one, in heights
_OUTLINES: dict[str, tuple[tuple[tuple[float, float], ...], tuple[float, float], tuple[float, float]]] = {
    "trees": (((0, 0), (0.5, 1), (1, 0)), (0.46, 0.5), (-0.12, 0.1)),
    "mesas": (((0, 0), (0.1, 0.4), (0.14, 1), (0.86, 1), (0.9, 0.4), (1, 0)), (1.4, 2.8), (0.4, 1.6)),
    "blocks": (((0, 1), (1, 1)), (0.2, 0.45), (0, 0)),
}


def _outline(kind: str, rng: Random, width: float, y: float, tall: float, bottom: float) -> str:
    """A line of firs, of flat hills or of houses, and the land below it."""
    steps, lengths, gaps = _OUTLINES[kind]
    x, points = -BLEED, [(-BLEED, bottom), (-BLEED, y)]
    while x < width + BLEED:
        size = tall * rng.uniform(0.35 if kind == "blocks" else 0.5, 1.0)
        length = (tall if kind != "trees" else size) * rng.uniform(*lengths)
        points += [(x + i * length, y - j * size) for i, j in steps]
        x += length + tall * rng.uniform(*gaps)
    return trace([*points, (x, bottom)])


def _water(s: Stage, rng: Random, colour: str, _: float) -> None:
    b, c, w = s.brush, s.tones, s.width + 2 * BLEED
    b.shape(rect(-BLEED, s.horizon, w, s.depth + BLEED), colour)
    b.plain(rect(-BLEED, s.horizon, w, s.depth * 0.16), mix(colour, c["low"], 0.5), 0.8)
    b.plain(rect(-BLEED, s.horizon + s.depth * 0.62, w, s.depth + BLEED), c["near"], 0.55)
    y, step, light = s.horizon + 6, 5.0, mix(c["low"], c["paper"], 0.4)
    while y < s.height:
        near = (y - s.horizon) / max(s.depth, 1)
        for _i in range(2 + int(3 * (1 - near))):
            x, long, swell = rng.uniform(-20, s.width), rng.uniform(14, 46) * (0.6 + near), 2.5 * near
            path = f"M{x:.1f},{y:.1f} c{long * 0.3:.1f},{-swell:.1f} {long * 0.6:.1f},{swell:.1f} {long:.1f},0"
            b.line(path, light if rng.random() < 0.6 else c["near"], 0.8 + 1.3 * near, 0.55)
        y += step
        step *= 1.22


def _hill(s: Stage, rng: Random, colour: str, fall: float) -> None:
    """The hill on which the subjects stand, falling to one side."""
    h, r = s.height + BLEED, s.subject.half * s.size
    if len(s.places) > 1:
        s.brush.shape(ridge(rng, s.width, s.base, 2, 4, h), colour)
        return
    ends = [s.base + s.depth * fall, s.base + 4]
    left, right = ends[:: rng.choice((-1, 1))]
    x, y, far = s.middle, s.base - 2, s.width + BLEED
    path = f"M{-BLEED},{h:.0f} L{-BLEED},{left:.1f} C{x - 2.2 * r:.1f},{left:.1f} {x - 1.6 * r:.1f},{y:.1f} "
    path += f"{x - 0.8 * r:.1f},{y:.1f} L{x + 0.8 * r:.1f},{y:.1f} C{x + 1.6 * r:.1f},{y:.1f} "
    s.brush.shape(path + f"{x + 2.2 * r:.1f},{right:.1f} {far},{right:.1f} L{far},{h:.0f} Z", colour)


def _table(s: Stage, rng: Random, colour: str, depth: float) -> None:
    b, c, w, top = s.brush, s.tones, s.width + 2 * BLEED, s.base - depth * 100 * s.size
    b.shape(rect(-BLEED, top, w, s.height - top + BLEED), colour)
    b.plain(rect(-BLEED, top, w, 4), mix(c["mid"], c["paper"], 0.4))
    for place in s.places:
        b.plain(circle(place + 10 * s.size, s.base + 2 * s.size, 44 * s.size, 5 * s.size), c["ink"], 0.28)


def _rows(s: Stage, rng: Random, colour: str, _: float) -> None:
    """Fields of flowers in rows that meet at the horizon."""
    b, c, h, x, y = s.brush, s.tones, s.height + BLEED, s.middle, s.horizon
    b.shape(rect(-BLEED, y, s.width + 2 * BLEED, h - y), colour)
    colours = (c["accent"], c["near"], c["glow"], c["mid"], c["paper"], c["near"])
    for i in range(-9, 9):
        b.shape(trace(((x + i * 9, y), (x + i * 9 + 9, y), (x + i * 62 + 62, h), (x + i * 62, h))), colours[i % 6])
    b.shape(rect(-BLEED, y, s.width + 2 * BLEED, 4), c["near"])
    b.shape(ridge(rng, s.width, s.base + 1, 2, 3, s.base + 16), c["near"])


def _craters(s: Stage, rng: Random, colour: str, _: float) -> None:
    for _i in range(8):
        depth = rng.uniform(0.3, 0.95)
        r = (5 + 16 * depth) * rng.uniform(0.6, 1.2)
        s.brush.shape(circle(rng.uniform(0, s.width), s.horizon + s.depth * depth, r, r * 0.3), colour)


def _petals(s: Stage, rng: Random, colour: str, _: float) -> None:
    """Branches in flower from an upper corner."""
    b, c, w, k = s.brush, s.tones, s.width, min(1.0, 0.5 + s.size / 4)
    left = s.middle > w / 2
    colours = (mix(colour, c["paper"], 0.55), colour, mix(colour, c["paper"], 0.8))
    for y, reach, drop in ((8, 150, 50), (54, 110, 72)):
        ends = [(t * reach * k, (y + drop * t * t) * k) for t in (-0.3, 0, 0.35, 0.7, 1.0)]
        ends = [(x if left else w - x, z) for x, z in ends]
        b.line(trace(ends, ""), c["ink"], 3.2 * k)
        for x, z in ends[2:]:
            for _i in range(6):
                flower = circle(x + rng.gauss(0, 12) * k, z + rng.gauss(0, 9) * k, rng.uniform(4, 8) * k)
                b.plain(flower, rng.choice(colours))


_KINDS: dict[str, Callable[[Stage, Random, str, float], None]] = {
    "water": _water,
    "hill": _hill,
    "table": _table,
    "rows": _rows,
    "craters": _craters,
    "petals": _petals,
}
