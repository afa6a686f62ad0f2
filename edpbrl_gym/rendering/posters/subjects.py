"""What posters show, read from ``subjects.txt``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from edpbrl_gym.rendering.posters.brush import Brush, circle, rect
from edpbrl_gym.rendering.posters.colours import difference, mix

__all__ = ["SUBJECTS", "Subject", "draw_subject", "subject"]


class Subject(NamedTuple):
    """A silhouette about 100 units tall, whose foot is (0, 0).

    Attributes:
        ground: The landscape around it.
        stands: "land", "water", "table", "air", or "ridge" (behind the nearer hills).
        scale: Its size beside the others.
        half: Half the width that should be seen.
        title: One word for it, in capitals.
        shapes: Tone, path, and width of the line (0: filled), from back to front.
    """

    ground: str
    stands: str
    scale: float
    half: float
    title: str
    shapes: tuple[tuple[str, str, float], ...]


def _shape(line: str) -> list[tuple[str, str, float]]:
    tone, kind, numbers = line.split(" ", 2)
    width = 0.0
    if kind in ("line", "curve"):
        first, _, numbers = numbers.partition(" ")
        width = float(first)
    if kind in ("path", "curve"):
        path = numbers
    elif kind in ("poly", "line"):
        path = "M" + " L".join(numbers.split()) + (" Z" if kind == "poly" else "")
    else:
        path = (rect if kind == "rect" else circle)(*map(float, numbers.split()))
    return [(tone, path, width)]


@functools.cache
def _subjects() -> dict[str, Subject]:
    found: dict[str, tuple[list[str], list[tuple[str, str, float]]]] = {}
    shapes: list[tuple[str, str, float]] = []
    for line in (Path(__file__).resolve().parent / "subjects.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name, _, head = line[1:].partition("] ")
            shapes = []
            found[name] = (head.split(), shapes)
        elif line and not line.startswith("#"):
            shapes += _shape(line)
    return {
        name: Subject(ground, stands, float(scale), float(half), title, tuple(shapes))
        for name, ((ground, stands, scale, half, title), shapes) in found.items()
    }


SUBJECTS: tuple[str, ...] = tuple(_subjects())
"""Names of the subjects."""


def subject(name: str) -> Subject:
    """The subject of a name."""
    return _subjects()[name]


def _tones(c: dict[str, str], behind: str) -> dict[str, str]:
    """Colours of a subject's tones that stand out from what is behind it."""
    ink = c["ink"]
    if difference(ink, behind) < 24:
        ink = mix(behind, "#000000", 0.62) if difference(behind, "#000000") > 38 else mix(behind, c["paper"], 0.55)
    accent = c["accent"]
    if difference(accent, behind) < 30:
        accent = max((c["glow"], c["near"], c["mid"], c["page"], c["high"]), key=lambda one: difference(one, behind))
    paper = c["paper"]
    if difference(paper, behind) < 14:
        paper = mix(c["page"], "#ffffff", 0.6)
    shade = mix(ink, c["ink"], 0.5)
    return {
        "K": ink,
        "D": mix(c["near"], ink, 0.25),
        "M": c["mid"],
        "A": accent,
        "S": mix(accent, shade, 0.26),
        "P": paper,
        "Q": mix(paper, mix(c["mid"], ink, 0.2), 0.3),
        "G": c["glow"],
    }


def draw_subject(brush: Brush, which: Subject, x: float, y: float, size: float, behind: str) -> None:
    """Draw a subject.

    Args:
        brush: Draws it, in its tones.
        which: The subject.
        x: Of its foot, on the page.
        y: Of its foot, on the page.
        size: Units of the page in one of its own.
        behind: Colour of what is behind most of it.
    """
    colours = _tones(brush.tones, behind)
    own = Brush(brush.manner, brush.tones, brush._rng)
    own.scale = size
    for tone, path, width in which.shapes:
        twice = [""] if not tone.startswith("~") else ["", "mirrored"]
        for side in twice:
            before = len(own.parts)
            if width:
                own.line(path, colours[tone[-1]], width)
            else:
                own.shape(path, colours[tone[-1]])
            if side:
                own.parts[before:] = [f'<g transform="scale(-1 1)">{"".join(own.parts[before:])}</g>']
    brush.group(f"translate({x:.1f} {y:.1f}) scale({size:.3f})", own.parts)
