"""The land, water or room around a subject: what is far, drawn before it, and what is near."""

from __future__ import annotations

from random import Random

from edpbrl_gym.rendering.posters.brush import circle, rect, ridge
from edpbrl_gym.rendering.posters.colours import mix
from edpbrl_gym.rendering.posters.stage import Stage

__all__ = ["far", "foot", "near"]

_WATER = ("coast", "sea", "beach", "strait", "marsh", "city")
_INSIDE = ("room", "sill")


def far(s: Stage) -> None:
    """Draw what is at the horizon."""
    b, c, ground, rng, w, h, y = s.brush, s.tones, s.subject.ground, s.rng("far"), s.width, s.floor, s.horizon
    unit = min(1.0, 0.45 + s.size / 4)
    if ground in ("coast", "sea", "beach", "strait"):
        b.shape(ridge(rng, w, y - 12 * unit, 11 * unit, 5, y + 2), c["far"])
    elif ground in ("alps", "valley"):
        b.shape(ridge(rng, w, y - 48 * unit, 34 * unit, 8, h, sharp=ground == "alps"), c["far"])
        b.shape(ridge(rng, w, y - 20 * unit, 18 * unit, 6, h), mix(c["far"], c["mid"], 0.5))
    elif ground in ("forest", "marsh"):
        b.shape(ridge(rng, w, y - 40 * unit, 20 * unit, 4, h), c["far"])
        b.shape(_trees(rng, w, y - 6 * unit, 30 * unit, h), mix(c["far"], c["mid"], 0.55))
    elif ground == "desert":
        b.shape(_mesas(rng, w, y, 62 * unit, h), c["far"])
        b.shape(_mesas(rng, w, y, 34 * unit, h), mix(c["far"], c["mid"], 0.45))
    elif ground == "city":
        b.shape(_blocks(rng, w, y, 76 * unit, h), mix(c["far"], c["low"], 0.35))
    elif ground == "blossom":
        x, rise = w * (0.2 if s.places[0] >= w / 2 else 0.8), 118 * unit
        cone = f"M{x - 200},{y} C{x - 90},{y - 30} {x - 50},{y - rise} {x - 22},{y - rise} L{x + 22},{y - rise} "
        b.shape(
            cone + f"C{x + 50},{y - rise} {x + 90},{y - 30} {x + 200},{y} L{x + 200},{h} L{x - 200},{h} Z", c["far"]
        )
        cap = f"M{x - 44},{y - 0.72 * rise} C{x - 34},{y - 0.86 * rise} {x - 30},{y - rise} {x - 22},{y - rise} "
        cap += f"L{x + 22},{y - rise} C{x + 30},{y - rise} {x + 34},{y - 0.86 * rise} {x + 44},{y - 0.72 * rise} "
        cap += (
            f"L{x + 26},{y - 0.8 * rise} L{x + 12},{y - 0.7 * rise} L{x},{y - 0.8 * rise} L{x - 14},{y - 0.68 * rise} "
        )
        b.shape(cap + f"L{x - 26},{y - 0.79 * rise} Z", c["paper"])
        b.shape(ridge(rng, w, y - 8, 10, 5, h), mix(c["far"], c["mid"], 0.5))
    elif ground == "moon":
        x, r = w * rng.choice((0.2, 0.8)), 52 * unit
        b.shape(circle(x, s.height * 0.2, r), c["mid"])
        b.shape(
            f"M{x - 1.75 * r},{s.height * 0.2 + 0.5 * r} C{x - r},{s.height * 0.2 + 0.75 * r} {x + r},{s.height * 0.2 + 0.1 * r} {x + 1.75 * r},{s.height * 0.2 - 0.5 * r} C{x + 1.2 * r},{s.height * 0.2 + 0.25 * r} {x - r},{s.height * 0.2 + r} {x - 1.75 * r},{s.height * 0.2 + 0.5 * r} Z",
            c["glow"],
        )
    elif ground in ("plain", "tulips"):
        b.shape(ridge(rng, w, y - 16 * unit, 14 * unit, 5, h), c["far"])
    elif ground == "sill":
        b.shape(ridge(rng, w, y - 60 * unit, 26 * unit, 4, h), c["far"])
        b.shape(ridge(rng, w, y - 26 * unit, 18 * unit, 5, h), c["mid"])


