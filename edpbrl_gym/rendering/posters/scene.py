"""From the tokens of a poster to its picture as SVG."""

from __future__ import annotations

from random import Random

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.rendering.posters.brush import Brush, rect
from edpbrl_gym.rendering.posters.colours import LIGHTS, mix, palette, tones
from edpbrl_gym.rendering.posters.compositions import COMPOSITIONS, Composition, leaves, wall, window
from edpbrl_gym.rendering.posters.grounds import far, foot, near
from edpbrl_gym.rendering.posters.lights import beam, sky, weather
from edpbrl_gym.rendering.posters.ornaments import ORNAMENTS
from edpbrl_gym.rendering.posters.stage import Stage
from edpbrl_gym.rendering.posters.subjects import draw_subject, subject
from edpbrl_gym.rendering.posters.textures import MANNERS, overlay
from edpbrl_gym.rendering.posters.words import tokens_of

__all__ = ["HEIGHT", "WIDTH", "poster_svg"]

WIDTH, HEIGHT = 512, 640
_AREA = 200_000.0  # square units of a page, whatever its form


def poster_svg(text: str, seed: int = 0, *, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Draw the poster of a text as SVG: one element, without scripts, fonts or anything from outside.

    Args:
        text: Any text; tokens of the vocabulary "posters" in it, in any order, say what is drawn (``tokens_of``).
        seed: Of the details, such as the places of stars, trees and clouds.
        width: In pixels.
        height: In pixels.
    """
    chosen = tokens_of(text, seed)
    page_w = (_AREA * width / height) ** 0.5
    page_h = _AREA / page_w
    manner, ornament = MANNERS[chosen["texture"]], ORNAMENTS[chosen["ornament"]]
    colours = palette(chosen["palette"])
    c = tones(colours, LIGHTS[chosen["light"]]) | {"line": colours["ink"]}
    page = Brush(manner, c, Random(derive_seed(seed, "posters", "brush")))
    page.plain(rect(0, 0, page_w, page_h), c["page"])
    left, top, right, bottom = ornament.inset
    form = COMPOSITIONS[chosen["composition"]].form
    if form in ("grid", "round", "arch", "strip", "panels"):
        top = max(top, ornament.apart)
    w, h = page_w - left - right, page_h - top - bottom
    picture = Brush(manner, c, page._rng)
    _picture(picture, chosen, w, h, seed)
    page.group(f"translate({left} {top})", picture.parts)
    if left + top + right + bottom:  # covering is quicker than clipping
        hole = f"M{left},{top} h{w:.1f} v{h:.1f} h{-w:.1f} Z"
        if ornament.corner:
            r, x, y = ornament.corner, left + w, top + h
            hole = f"M{left + r},{top} L{x - r:.1f},{top} Q{x:.1f},{top} {x:.1f},{top + r} L{x:.1f},{y - r:.1f} Q{x:.1f},{y:.1f} {x - r:.1f},{y:.1f} L{left + r},{y:.1f} Q{left},{y:.1f} {left},{y - r:.1f} L{left},{top + r} Q{left},{top} {left + r},{top} Z"
        page.plain(rect(-99, -99, page_w + 198, page_h + 198) + hole, c["page"], 1, ' fill-rule="evenodd"')
    rng = Random(derive_seed(seed, "posters", "page"))
    c["top"] = c["page"] if top else wall(form, c)  # behind what is written there
    ornament.draw(page, page_w, page_h, subject(chosen["subject"]).title, rng)
    overlay(page, page_w, page_h, rng, page=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {page_w:.2f} {page_h:.2f}" preserveAspectRatio="none">{"".join(page.parts)}</svg>'
    )


def _picture(b: Brush, chosen: dict[str, str], w: float, h: float, seed: int) -> None:
    """Draw the picture inside the ornament, through the composition's windows."""
    how = COMPOSITIONS[chosen["composition"]]
    if how.form == "grid":
        gap = 9.0
        for i in range(4):
            own = Brush(b.manner, _turned(b.tones, i), b._rng)
            _landscape(own, chosen, how, w, h, seed + i)
            scale_x, scale_y = (w - gap) / 2 / w, (h - gap) / 2 / h
            b.add(f'<clipPath id="cell{i}"><rect width="{w:.1f}" height="{h:.1f}"/></clipPath>')
            x, y = (i % 2) * (w + gap) / 2, (i // 2) * (h + gap) / 2
            cell = [f'<g clip-path="url(#cell{i})">{"".join(own.parts)}</g>']
            b.group(f"translate({x:.1f} {y:.1f}) scale({scale_x:.4f} {scale_y:.4f})", cell)
        overlay(b, w, h, Random(derive_seed(seed, "posters", "print")), page=False)
        return
    own = Brush(b.manner, b.tones, b._rng)
    _landscape(own, chosen, how, w, h, seed)
    path = window(how.form, w, h)
    if how.form == "tilt":
        b.group(f"rotate(-13 {w / 2:.1f} {h / 2:.1f})", own.parts)
    else:
        b.parts += own.parts
    overlay(b, w, h, Random(derive_seed(seed, "posters", "print")), page=False)
    if path:
        c, thick = b.tones, 4 if how.form in ("arch", "round") else 1.5
        b.plain(rect(-99, -99, w + 198, h + 198) + path, wall(how.form, c), 1, ' fill-rule="evenodd"')
        b.plain(path, "none", 1, f' stroke="{c["accent"] if thick > 2 else c["line"]}" stroke-width="{thick}"')


def _turned(c: dict[str, str], turn: int) -> dict[str, str]:
    """The tones of one of four pictures: the same colours with other parts."""
    if turn == 0:
        return c
    sky_ = (c["accent"], c["near"], c["glow"])[turn - 1]
    low = (c["glow"], c["mid"], c["paper"])[turn - 1]
    accent = (c["near"], c["glow"], c["mid"])[turn - 1]
    return c | {"high": sky_, "low": mix(sky_, low, 0.45), "accent": accent, "far": mix(sky_, c["mid"], 0.4)}


def _landscape(b: Brush, chosen: dict[str, str], how: Composition, w: float, h: float, seed: int) -> None:
    which, light = subject(chosen["subject"]), chosen["light"]
    unit = min(w / 400, h / 500)
    size = 2.05 * unit * which.scale * how.size
    if len(how.places) > 1:  # so that they do not overlap
        size = min(size, w * 0.155 / which.half)
    elif how.form == "strip":
        size = min(size * 1.3, w * 0.19 / min(which.half, 62))
    elif how.form in ("round", "arch"):
        size = min(size, w * 0.34 / which.half)
    else:
        size = min(size, w * 0.46 / which.half * max(1.0, how.size))
    horizon, view = h * how.horizon, {"strip": 0.3, "round": 0.75, "arch": 0.6}.get(how.form, 1.0)
    if which.stands == "air":
        base = h * how.air + 50 * size
    elif which.stands == "ridge":
        base = horizon + 2 * (how.base > 0)
    else:
        base = horizon + (h - horizon) * how.base
    stage = Stage(
        b, w, h, horizon, tuple(w * x for x in how.places), base, size, which, light, LIGHTS[light], seed, view
    )
    stage.floor = horizon if how.form == "mirror" else h + 90
    behind = sky(stage)
    far(stage)
    if which.stands == "ridge" and how.form != "mirror":
        _subjects(stage, behind)
    if how.form == "mirror":
        _mirror(stage, behind)
    else:
        near(stage)
        beam(stage)
        if which.stands != "ridge":
            if how.horizon < 0.5 and which.stands != "air":
                behind = mix(b.tones["mid"], b.tones["near"], 0.5)
            _subjects(stage, behind)
            foot(stage)
    if how.form == "leaves":
        leaves(b, w, h, stage.rng("leaves"))
    weather(stage)


def _subjects(s: Stage, behind: str) -> None:
    for x in s.places:
        draw_subject(s.brush, s.subject, x, s.base, s.size, behind)


def _mirror(s: Stage, behind: str) -> None:
    """Draw the subject on the horizon, and below it all that is above, darker and broken by ripples."""
    b, c, w, h, y = s.brush, s.tones, s.width, s.height, s.horizon
    _subjects(s, behind)
    b.parts = [f'<g id="above-water">{"".join(b.parts)}</g>']
    b.plain(rect(-90, y, w + 180, h - y + 90), c["near"])
    b.add(f'<use href="#above-water" transform="matrix(1 0 0 -1 0 {2 * y:.1f})"/>')
    b.plain(rect(-90, y, w + 180, h - y + 90), mix(c["mid"], c["near"], 0.4), 0.42)
    b.plain(rect(-90, y - 1.2, w + 180, 2.4), c["paper"], 0.8)
    rng, z, step = s.rng("ripples"), y + 5, 4.0
    while z < h:
        for _ in range(3):
            x, long = rng.uniform(-30, w), rng.uniform(24, 110)
            b.line(
                f"M{x:.1f},{z:.1f} L{x + long:.1f},{z:.1f}", rng.choice((c["paper"], c["near"])), 0.6 + step * 0.12, 0.5
            )
        z += step
        step *= 1.16
