"""From the tokens of a poster to its picture as SVG."""

from __future__ import annotations

from random import Random

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.rendering.posters.brush import BLEED, Brush, rect, trace
from edpbrl_gym.rendering.posters.colours import mix, tones
from edpbrl_gym.rendering.posters.compositions import COMPOSITIONS, leaves, size_of, wall, window
from edpbrl_gym.rendering.posters.grounds import foot, land
from edpbrl_gym.rendering.posters.lights import beam, sky, weather
from edpbrl_gym.rendering.posters.ornaments import ORNAMENTS
from edpbrl_gym.rendering.posters.shapes import draw_subject, subject
from edpbrl_gym.rendering.posters.stage import Stage
from edpbrl_gym.rendering.posters.textures import MANNERS, overlay
from edpbrl_gym.rendering.posters.words import tokens_of

__all__ = ["HEIGHT", "WIDTH", "poster_svg"]

WIDTH, HEIGHT = 512, 640
_AREA = 200_000.0  # square units of a page, whatever its form
_COVER = 92.0  # half the width of the line that covers what is drawn beyond a picture, which is quicker than clipping


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
    ornament, form = ORNAMENTS[chosen["ornament"]], COMPOSITIONS[chosen["composition"]].form
    c = tones(chosen["palette"], chosen["light"])
    prefix = f"p{derive_seed(seed, 'posters', 'names', text):x}-"
    page = Brush(MANNERS[chosen["texture"]], c, _rng(seed, "brush"), prefix)
    left, top, right, bottom = ornament.inset
    if form in ("grid", "round", "arch", "strip", "panels"):
        top = max(top, ornament.apart)
    w, h = page_w - left - right, page_h - top - bottom
    picture = page.beside()
    _picture(picture, chosen, w, h, seed)
    page.group(f"translate({left} {top})", picture.parts)
    t = _COVER / 2
    if left + top + right + bottom:
        page.add(
            f'<rect x="{left - t}" y="{top - t}" width="{w + 2 * t:.2f}" height="{h + 2 * t:.2f}" fill="none" '
            f'rx="{ornament.corner + t if ornament.corner else 0}" stroke="{c["page"]}" stroke-width="{2 * t}"/>'
        )
    c["top"] = c["page"] if top else wall(form, c)  # behind what is written there
    rng = _rng(seed, "page")
    ornament.draw(page, page_w, page_h, subject(chosen["subject"]).title, rng)
    overlay(page, page_w, page_h, rng, page=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {page_w:.2f} {page_h:.2f}" preserveAspectRatio="none">{"".join(page.parts)}</svg>'
    )


def _rng(seed: int, part: str) -> Random:
    return Random(derive_seed(seed, "posters", part))


def _picture(b: Brush, chosen: dict[str, str], w: float, h: float, seed: int) -> None:
    """Draw the picture inside the ornament, through the composition's windows."""
    form = COMPOSITIONS[chosen["composition"]].form
    own, path = b.beside(), window(form, w, h)
    if form == "grid":
        gap = 9.0
        for i in range(4):
            cell = Brush(b.manner, _turned(b.tones, i), b.rng, b.prefix)
            _landscape(cell, chosen, w, h, seed + i)
            size = f'width="{w:.1f}" height="{h:.1f}"'  # patterns are drawn in half the time of clipped groups
            own.add(
                f'<pattern id="{b.prefix}cell{i}" {size} patternUnits="userSpaceOnUse">{"".join(cell.parts)}</pattern>'
            )
            move = f"translate({i % 2 * (w + gap) / 2:.1f} {i // 2 * (h + gap) / 2:.1f})"
            shown = f'<rect {size} fill="url(#{b.prefix}cell{i})"/>'
            own.group(f"{move} scale({(w - gap) / 2 / w:.4f} {(h - gap) / 2 / h:.4f})", [shown])
        own.plain(rect(w / 2 - gap / 2, 0, gap, h) + rect(0, h / 2 - gap / 2, w, gap), b.tones["page"])
    else:
        _landscape(own, chosen, w, h, seed)
    b.group(f"rotate(-13 {w / 2:.1f} {h / 2:.1f})" if form == "tilt" else "", own.parts)
    overlay(b, w, h, _rng(seed, "print"), page=False)
    if path:
        c, thick = b.tones, 4 if form in ("arch", "round") else 1.5
        b.plain(rect(-99, -99, w + 198, h + 198) + path, wall(form, c), 1, ' fill-rule="evenodd"')
        b.line(path, c["accent"] if thick > 2 else c["line"], thick)


