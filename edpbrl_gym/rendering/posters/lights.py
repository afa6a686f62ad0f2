"""Skies, what shines in them, and the weather before a subject."""

from __future__ import annotations

import math

from edpbrl_gym.rendering.posters.brush import circle, rect, ridge
from edpbrl_gym.rendering.posters.colours import difference, mix
from edpbrl_gym.rendering.posters.stage import Stage

__all__ = ["beam", "sky", "weather"]


def sky(s: Stage) -> str:
    """Draw the sky; returns the colour behind most of the subject."""
    b, c, w, y = s.brush, s.tones, s.width, s.horizon
    high, low = c["high"], c["low"]
    b.plain(rect(-90, -90, w + 180, s.floor + 90), high)
    if b.manner == "collage":
        for i in range(1, 5):
            strip = ridge(s.rng(f"sky{i}"), w, y * (i / 4 - 0.06), 7, 22, s.floor, sharp=True)
            b.shape(strip, mix(high, low, i / 4))
    else:
        bands = 6 if b.manner in ("misaligned", "woodcut", "ink") else 36  # flat inks, or as if without steps
        for i in range(1, bands):
            b.plain(rect(-90, y * i / bands, w + 180, s.floor - y * i / bands), mix(high, low, i / (bands - 1)))
    _LIGHTS[s.light](s)
    return mix(high, low, 0.55)


