"""Posters: every token is read and seen, any text gives a picture, and nothing in it comes from outside."""

from __future__ import annotations

import io
import itertools
import re
from random import Random
from xml.etree import ElementTree

import numpy as np
import pytest
import resvg_py
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.picture_tastes import lab
from edpbrl_gym.rendering import load_renderer
from edpbrl_gym.rendering.posters import STEPS, PostersRenderer, poster_svg, tokens_of
from edpbrl_gym.rendering.posters.ornaments import letters
from edpbrl_gym.rendering.posters.shapes import SUBJECTS, subject
from edpbrl_gym.vocabulary import load_vocabulary

TOKENS = [(step, token) for step, tokens in STEPS.items() for token in tokens]
LARGEST_OF = 20  # one part in so many of a picture is looked at for differences
LEAST = 7.0  # CIE Lab; the closest pairs that were looked at ("smooth flat colour", "grainy riso print") have about 9


def prompt(rng: Random, **fixed: str) -> dict[str, str]:
    return {step: rng.choice(tokens) for step, tokens in STEPS.items()} | fixed


def pixels(text: str, seed: int = 0) -> np.ndarray:
    """A poster of 240 pixels height in CIE Lab."""
    svg = poster_svg(text, seed, width=192, height=240)
    png = bytes(resvg_py.svg_to_bytes(svg_string=svg, skip_system_fonts=True))
    return lab(np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=float) / 255)


def largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    """Mean difference of colour in the squares of 6 x 6 pixels that differ most, a twentieth of all."""
    distance = np.linalg.norm(one - other, axis=-1)
    squares = np.sort(distance.reshape(40, 6, 32, 6).mean(axis=(1, 3)).ravel())
    return float(squares[-(len(squares) // LARGEST_OF) :].mean())


def test_the_vocabulary_is_what_is_drawn():
    vocabulary = load_vocabulary("posters")
    assert dict(zip(vocabulary.names, vocabulary.tokens, strict=True)) == STEPS
    assert 80 <= sum(vocabulary.sizes) <= 120 and vocabulary.horizon == 6


@pytest.mark.parametrize(("step", "token"), TOKENS)
def test_every_token_is_read_alone_and_among_others_in_any_order(step, token):
    rng = Random(token)
    assert tokens_of(token.upper(), 3)[step] == token
    assert tokens_of(f"Please draw {token}!", 3)[step] == token
    chosen = prompt(rng, **{step: token})
    shuffled = rng.sample(list(chosen.values()), 6)
    assert tokens_of(", ".join(shuffled), 0) == tokens_of(" ".join(shuffled).title(), 5) == chosen


def test_what_a_text_leaves_open_depends_on_its_other_words_and_the_seed_only():
    open_steps = ("palette", "composition", "light", "texture")
    alone, longer = tokens_of("a stag", 4), tokens_of("a stag, a thin frame", 4)
    assert all(alone[step] == longer[step] for step in open_steps)
    others = [tokens_of(text, seed) for text, seed in (("a stag", 5), ("a stag on a windy day", 4), ("my stag", 4))]
    assert all(one["subject"] == "a stag" and one != alone for one in others)
    assert tokens_of("A  STAG.", 4) == alone
    assert tokens_of("the old train and two cats", 0)["subject"] == "a steam train"
    assert {tokens_of("", seed)["subject"] for seed in range(60)} > set(SUBJECTS[:3])


def test_a_seed_moves_details_and_keeps_the_rest():
    text = ", ".join(prompt(Random(1), light="drifting white clouds", subject="a sailing boat").values())
    pictures = [poster_svg(text, seed) for seed in (0, 0, 1)]
    assert pictures[0] == pictures[1] != pictures[2]
    assert tokens_of(text, 0) == tokens_of(text, 1)
    renderer = PostersRenderer(width=96, height=120)
    first, second = renderer.draw([text, text], [7, 7]), renderer.draw([text], [7])
    assert first[0].png == first[1].png == second[0].png


def check_safe(svg: str) -> None:
    """Only shapes, and references inside of the picture to what is there."""
    root = ElementTree.fromstring(svg)
    names = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in root.iter()}
    assert names <= {"svg", "g", "path", "use", "defs", "rect", "radialGradient", "stop", "pattern"}
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for element in root.iter():
        for name, value in element.attrib.items():
            assert name in ("xmlns", "viewBox") or "//" not in value and not name.startswith("on")
            if name.endswith("href"):
                assert value[0] == "#" and value[1:] in ids
            for inside in re.findall(r"url\((.*?)\)", value):
                assert inside[0] == "#" and inside[1:] in ids
    assert "NaN" not in svg and "nan" not in svg and "inf" not in svg


def test_posters_in_one_page_do_not_share_names():
    seen: set[str] = set()
    for text in ("mirrored in still water", "mirrored in still water!", "four pictures in a grid, grainy riso print"):
        for seed in (0, 1):
            svg = poster_svg(text, seed)
            ids = set(re.findall(r'id="([^"]+)"', svg))
            assert ids and not ids & seen
            seen |= ids


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60), st.integers(0, 2**63 - 1))
def test_any_text_is_drawn(text, seed):
    svg = poster_svg(text, seed)
    check_safe(svg)
    assert svg.startswith('<svg xmlns="http://www.w3.org/2000/svg" width="512" height="640"')
    assert len(svg) < 400_000


@pytest.mark.parametrize(("step", "token"), TOKENS)
def test_every_token_is_drawn_safely_in_any_shape_of_page(step, token):
    rng = Random(token)
    for width, height in ((512, 640), (900, 300), (200, 700)):
        check_safe(poster_svg(", ".join(prompt(rng, **{step: token}).values()), 1, width=width, height=height))


@pytest.mark.parametrize("step", STEPS)
def test_two_tokens_of_a_step_give_pictures_that_differ(step):
    rng = Random(f"pairs {step}")
    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(2):
        others = prompt(rng)
        pictures = {token: pixels(", ".join((others | {step: token}).values()), seed) for token in STEPS[step]}
        for pair in itertools.combinations(STEPS[step], 2):
            found.setdefault(pair, []).append(largest_difference(*(pictures[token] for token in pair)))
    closest = min(found, key=lambda pair: float(np.mean(found[pair])))
    assert np.mean(found[closest]) > LEAST, (closest, found[closest])


def test_titles_can_be_written():
    assert set("".join(subject(name).title for name in SUBJECTS)) <= set(letters())


def test_the_renderer_by_name(tmp_path):
    with load_renderer("posters", cache_folder=tmp_path, width=160, height=200) as renderer:
        images = renderer.render(["a lighthouse", "anything else", "a lighthouse"])
    assert [(image.width, image.height) for image in images] == [(160, 200)] * 3
    assert images[0].path == images[2].path != images[1].path and not images[0].flagged
    described = PostersRenderer().describe()
    assert (described["width"], described["height"]) == (512, 640) and described["version"] >= 1
    assert PostersRenderer().seeded and PostersRenderer().price is None and PostersRenderer().batch_size == 16


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"width": 0}, "Expected width"),
        ({"height": 5000}, "Expected height"),
        ({"width": 64, "height": 640}, "at most four times as long as wide, got 64 x 640"),
    ],
)
def test_sizes_that_are_refused(options, expected):
    with pytest.raises(ValueError, match=expected):
        PostersRenderer(**options)
