"""Skies, what shines in them, and the weather before a subject."""

from __future__ import annotations

import math
from collections.abc import Callable

from edpbrl_gym.rendering.posters.brush import BLEED, circle, rect, ridge, trace
from edpbrl_gym.rendering.posters.colours import difference, mix
from edpbrl_gym.rendering.posters.stage import Stage

__all__ = ["beam", "sky", "weather"]


def sky(s: Stage) -> str:
    """Draw the sky; returns the colour behind most of the subject."""
    b, w, y, high, low = s.brush, s.width + 2 * BLEED, s.horizon, s.tones["high"], s.tones["low"]
    b.plain(rect(-BLEED, -BLEED, w, s.floor + BLEED), high)
    if b.manner == "collage":
        for i in range(1, 5):
            strip = ridge(s.rng(f"sky{i}"), s.width, y * (i / 4 - 0.06), 7, 22, s.floor, sharp=True)
            b.shape(strip, mix(high, low, i / 4))
    else:
        bands = 6 if b.manner in ("misaligned", "woodcut", "ink") else 36  # flat inks, or as if without steps
        for i in range(1, bands):
            top, tall = y * i / bands, y / bands + 5 if i < bands - 1 else s.floor - y * i / bands
            b.plain(rect(-BLEED, top, w, tall), mix(high, low, i / (bands - 1)))
    if s.light in _ORBS:
        stars, name, height = _ORBS[s.light]
        _stars(s, stars)
        s.motif(name, _side(s), s.height * height)
    elif s.light in _LIGHTS:
        _LIGHTS[s.light](s, _side(s))
    return mix(high, low, 0.55)


def _side(s: Stage) -> float:
    """Where the sun or moon is, on the side of the subject that has more room."""
    x = s.middle / s.width
    aside = s.rng("sun").uniform(0.17, 0.28) * s.view
    turn = s.rng("side").choice((-1, 1)) if abs(x - 0.5) < 0.04 else 1 if x < 0.5 else -1
    return s.width * (x + aside * turn)


def _disc(s: Stage, x: float, y: float, r: float) -> str:
    """The part of a disc above the horizon."""
    depth = s.horizon - y
    if depth >= r:
        return circle(x, y, r)
    half = max(0.0, r * r - depth * depth) ** 0.5
    return f"M{x - half:.1f} {s.horizon:.1f}A{r:.1f} {r:.1f} 0 {int(depth > 0)} 1 {x + half:.1f} {s.horizon:.1f}Z"


