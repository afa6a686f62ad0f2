"""How a subject is placed, and the windows through which it is seen."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from edpbrl_gym.rendering.posters.brush import Brush, circle, rect
from edpbrl_gym.rendering.posters.colours import mix

__all__ = ["COMPOSITIONS", "Composition", "leaves", "size_of", "wall", "window"]


class Composition(NamedTuple):
    """A way to place a subject.

    Attributes:
        horizon: Its y, as a share of the height.
        size: Of the subject; 1 is as large as it looks right alone.
        places: The x of each subject, as shares of the width.
        base: The y of its foot, as a share of what is below the horizon.
        air: The y of the middle of a subject that flies, as a share of the height.
        form: What else is done: "round", "arch", "strip", "panels", "grid", "mirror", "tilt", "leaves".
    """

    horizon: float
    size: float
    places: tuple[float, ...] = (0.5,)
    base: float = 0.42
    air: float = 0.4
    form: str = ""


COMPOSITIONS: dict[str, Composition] = {
    "placed in the middle": Composition(0.68, 0.98),
    "small figure in much empty space": Composition(0.84, 0.34, (0.62,), 0.3, 0.5),
    "seen up close": Composition(0.8, 1.75, (0.47,), 1.0, 0.5),
    "low horizon under a big sky": Composition(0.88, 0.62, (0.34,), 0.3, 0.66),
    "high horizon over a wide foreground": Composition(0.3, 0.7, (0.58,), 0.68, 0.42),
    "inside a round window": Composition(0.62, 0.74, base=0.3, air=0.44, form="round"),
    "tilted on a diagonal": Composition(0.66, 0.86, form="tilt"),
    "mirrored in still water": Composition(0.55, 0.72, base=0.0, air=0.3, form="mirror"),
    "split into three panels": Composition(0.68, 1.0, form="panels"),
    "seen through an arch": Composition(0.7, 0.78, base=0.3, air=0.45, form="arch"),
    "three in a row": Composition(0.66, 0.5, (0.19, 0.5, 0.81)),
    "four pictures in a grid": Composition(0.68, 0.92, form="grid"),
    "in a tall narrow strip": Composition(0.72, 0.73, base=0.3, form="strip"),
    "framed by dark leaves": Composition(0.68, 0.84, base=0.34, form="leaves"),
}
"""Composition -> how it places a subject."""


def size_of(how: Composition, scale: float, half: float, w: float, h: float) -> float:
    """Units of the page in one of a subject's: by its own scale, and so that half its width has room."""
    room = 0.46 * max(1.0, how.size)
    if len(how.places) > 1:
        room = 0.155
    elif how.form in ("strip", "round", "arch"):
        room = 0.19 if how.form == "strip" else 0.34
    return min(
        2.05 * min(w / 400, h / 500) * scale * how.size, w * room / (min(half, 62) if how.form == "strip" else half)
    )


def window(form: str, w: float, h: float) -> str:
    """The path of the window through which a picture is seen; "" where it fills the page."""
    if form == "round":
        return circle(w / 2, h * 0.47, min(w * 0.43, h * 0.4))
    if form == "arch":
        r = min(w * 0.34, h * 0.3)
        x, y, top = w / 2 - r, h * 0.42, h * 0.42 - r
        arch = f"C{x:.1f},{y - 0.55 * r:.1f} {x + 0.45 * r:.1f},{top:.1f} {x + r:.1f},{top:.1f} "
        arch += f"C{x + 1.55 * r:.1f},{top:.1f} {x + 2 * r:.1f},{y - 0.55 * r:.1f} {x + 2 * r:.1f},{y:.1f}"
        return f"M{x:.1f},{h * 0.9:.1f} L{x:.1f},{y:.1f} {arch} L{x + 2 * r:.1f},{h * 0.9:.1f} Z"
    if form == "strip":
        return rect(w * 0.3, h * 0.06, w * 0.4, h * 0.88)
    if form == "panels":
        side, gap, tops = w * 0.272, w * 0.03, (0.06, 0.025, 0.06)
        left = (w - 3 * side - 2 * gap) / 2
        panels = [rect(left + i * (side + gap), h * top, side, h * (1 - 2 * top)) for i, top in enumerate(tops)]
        return " ".join(panels)
    return ""


def wall(form: str, c: dict[str, str]) -> str:
    """The colour at the upper edge: around the window of a form, or the sky's."""
    if form == "arch":
        return mix(c["near"], c["ink"], 0.15)
    return c["page"] if form in ("round", "strip", "panels") else c["high"]


def leaves(b: Brush, w: float, h: float, rng: Random) -> None:
    """Draw dark leaves in the four corners."""
    dark = mix(b.tones["ink"], "#000000", 0.2)
    vein = mix(dark, b.tones["mid"], 0.3)
    for corner, (x, y) in enumerate(((0, 0), (w, 0), (w, h), (0, h))):
        count, reach = (11, 0.34) if corner % 2 == 0 else (8, 0.27)
        for i in range(count):
            angle = 90 * corner - 8 + 106 * i / (count - 1) + rng.uniform(-6, 6)
            r = w * reach * rng.uniform(0.72, 1.12)
            leaf = " ".join(
                f"C{a * r:.1f},{-k * r:.1f} {d * r:.1f},{-k * r:.1f} {e * r:.1f},0"
                for a, d, e, k in ((0.25, 0.7, 1.0, 0.15), (0.7, 0.25, 0.0, -0.15))
            )
            colour = dark if i % 3 else mix(dark, b.tones["near"], 0.4)
            parts = f'<path d="M0,0 {leaf} Z" fill="{colour}"/><path d="M0,0 L{0.9 * r:.1f},0" stroke="{vein}"/>'
            b.group(f"translate({x:.0f} {y:.0f}) rotate({angle:.1f})", [parts])