def near(s: Stage) -> None:
    """Draw from the horizon to the lower edge."""
    b, c, ground, rng, w, h, y = s.brush, s.tones, s.subject.ground, s.rng("near"), s.width, s.height, s.horizon
    bleed, depth = 90.0, s.depth
    if ground in _WATER:
        b.shape(rect(-bleed, y, w + 2 * bleed, h - y + bleed), c["mid"])
        b.plain(rect(-bleed, y, w + 2 * bleed, depth * 0.16), mix(c["mid"], c["low"], 0.5), 0.8)
        b.plain(rect(-bleed, y + depth * 0.62, w + 2 * bleed, depth + bleed), c["near"], 0.55)
        _waves(s, rng)
    if ground == "coast":
        _hill(s, c["near"], 0.34)
    elif ground == "beach":
        sand = mix(c["glow"], c["accent"], 0.25) if not s.dark else mix(c["near"], c["glow"], 0.28)
        b.shape(ridge(rng, w, s.base - 10, 9, 3, h + bleed), mix(sand, c["paper"], 0.5))
        b.shape(ridge(rng, w, s.base + 2, 8, 3, h + bleed), sand)
    elif ground in ("alps", "forest"):
        b.shape(
            _trees(rng, w, y + depth * 0.1, 26, h) if ground == "alps" else ridge(rng, w, y + depth * 0.14, 10, 4, h),
            c["mid"],
        )
        if s.subject.stands == "ridge":
            b.shape(_trees(rng, w, y + depth * 0.42, 44, h + bleed), c["near"])
        else:
            _hill(s, c["near"], 0.2)
    elif ground == "desert":
        b.shape(ridge(rng, w, y + depth * 0.1, 12, 3, h), c["mid"])
        b.shape(ridge(rng, w, s.base - 2, 10, 3, h + bleed), c["near"])
    elif ground in ("valley", "plain", "blossom"):
        b.shape(ridge(rng, w, y + depth * 0.04, 6 if ground == "plain" else 16, 4, h), c["mid"])
        b.shape(
            ridge(rng, w, y + depth * 0.3, 3 if ground == "plain" else 14, 3, h + bleed), mix(c["mid"], c["near"], 0.5)
        )
        if ground == "blossom":
            _hill(s, c["near"], 0.16)
            _blossoms(s, rng)
        else:
            b.shape(ridge(rng, w, y + depth * (0.42 if ground == "plain" else 0.66), 3, 4, h + bleed), c["near"])
    elif ground == "tulips":
        _rows(s)
    elif ground == "moon":
        b.shape(
            f"M{-bleed},{h + bleed} L{-bleed},{y + depth * 0.5} C{w * 0.2},{y - depth * 0.1} {w * 0.8},{y - depth * 0.1} {w + bleed},{y + depth * 0.5} L{w + bleed},{h + bleed} Z",
            c["near"],
        )
        for _ in range(7):
            x, z = rng.uniform(0, w), y + depth * rng.uniform(0.35, 0.95)
            r = 5 + 16 * (z - y) / depth * rng.uniform(0.6, 1.2)
            b.shape(circle(x, z, r, r * 0.3), mix(c["near"], c["ink"], 0.45))
    elif ground in _INSIDE:
        top = s.base - 0.1 * s.size * 100 if ground == "room" else s.base - 3
        b.shape(rect(-bleed, top, w + 2 * bleed, h - top + bleed), c["near"] if ground == "sill" else c["mid"])
        b.plain(rect(-bleed, top, w + 2 * bleed, 4), mix(c["mid"], c["paper"], 0.4))
        if ground == "sill":
            b.plain(rect(-bleed, s.base + 16, w + 2 * bleed, 3), c["ink"], 0.5)
        for place in s.places:
            b.plain(circle(place + 10 * s.size, s.base + 2 * s.size, 44 * s.size, 5 * s.size), c["ink"], 0.28)