def _stars(s: Stage, count: int) -> None:
    rng = s.rng("stars")
    for width in (1.3, 2.0, 2.8):
        places = [(rng.uniform(0, s.width), s.horizon * rng.random() ** 1.3) for _ in range(count // 3)]
        s.brush.line("".join(f"M{x:.1f} {y:.1f}h.1" for x, y in places), s.tones["paper"], width)


def _evening(s: Stage, x: float) -> None:
    c, y = s.tones, s.horizon - 24
    s.brush.plain(_disc(s, x, y, 92), c["glow"], 0.35)
    s.brush.shape(_disc(s, x, y, 64), mix(c["accent"], c["glow"], 0.35))


def _night(s: Stage, x: float) -> None:
    """Stars everywhere, and a river of them from corner to corner."""
    rng, river = s.rng("river"), ""
    for _ in range(420):
        t = rng.random()
        x, y = s.width * (t * 1.2 - 0.1 + rng.gauss(0, 0.07)), s.horizon * (1 - t + rng.gauss(0, 0.09))
        river += f"M{x:.1f} {y:.1f}h.1"
    s.brush.line(river, s.tones["paper"], 1.3, 0.75)
    _stars(s, 150)
    for _ in range(9):
        s.motif("star", rng.uniform(20, s.width - 20), s.horizon * rng.uniform(0.04, 0.75), rng.uniform(0.5, 1.1))


def _rays(s: Stage, _: float) -> None:
    c, x, y, path = s.tones, s.middle, s.horizon - 4, ""
    for i in range(0, 14, 2):
        ends = [math.pi * (1 + (i - 0.5 + k) / 13) for k in (0, 1)]
        path += trace([(x, y), *((x + 700 * math.cos(a), y + 700 * math.sin(a)) for a in ends)])
    s.brush.plain(path, mix(c["shine"], c["high"], 0.3), 0.85)
    s.brush.shape(_disc(s, x, y, 84), mix(c["accent"], c["glow"], 0.3))


def _northern_lights(s: Stage, _: float) -> None:
    """Curtains: a waving foot, with light that fades upwards."""
    rng, y, colour = s.rng("aurora"), s.horizon, mix("#3fe0a0", s.tones["glow"], 0.25)
    _stars(s, 60)
    xs = [-BLEED + (s.width + 2 * BLEED) * i / 40 for i in range(41)]
    for band in range(3):
        phase, foot, tall = rng.uniform(0, 6), y * (0.38 + 0.2 * band), y * rng.uniform(0.26, 0.36)
        line = [(x, foot + 30 * math.sin(x / 58 + phase) + 11 * math.sin(x / 21 + 2 * phase)) for x in xs]
        for step in range(5):
            reach = tall * (1 - step / 5) ** 1.5
            top = [(x, z - reach * (1 + 0.35 * math.sin(x / 26 + phase))) for x, z in reversed(line)]
            s.brush.plain(trace(line + top), colour, 0.16)


def _storm(s: Stage, x: float) -> None:
    rng, w, h = s.rng("storm"), s.width, s.height
    s.motif("bolt", x, h * 0.16, min(1.1, s.horizon / 300))
    for row, level in enumerate((0.2, 0.12, 0.05)):
        for i in range(6):
            s.motif(f"storm {row}", (i / 5 + rng.uniform(-0.08, 0.08)) * w, h * level, rng.uniform(1.0, 1.6))
        colour = mix(s.tones["low"], s.tones["ink"], (0.3, 0.55, 0.8)[row])
        s.brush.plain(rect(-BLEED, -BLEED, w + 2 * BLEED, h * level + BLEED + 1), colour)


def _clouds(s: Stage, _: float) -> None:
    rng, places = (
        s.rng("clouds"),
        ((0.2, 0.17, 1.15), (0.82, 0.3, 1.35), (0.1, 0.48, 0.85), (0.62, 0.1, 0.6), (0.9, 0.6, 0.8)),
    )
    for x, y, size in places:
        at = s.width * (x + rng.uniform(-0.07, 0.07)), s.horizon * (y + rng.uniform(-0.03, 0.03))
        s.motif("cloud shadow", *at, size)
        s.motif("cloud", *at, size)


def _rings(s: Stage, x: float) -> None:
    c, y = s.tones, s.height * 0.3
    for i, r in enumerate((330, 285, 240, 198, 158, 120, 84)):
        s.brush.shape(_disc(s, x, y, r), mix(c["high"], c["shine"], 0.12 + 0.09 * i + 0.16 * (i % 2)))
    s.brush.shape(circle(x, y, 48), c["shine"])


_LIGHTS: dict[str, Callable[[Stage, float], None]] = {
    "low evening sun": _evening,
    "a night full of stars": _night,
    "rays of the rising sun": _rays,
    "green northern lights": _northern_lights,
    "dark storm with lightning": _storm,
    "drifting white clouds": _clouds,
    "rings of light around the sun": _rings,
}
# how many stars, what shines among them, and its y as a share of the height
_ORBS: dict[str, tuple[int, str, float]] = {
    "bright midday sun": (0, "noon", 0.17),
    "a large full moon": (26, "full moon", 0.25),
    "a thin crescent moon": (18, "crescent", 0.19),
    "thick morning fog": (0, "pale sun", 0.26),
    "slanting rain": (0, "rain clouds", 0.1),
    "an eclipsed sun": (40, "eclipse", 0.26),
}


def beam(s: Stage) -> None:
    """Draw the beam of light, if that is the light, before the subject that it falls on."""
    if s.light == "a beam of light from above":
        x, r, y = s.middle, s.subject.half * s.size, s.base + 6
        start = s.width * (0.1 if x > s.width * 0.5 else 0.9)
        for reach, alpha in ((1.7 * r, 0.3), (1.2 * r, 0.5)):
            path = trace(((x - reach, y), (start - 12, -95), (start + 12, -95), (x + reach, y)), "")
            foot = f" Q{x:.0f},{y + 16:.0f} {x - reach:.0f},{y:.0f} Z"
            s.brush.plain(path + foot, s.tones["glow"], alpha)


def weather(s: Stage) -> None:
    """Draw fog, rain or snow before everything."""
    b, c, rng, w, h = s.brush, s.tones, s.rng("weather"), s.width, s.height
    if s.light == "thick morning fog":
        for i in range(5):
            y, x = s.horizon - 40 + i * (s.depth + 40) / 5, rng.uniform(0.1, 0.9) * w
            b.plain(circle(x, y, w * rng.uniform(0.4, 0.65), rng.uniform(7, 15)), c["low"], 0.62)
    elif s.light == "slanting rain":
        drop = max((c["paper"], c["near"]), key=lambda one: difference(one, c["high"]))
        for width, alpha, count in ((1.1, 0.5, 130), (1.9, 0.75, 60)):
            path = ""
            for _ in range(count):
                x, y, long = rng.uniform(-20, w + 60), rng.uniform(-40, h), rng.uniform(16, 36) * width
                path += f"M{x:.0f},{y:.0f} l{-long * 0.36:.1f},{long:.1f} "
            b.line(path, mix(drop, c["high"], 0.15), width, alpha)
    elif s.light == "softly falling snow":
        for width, count in ((3.0, 130), (5.4, 70), (8.8, 24)):
            flakes = "".join(f"M{rng.uniform(0, w):.1f} {rng.uniform(0, h):.1f}h.1" for _ in range(count))
            b.line(flakes, mix(c["page"], "#ffffff", 0.6), width)
