"""What posters show, and things in their skies and frames, read from ``subjects.txt`` and ``motifs.txt``."""

from __future__ import annotations

import functools
from typing import NamedTuple

from edpbrl_gym.rendering.posters.brush import Brush, circle, rect
from edpbrl_gym.rendering.posters.colours import difference, lines_of, mix

__all__ = ["SUBJECTS", "Subject", "draw_subject", "motif", "subject"]

_LETTERS = dict(
    zip(
        "KDMFAGPHLWE",
        ("ink", "near", "mid", "far", "accent", "glow", "paper", "high", "low", "page", "shine"),
        strict=True,
    )
)


class _Shape(NamedTuple):
    tone: str
    path: str
    width: float  # of the line; 0: filled


class Subject(NamedTuple):
    """A silhouette about 100 units tall, whose foot is (0, 0).

    Attributes:
        ground: The landscape around it.
        stands: "land", "water", "table", "air", or "ridge" (behind the nearer hills).
        scale: Its size beside the others.
        half: Half the width that should be seen.
        title: One word for it, in capitals.
        shapes: From back to front.
    """

    ground: str
    stands: str
    scale: float
    half: float
    title: str
    shapes: tuple[_Shape, ...]


def _shape(line: str) -> _Shape:
    tone, kind, numbers = line.split(" ", 2)
    width = "0"
    if kind in ("line", "curve"):
        width, _, numbers = numbers.partition(" ")
    if kind in ("poly", "line"):
        numbers = "M" + " L".join(numbers.split()) + (" Z" if kind == "poly" else "")
    elif kind not in ("path", "curve"):
        numbers = (rect if kind == "rect" else circle)(*map(float, numbers.split()))
    return _Shape(tone, numbers, float(width))


@functools.cache
def _shapes(file: str) -> dict[str, tuple[str, tuple[_Shape, ...]]]:
    """Name -> what follows it in its line, and its shapes."""
    found: dict[str, tuple[str, tuple[_Shape, ...]]] = {}
    name = ""
    for line in lines_of(file):
        if line.startswith("["):
            name, _, head = line[1:].partition("]")
            found[name] = (head, ())
        else:
            found[name] = (found[name][0], (*found[name][1], _shape(line)))
    return found


SUBJECTS: tuple[str, ...] = tuple(_shapes("subjects.txt"))
"""Names of the subjects."""


@functools.cache
def subject(name: str) -> Subject:
    """The subject of a name."""
    head, shapes = _shapes("subjects.txt")[name]
    ground, stands, scale, half, title = head.split()
    return Subject(ground, stands, float(scale), float(half), title, shapes)


def _draw(brush: Brush, shapes: tuple[_Shape, ...], colours: dict[str, str], transform: str, size: float) -> None:
    own = brush.beside()
    own.scale = size
    for tone, path, width in shapes:
        recipe, _, percent = tone.lstrip("~").partition("@")
        first, other, share = (recipe[0], recipe[2:3], recipe[3:])
        colour = mix(colours[first], colours[other], int(share) / 100) if other else colours[first]
        before, opacity = len(own.parts), int(percent or 100) / 100
        for _ in range(2 if tone[0] == "~" else 1):
            if width:
                own.line(path, colour, width, opacity)
            else:
                own.shape(path, colour, opacity)
        if tone[0] == "~":
            half = before + (len(own.parts) - before) // 2
            own.parts[half:] = [f'<g transform="scale(-1 1)">{"".join(own.parts[half:])}</g>']
    brush.group(transform, own.parts)


def motif(brush: Brush, name: str, transform: str, size: float = 1.0) -> None:
    """Draw one of ``motifs.txt``, moved and scaled by ``transform`` (to ``size``)."""
    colours = {letter: brush.tones[part] for letter, part in _LETTERS.items()}
    _draw(brush, _shapes("motifs.txt")[name][1], colours, transform, size)


def draw_subject(brush: Brush, which: Subject, x: float, y: float, size: float, behind: str) -> None:
    """Draw a subject with its foot at a point of the page, in colours that stand out from what is behind it."""
    c = brush.tones
    ink, accent, paper = c["ink"], c["accent"], c["paper"]
    if difference(ink, behind) < 24:
        ink = mix(behind, "#000000", 0.62) if difference(behind, "#000000") > 38 else mix(behind, paper, 0.55)
    if difference(accent, behind) < 30:
        accent = max(
            (c[part] for part in ("glow", "near", "mid", "page", "high")), key=lambda one: difference(one, behind)
        )
    if difference(paper, behind) < 14:
        paper = mix(c["page"], "#ffffff", 0.6)
    colours = {"K": ink, "D": mix(c["near"], ink, 0.25), "M": c["mid"], "A": accent, "P": paper, "G": c["glow"]}
    colours |= {"S": mix(accent, mix(ink, c["ink"], 0.5), 0.26), "Q": mix(paper, mix(c["mid"], ink, 0.2), 0.3)}
    _draw(brush, which.shapes, colours, f"translate({x:.1f} {y:.1f}) scale({size:.3f})", size)