def foot(s: Stage) -> None:
    """Draw what is before a subject's foot."""
    b, c, rng = s.brush, s.tones, s.rng("foot")
    if s.subject.stands == "water":
        for place in s.places:
            for row in range(4):
                y = s.base + (2 + 6.5 * row) * s.size
                half = s.subject.half * s.size * (0.95 - 0.2 * row)
                x = place + half * rng.uniform(-0.15, 0.15)
                b.line(f"M{x - half:.1f},{y:.1f} L{x + half:.1f},{y:.1f}", c["paper"], 1.5 * s.size, 0.75 - 0.15 * row)
    elif s.subject.stands == "land" and s.subject.ground in ("alps", "forest", "valley", "desert"):
        for place in s.places:
            for _ in range(9):
                x, y = place + s.size * rng.uniform(-60, 60), s.base + s.size * rng.uniform(1, 9)
                tuft = f"M{x:.1f},{y:.1f} l{-1.6 * s.size:.1f},{-5 * s.size:.1f} l{1.6 * s.size:.1f},2 l{1.8 * s.size:.1f},{-6 * s.size:.1f} l0,8 Z"
                b.plain(tuft, mix(c["near"], c["ink"], 0.5))


def _hill(s: Stage, colour: str, side: float) -> None:
    """The hill on which the subjects stand, falling to one side or both."""
    h, low = s.height + 90, s.base + s.depth * side
    if len(s.places) > 1:
        s.brush.shape(ridge(s.rng("hill"), s.width, s.base, 2, 4, h), colour)
        return
    x, r = s.places[0], s.subject.half * s.size
    turn = s.rng("hill").choice((-1, 1))
    left, right = (low, s.base + 4) if turn > 0 else (s.base + 4, low)
    path = f"M-90,{h:.0f} L-90,{left:.1f} C{x - 2.2 * r:.1f},{left:.1f} {x - 1.6 * r:.1f},{s.base - 1:.1f} {x - 0.8 * r:.1f},{s.base - 2:.1f} "
    path += f"L{x + 0.8 * r:.1f},{s.base - 2:.1f} C{x + 1.6 * r:.1f},{s.base - 1:.1f} {x + 2.2 * r:.1f},{right:.1f} {s.width + 90:.0f},{right:.1f} L{s.width + 90:.0f},{h:.0f} Z"
    s.brush.shape(path, colour)


def _waves(s: Stage, rng: Random) -> None:
    light, dark = mix(s.tones["low"], s.tones["paper"], 0.4), s.tones["near"]
    y, step = s.horizon + 6, 5.0
    while y < s.height:
        near_share = (y - s.horizon) / max(s.depth, 1)
        for _ in range(2 + int(3 * (1 - near_share))):
            x, length = rng.uniform(-20, s.width), rng.uniform(14, 46) * (0.6 + near_share)
            swell = 2.5 * near_share
            path = f"M{x:.1f},{y:.1f} c{length * 0.3:.1f},{-swell:.1f} {length * 0.6:.1f},{swell:.1f} {length:.1f},0"
            s.brush.line(path, light if rng.random() < 0.6 else dark, 0.8 + 1.3 * near_share, 0.55)
        y += step
        step *= 1.22


