"""Palettes of nine colours with fixed parts, and what a light makes of them."""

from __future__ import annotations

import functools
import re
from pathlib import Path

__all__ = ["LIGHTS", "PALETTES", "blend", "difference", "lines_of", "mix", "tones"]

_PARTS = ("high", "low", "far", "mid", "near", "ink", "accent", "glow", "paper")
_FOLDER = Path(__file__).resolve().parent


def lines_of(file: str) -> list[str]:
    """The lines of a file of this folder, without empty ones and remarks."""
    lines = (_FOLDER / file).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _table(file: str) -> dict[str, list[str]]:
    rows = (line.split(" | ") for line in lines_of(file))
    return {name: entries.split() for name, entries in rows}


_PALETTES, _LIGHTS = _table("palettes.txt"), _table("lights.txt")
PALETTES: tuple[str, ...] = tuple(_PALETTES)
"""Names of the palettes."""
LIGHTS: tuple[str, ...] = tuple(_LIGHTS)
"""Names of the lights."""


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


def blend(colours: dict[str, str], recipe: str) -> str:
    """The colour of a part, or of a mix such as "far>mid:50": half of it the other."""
    first, other, percent = (re.split("[>:]", recipe) + ["", ""])[:3]
    return mix(colours[first], colours[other], int(percent) / 100) if other else colours[first]


def tones(palette: str, light: str) -> dict[str, str]:
    """The colours of a palette in a light, by their parts.

    Parts: high and low sky, far, mid, near, ink, accent, glow (sun and lamps) and paper; and as no light changes them,
    "page" (of the paper) and "line"; "shine" is seen in the sky, and "sand" lies on beaches.
    """
    c = dict(zip(_PARTS, ("#" + colour for colour in _PALETTES[palette]), strict=True))
    c |= {"page": c["paper"], "line": c["ink"]}
    for recipe in _LIGHTS[light]:
        part = re.split("[=>]", recipe)[0]
        c[part] = blend(c, recipe.partition("=")[2] or recipe)
    if light == "drifting white clouds" and difference(c["high"], c["page"]) < 26:
        c["high"] = mix(c["high"], c["mid"], 0.35)
    c["shine"] = c["glow"] if difference(c["glow"], c["high"]) > 20 else c["accent"]
    c["sand"] = mix(mix(c["glow"], c["accent"], 0.25), c["near"], 0.7 if is_dark(c) else 0.0)
    return c


def is_dark(colours: dict[str, str]) -> bool:
    """Whether the sky is dark."""
    return _lab(colours["high"])[0] < 38