def _side(s: Stage) -> float:
    """Where the sun or moon is, on the side of the subject that has more room."""
    x = s.places[len(s.places) // 2] / s.width
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


def _stars(s: Stage, count: int, *, large: int = 0) -> None:
    rng = s.rng("stars")
    for width in (1.3, 2.0, 2.8):
        places = [(rng.uniform(0, s.width), s.horizon * rng.random() ** 1.3) for _ in range(count // 3)]
        s.brush.line("".join(f"M{x:.1f} {y:.1f}h.1" for x, y in places), s.tones["paper"], width)
    for _ in range(large):
        x, y, r = rng.uniform(20, s.width - 20), s.horizon * rng.uniform(0.04, 0.75), rng.uniform(5, 11)
        points = [(r if i % 2 == 0 else r * 0.2, i * math.pi / 4) for i in range(8)]
        star = " L".join(f"{x + d * math.sin(a):.1f},{y - d * math.cos(a):.1f}" for d, a in points)
        s.brush.plain(f"M{star} Z", s.tones["glow"])


def _evening(s: Stage) -> None:
    c, x, y = s.tones, _side(s), s.horizon - 24
    s.brush.plain(_disc(s, x, y, 92), c["glow"], 0.35)
    s.brush.shape(_disc(s, x, y, 64), mix(c["accent"], c["glow"], 0.35 if s.tones["accent"] != s.tones["low"] else 0.8))


def _midday(s: Stage) -> None:
    c, x, y = s.tones, _side(s), s.height * 0.17
    for i in range(16):
        a = i * math.pi / 8
        near, far = 46, 76 if i % 2 else 62
        ends = [(x + r * math.cos(a), y + r * math.sin(a)) for r in (near, far)]
        s.brush.line("M" + " L".join(f"{i:.1f},{j:.1f}" for i, j in ends), c["shine"], 3.6)
    s.brush.shape(circle(x, y, 37), c["shine"])


def _night(s: Stage) -> None:
    """Stars everywhere, and a river of them from corner to corner."""
    rng, river = s.rng("river"), ""
    for _ in range(420):
        t = rng.random()
        x, y = s.width * (t * 1.2 - 0.1 + rng.gauss(0, 0.07)), s.horizon * (1 - t + rng.gauss(0, 0.09))
        river += f"M{x:.1f} {y:.1f}h.1"
    s.brush.line(river, s.tones["paper"], 1.3, 0.75)
    _stars(s, 150, large=9)


def _full_moon(s: Stage) -> None:
    b, c, x, y = s.brush, s.tones, _side(s), s.height * 0.25
    _stars(s, 26)
    for r, alpha in ((128, 0.12), (102, 0.2)):
        b.plain(circle(x, y, r), c["glow"], alpha)
    b.shape(circle(x, y, 78), mix(c["glow"], c["page"], 0.5))
    for i, j, r in ((-26, -20, 15), (16, -34, 9), (28, 10, 18), (-14, 26, 11), (-44, 14, 7), (6, 50, 8)):
        b.plain(circle(x + i, y + j, r), c["far"], 0.28)


def _crescent(s: Stage) -> None:
    c, x, y, r = s.tones, _side(s), s.height * 0.19, 46
    _stars(s, 18)
    moon = f"M{x - 12},{y - r} C{x + r},{y - r} {x + r},{y + r} {x - 12},{y + r} "
    s.brush.shape(moon + f"C{x + 0.42 * r},{y + 0.6 * r} {x + 0.42 * r},{y - 0.6 * r} {x - 12},{y - r} Z", c["glow"])


def _rays(s: Stage) -> None:
    b, c, x, y = s.brush, s.tones, s.places[len(s.places) // 2], s.horizon - 4
    reach, path = 700, ""
    for i in range(0, 14, 2):
        a, d = (math.pi + (i - 0.5 + k) * math.pi / 13 for k in (0, 1))
        path += f"M{x:.1f},{y:.1f} L{x + reach * math.cos(a):.0f},{y + reach * math.sin(a):.0f} L{x + reach * math.cos(d):.0f},{y + reach * math.sin(d):.0f} Z "
    b.plain(path, mix(c["shine"], c["high"], 0.3), 0.85)
    b.shape(_disc(s, x, y, 84), mix(c["accent"], c["glow"], 0.3))


def _fog(s: Stage) -> None:
    s.brush.plain(circle(_side(s), s.height * 0.26, 40), s.tones["page"], 0.75)


def _northern_lights(s: Stage) -> None:
    """Curtains: a waving foot, with light that fades upwards."""
    c, rng, w, y = s.tones, s.rng("aurora"), s.width, s.horizon
    _stars(s, 60)
    colour = mix("#3fe0a0", c["glow"], 0.25)
    for band in range(3):
        phase, foot, tall = rng.uniform(0, 6), y * (0.38 + 0.2 * band), y * rng.uniform(0.26, 0.36)
        xs = [-90 + (w + 180) * i / 40 for i in range(41)]
        line = [(x, foot + 30 * math.sin(x / 58 + phase) + 11 * math.sin(x / 21 + 2 * phase)) for x in xs]
        for step in range(7):
            share = (1 - step / 7) ** 1.6
            top = [(x, z - share * tall * (1 + 0.35 * math.sin(x / 26 + phase))) for x, z in reversed(line)]
            s.brush.plain("M" + " L".join(f"{x:.0f},{z:.1f}" for x, z in line + top) + " Z", colour, 0.12)


def _cloud(x: float, y: float, size: float, up: int = 1) -> str:
    points = (
        (-60, 0),
        (-60, -17, -38, -20, -34, -17),
        (-32, -38, -2, -42, 6, -24),
        (16, -34, 36, -28, 36, -12),
        (48, -16, 62, -10, 62, 0),
    )
    text = f"M{x + points[0][0] * size:.1f},{y:.1f} "
    for p in points[1:]:
        text += (
            "C"
            + " ".join(f"{x + i * size:.1f},{y + j * size * up:.1f}" for i, j in zip(p[::2], p[1::2], strict=True))
            + " "
        )
    return text + "Z"


def _storm(s: Stage) -> None:
    b, c, rng, w, h = s.brush, s.tones, s.rng("storm"), s.width, s.height
    x, y, long = _side(s), h * 0.16, min(1.15, s.horizon / 290)
    bolt = (
        (6, 0),
        (-24, 74),
        (-4, 70),
        (-34, 150),
        (-16, 144),
        (-44, 218),
        (18, 124),
        (0, 128),
        (28, 58),
        (10, 62),
        (30, 0),
    )
    b.plain("M" + " L".join(f"{x + i * 1.1:.1f},{y + j * long:.1f}" for i, j in bolt) + " Z", c["glow"])
    for level, share in ((0.2, 0.3), (0.12, 0.55), (0.05, 0.8)):
        colour = mix(c["low"], c["ink"], share)
        for i in range(6):
            at = (i / 5 + rng.uniform(-0.08, 0.08)) * w
            b.shape(_cloud(at, h * level, rng.uniform(1.0, 1.6), -1), colour)
        b.plain(rect(-90, -90, w + 180, h * level + 91), colour)


def _clouds(s: Stage) -> None:
    rng, w = s.rng("clouds"), s.width
    for i, (x, y, size) in enumerate(
        ((0.2, 0.13, 1.15), (0.82, 0.22, 1.35), (0.1, 0.36, 0.85), (0.62, 0.08, 0.6), (0.9, 0.44, 0.8))
    ):
        place = (x + rng.uniform(-0.07, 0.07)) * w
        at = s.horizon * (y * 1.35 + rng.uniform(-0.03, 0.03))
        s.brush.plain(_cloud(place + 5, at + 5, size), s.tones["high"] if i % 2 else s.tones["far"], 0.5)
        s.brush.shape(_cloud(place, at, size), mix(s.tones["paper"], "#ffffff", 0.5))


def _rings(s: Stage) -> None:
    c, x, y = s.tones, _side(s), s.height * 0.3
    for i, r in enumerate((330, 285, 240, 198, 158, 120, 84)):
        s.brush.shape(
            _disc(s, x, y, r),
            (mix(c["high"], c["glow"], 0.25 + 0.1 * i), mix(c["high"], c["accent"], 0.2 + 0.06 * i))[i % 2],
        )
    s.brush.shape(circle(x, y, 48), c["glow"])


def _eclipse(s: Stage) -> None:
    b, c, x, y = s.brush, s.tones, _side(s), s.height * 0.26
    _stars(s, 40)
    for i in range(28):
        a, r = i * math.pi / 14, (100, 78, 88, 74)[i % 4]
        tip, left, right = (
            (x + d * math.cos(a + e), y + d * math.sin(a + e)) for d, e in ((r, 0), (52, -0.09), (52, 0.09))
        )
        b.plain("M" + " L".join(f"{i:.1f},{j:.1f}" for i, j in (tip, left, right)) + " Z", c["glow"], 0.85)
    b.plain(circle(x, y, 60), c["glow"])
    b.shape(circle(x, y, 53), mix(c["ink"], "#000000", 0.35))


def beam(s: Stage) -> None:
    """Draw the beam of light, before the subject that it falls on."""
    if s.light != "a beam of light from above":
        return
    b, c, x, r = s.brush, s.tones, s.places[len(s.places) // 2], s.subject.half * s.size
    start = s.width * (0.1 if x > s.width * 0.5 else 0.9)
    for spread, alpha in ((1.7, 0.3), (1.2, 0.5)):
        path = f"M{start - 12:.0f},-95 L{start + 12:.0f},-95 L{x + spread * r:.0f},{s.base + 6:.0f} "
        b.plain(
            path
            + f"C{x + spread * r * 0.6:.0f},{s.base + 20:.0f} {x - spread * r * 0.6:.0f},{s.base + 20:.0f} {x - spread * r:.0f},{s.base + 6:.0f} Z",
            c["glow"],
            alpha,
        )


_LIGHTS = {
    "low evening sun": _evening,
    "bright midday sun": _midday,
    "a night full of stars": _night,
    "a large full moon": _full_moon,
    "a thin crescent moon": _crescent,
    "rays of the rising sun": _rays,
    "thick morning fog": _fog,
    "green northern lights": _northern_lights,
    "dark storm with lightning": _storm,
    "slanting rain": lambda s: [
        s.brush.plain(_cloud(s.width * x, s.horizon * y, k), s.tones["near"], 0.45)
        for x, y, k in ((0.2, 0.14, 1.5), (0.75, 0.1, 1.9))
    ],
    "softly falling snow": lambda s: None,
    "drifting white clouds": _clouds,
    "rings of light around the sun": _rings,
    "an eclipsed sun": _eclipse,
    "a beam of light from above": lambda s: None,
}


def weather(s: Stage) -> None:
    """Draw fog, rain or snow before everything."""
    b, c, rng, w, h = s.brush, s.tones, s.rng("weather"), s.width, s.height
    if s.mood == "fog":
        for i in range(5):
            y, x = s.horizon - 40 + i * (s.depth + 40) / 5, rng.uniform(-0.3, 0.5) * w
            long, tall = w * rng.uniform(0.8, 1.3), rng.uniform(10, 20)
            b.plain(
                f"M{x:.0f},{y:.0f} C{x + long * 0.2:.0f},{y - tall:.0f} {x + long * 0.8:.0f},{y - tall:.0f} {x + long:.0f},{y:.0f} C{x + long * 0.8:.0f},{y + tall:.0f} {x + long * 0.2:.0f},{y + tall:.0f} {x:.0f},{y:.0f} Z",
                c["low"],
                0.62,
            )
    elif s.mood == "rain":
        for width, alpha, count in ((1.1, 0.5, 130), (1.9, 0.75, 60)):
            path = ""
            for _ in range(count):
                x, y, long = rng.uniform(-20, w + 60), rng.uniform(-40, h), rng.uniform(16, 36) * width
                path += f"M{x:.0f},{y:.0f} l{-long * 0.36:.1f},{long:.1f} "
            drop = max((c["paper"], c["near"]), key=lambda one: difference(one, c["high"]))
            b.line(path, mix(drop, c["high"], 0.15), width, alpha)
    elif s.mood == "snow":
        for size, count in ((1.5, 130), (2.7, 70), (4.4, 24)):
            b.plain(
                "".join(
                    circle(rng.uniform(0, w), rng.uniform(0, h), size * rng.uniform(0.8, 1.1)) for _ in range(count)
                ),
                mix(c["page"], "#ffffff", 0.6),
            )