def _trees(rng: Random, width: float, y: float, tall: float, bottom: float) -> str:
    """A line of firs."""
    x, text = -90.0, f"M-90,{bottom:.0f} L-90,{y:.1f}"
    while x < width + 90:
        size = tall * rng.uniform(0.5, 1.0)
        half = size * 0.24
        text += f" L{x:.1f},{y:.1f} L{x + half:.1f},{y - size:.1f} L{x + 2 * half:.1f},{y + rng.uniform(-2, 2):.1f}"
        x += half * rng.uniform(1.5, 2.6)
    return text + f" L{x:.1f},{bottom:.0f} Z"


def _mesas(rng: Random, width: float, y: float, tall: float, bottom: float) -> str:
    x, text = -90.0, f"M-90,{bottom:.0f} L-90,{y:.1f}"
    while x < width + 90:
        top, length, slope = y - tall * rng.uniform(0.5, 1.0), rng.uniform(40, 110), rng.uniform(8, 20)
        text += f" L{x:.1f},{y:.1f} L{x + slope:.1f},{y - (y - top) * 0.4:.1f} L{x + slope * 1.3:.1f},{top:.1f}"
        text += f" L{x + slope + length:.1f},{top:.1f} L{x + slope * 1.4 + length:.1f},{y - (y - top) * 0.4:.1f}"
        x += length + slope * 2.4
        text += f" L{x:.1f},{y:.1f}"
        x += rng.uniform(20, 90)
    return text + f" L{x:.1f},{bottom:.0f} Z"


def _blocks(rng: Random, width: float, y: float, tall: float, bottom: float) -> str:
    x, text = -90.0, f"M-90,{bottom:.0f}"
    while x < width + 90:
        top, length = y - tall * rng.uniform(0.3, 1.0), rng.uniform(14, 34)
        text += f" L{x:.1f},{top:.1f} L{x + length:.1f},{top:.1f}"
        x += length
    return text + f" L{x:.1f},{bottom:.0f} Z"


def _rows(s: Stage) -> None:
    """Fields of flowers in rows that meet at the horizon."""
    b, c, h = s.brush, s.tones, s.height + 90
    b.shape(rect(-90, s.horizon, s.width + 180, h - s.horizon), c["mid"])
    x0, colours = s.places[0], (c["accent"], c["near"], c["glow"], c["mid"], c["paper"], c["near"])
    for i in range(-9, 9):
        left, right = x0 + i * 62, x0 + (i + 1) * 62
        path = f"M{x0 + i * 9},{s.horizon:.1f} L{x0 + (i + 1) * 9},{s.horizon:.1f} L{right * 1.0:.1f},{h:.0f} L{left:.1f},{h:.0f} Z"
        b.shape(path, colours[i % 6])
    b.shape(rect(-90, s.horizon, s.width + 180, 4), c["near"])
    if s.base > s.horizon + 10:
        b.shape(ridge(s.rng("rows"), s.width, s.base + 1, 2, 3, s.base + 16), c["near"])


def _blossoms(s: Stage, rng: Random) -> None:
    """Branches in flower from an upper corner."""
    b, c, w = s.brush, s.tones, s.width
    left = s.places[0] > w / 2
    colours = (mix(c["accent"], c["paper"], 0.55), c["accent"], mix(c["accent"], c["paper"], 0.8))
    k = min(1.0, 0.5 + s.size / 4)
    for y0, reach, drop in ((20, 150, 40), (64, 110, 62)):
        ends = [(t * reach * k, (y0 + drop * t * t) * k) for t in (0, 0.35, 0.7, 1.0)]
        xs = [(x if left else w - x, y) for x, y in ends]
        b.line(
            f"M{-40 if left else w + 40},{y0 * k - 12:.1f} " + " ".join(f"L{x:.1f},{y:.1f}" for x, y in xs),
            c["ink"],
            3.2 * k,
        )
        for x, y in xs[1:]:
            for _ in range(6):
                b.plain(
                    circle(x + rng.gauss(0, 12) * k, y + rng.gauss(0, 9) * k, rng.uniform(4, 8) * k),
                    rng.choice(colours),
                )