def _turned(c: dict[str, str], turn: int) -> dict[str, str]:
    """The tones of one of four pictures: the same colours with other parts."""
    if turn == 0:
        return c
    high, low, accent = (("accent", "glow", "near"), ("near", "mid", "glow"), ("glow", "paper", "mid"))[turn - 1]
    new = {"high": c[high], "low": mix(c[high], c[low], 0.45), "accent": c[accent], "far": mix(c[high], c["mid"], 0.4)}
    return c | new


def _landscape(b: Brush, chosen: dict[str, str], w: float, h: float, seed: int) -> None:
    """Draw sky, land, subject and weather, from back to front."""
    which, how = subject(chosen["subject"]), COMPOSITIONS[chosen["composition"]]
    size, y, view = size_of(how, which.scale, which.half, w, h), h * how.horizon, 1.0
    base = {"air": h * how.air + 50 * size, "ridge": y + 2 * (how.base > 0)}.get(which.stands, y + (h - y) * how.base)
    view = {"strip": 0.3, "round": 0.75, "arch": 0.6}.get(how.form, 1.0)
    floor, places = (y if how.form == "mirror" else h + BLEED), tuple(w * x for x in how.places)
    s = Stage(b, w, h, y, places, base, size, which, chosen["light"], seed, view, floor)
    behind = sky(s)
    land(s, "far")
    if how.form == "mirror":
        _subjects(s, behind)
        _mirror(s)
    elif which.stands == "ridge":
        _subjects(s, behind)
        land(s, "near")
        beam(s)
    else:
        land(s, "near")
        beam(s)
        on_land = how.horizon < 0.5 and which.stands != "air"
        _subjects(s, mix(b.tones["mid"], b.tones["near"], 0.5) if on_land else behind)
        foot(s)
    if how.form == "leaves":
        leaves(b, w, h, s.rng("leaves"))
    weather(s)


def _subjects(s: Stage, behind: str) -> None:
    for x in s.places:
        draw_subject(s.brush, s.subject, x, s.base, s.size, behind)


def _mirror(s: Stage) -> None:
    """Draw below the horizon all that is above, darker and broken by ripples."""
    b, c, w, y = s.brush, s.tones, s.width, s.horizon
    beam(s)
    water = rect(-BLEED, y, w + 2 * BLEED, s.depth + BLEED)
    b.parts = [f'<g id="{b.prefix}above">{"".join(b.parts)}</g>']
    b.plain(water, c["near"])
    b.add(f'<use href="#{b.prefix}above" transform="matrix(1 0 0 -1 0 {2 * y:.1f})"/>')
    b.plain(water, mix(c["mid"], c["near"], 0.4), 0.42)
    b.plain(rect(-BLEED, y - 1.2, w + 2 * BLEED, 2.4), c["paper"], 0.8)
    rng, z, step = s.rng("ripples"), y + 5, 4.0
    while z < s.height:
        for _ in range(3):
            x, long = rng.uniform(-30, w), rng.uniform(24, 110)
            colour = rng.choice((c["paper"], c["near"]))
            b.line(trace(((x, z), (x + long, z)), ""), colour, 0.6 + step * 0.12, 0.5)
        z += step
        step *= 1.16
