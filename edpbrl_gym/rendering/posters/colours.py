"""Palettes of nine colours with fixed parts, and what a light makes of them."""

from __future__ import annotations

import functools
from pathlib import Path

__all__ = ["LIGHTS", "PALETTES", "difference", "mix", "palette", "tones"]

_NAMES = ("high", "low", "far", "mid", "near", "ink", "accent", "glow", "paper")
_FOLDER = Path(__file__).resolve().parent

LIGHTS: dict[str, str] = {
    "low evening sun": "evening",
    "bright midday sun": "day",
    "a night full of stars": "night",
    "a large full moon": "night",
    "a thin crescent moon": "dusk",
    "rays of the rising sun": "dawn",
    "thick morning fog": "fog",
    "green northern lights": "night",
    "dark storm with lightning": "storm",
    "slanting rain": "rain",
    "softly falling snow": "snow",
    "drifting white clouds": "clouds",
    "rings of light around the sun": "evening",
    "an eclipsed sun": "eclipse",
    "a beam of light from above": "storm",
}
"""Light -> what it does to the colours of a palette."""


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@functools.lru_cache(4096)
def mix(first: str, second: str, share: float) -> str:
    """A colour between two, "#rrggbb"; ``share`` is that of the second."""
    pairs = zip(_rgb(first), _rgb(second), strict=True)
    return "#" + "".join(f"{round(one + (other - one) * share):02x}" for one, other in pairs)


@functools.lru_cache(4096)
def _lab(colour: str) -> tuple[float, float, float]:
    r, g, b = (((value / 255 + 0.055) / 1.055) ** 2.4 for value in _rgb(colour))
    x, y, z = (0.434 * r + 0.376 * g + 0.19 * b, 0.213 * r + 0.715 * g + 0.072 * b, 0.018 * r + 0.109 * g + 0.873 * b)
    x, y, z = (value ** (1 / 3) for value in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(first: str, second: str) -> float:
    """How different two colours look: their distance in CIE Lab, in which 100 is black against white."""
    return float(sum((one - other) ** 2 for one, other in zip(_lab(first), _lab(second), strict=True)) ** 0.5)


@functools.cache
def _palettes() -> dict[str, dict[str, str]]:
    found = {}
    for line in (_FOLDER / "palettes.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, colours = line.partition(" | ")
            found[name] = dict(zip(_NAMES, ("#" + colour for colour in colours.split()), strict=True))
    return found


PALETTES: tuple[str, ...] = tuple(_palettes())
"""Names of the palettes."""


def palette(name: str) -> dict[str, str]:
    """The colours of a palette by their parts: high and low sky, far, mid, near, ink, accent, glow, paper."""
    return dict(_palettes()[name])


def _towards(colours: dict[str, str], target: str, shares: dict[str, float]) -> None:
    for name, share in shares.items():
        colours[name] = mix(colours[name], target, share)


def tones(colours: dict[str, str], mood: str) -> dict[str, str]:
    """What a light makes of a palette: the same parts, "page" (stays as the paper is) and "shine" (seen in the sky).

    Only colours of the palette are mixed, so that every light keeps the palette's harmony.
    """
    c = dict(colours, page=colours["paper"])
    ink, paper = c["ink"], c["paper"]
    if mood in ("night", "eclipse"):
        c["high"], c["low"] = mix(ink, c["near"], 0.25), mix(c["near"], c["mid"], 0.55)
        _towards(c, ink, {"far": 0.52, "mid": 0.56, "near": 0.62, "accent": 0.12})
        if mood == "eclipse":
            c["low"] = mix(c["accent"], ink, 0.45)
        c["paper"] = mix(paper, c["low"], 0.16)
    elif mood == "dusk":
        c["high"], c["low"] = mix(c["near"], ink, 0.2), mix(c["glow"], c["accent"], 0.28)
        _towards(c, ink, {"far": 0.32, "mid": 0.4, "near": 0.5})
    elif mood == "storm":
        c["high"], c["low"] = mix(c["near"], ink, 0.6), mix(c["far"], c["near"], 0.45)
        _towards(c, ink, {"far": 0.35, "mid": 0.38, "near": 0.45})
        c["paper"] = mix(paper, c["low"], 0.12)
    elif mood == "evening":
        c["high"], c["low"] = mix(c["high"], c["accent"], 0.12), mix(c["low"], c["glow"], 0.7)
        _towards(c, c["accent"], {"far": 0.2, "mid": 0.1})
    elif mood == "dawn":
        c["low"] = mix(c["low"], c["glow"], 0.5)
    elif mood == "fog":
        veil = mix(c["low"], paper, 0.55)
        c["high"], c["low"] = mix(veil, c["high"], 0.18), veil
        _towards(c, veil, {"far": 0.72, "mid": 0.52, "near": 0.3, "ink": 0.16, "accent": 0.18})
    elif mood == "rain":
        c["high"], c["low"] = mix(c["mid"], c["high"], 0.42), mix(c["far"], c["low"], 0.4)
        _towards(c, c["near"], {"far": 0.15, "mid": 0.2})
    elif mood == "snow":
        c["high"], c["low"] = mix(c["high"], c["far"], 0.3), mix(c["low"], c["far"], 0.35)
        _towards(c, paper, {"far": 0.35, "mid": 0.68, "near": 0.86})
    elif mood == "clouds":
        deep = c["mid"] if difference(c["high"], paper) < 26 else c["high"]
        c["high"], c["low"] = mix(c["high"], deep, 0.5), mix(c["low"], deep, 0.3)
    else:
        c["high"], c["low"] = mix(c["high"], paper, 0.1), mix(c["low"], paper, 0.35)
    c["shine"] = c["glow"] if difference(c["glow"], c["high"]) > 26 else c["accent"]
    return c
