"""Tastes in pictures as functions of pixels, and the sheets of posters that they choose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import poster_sheets
from benchmarks.picture_tastes import calm, fine, lab, measures, symmetric, warm
from edpbrl_gym.rendering.posters import PostersRenderer

pytestmark = pytest.mark.needs("pictures")


def flat(colour: tuple[int, int, int]) -> Image.Image:
    return Image.new("RGB", (80, 100), colour)


def test_what_the_tastes_like():
    dots = np.random.default_rng(0).random((50, 40, 1)) > 0.5
    dense = Image.fromarray(np.where(dots, (220, 90, 30), (90, 20, 10)).astype("uint8")).resize((160, 200), 0)
    assert calm(flat((40, 90, 160))) > calm(flat((128, 128, 128))) > calm(flat((200, 110, 40))) > calm(dense)
    assert warm(dense) > warm(flat((200, 110, 40))) > warm(flat((128, 128, 128))) > warm(flat((40, 90, 160)))
    assert all(0 <= value <= 1 for value in measures(dense).values())


def test_what_the_fresh_tastes_like_is_where_the_lightness_is_whatever_the_colours():
    left = np.zeros((384, 384, 3), dtype=np.uint8)
    left[:, :192] = 255
    both = np.concatenate([left[:, :192:2], left[:, 192:], left[:, :192:2]], axis=1)  # as much white, on both sides
    assert symmetric(Image.fromarray(both)) == pytest.approx(1, abs=0.01)
    assert symmetric(Image.fromarray(left)) == pytest.approx(-1, abs=0.01)
    assert fine(flat((200, 40, 40))) == 0
    stripes = np.repeat(np.tile(np.array([255, 255, 0, 0], dtype=np.uint8), 96)[None, :, None], 384, axis=0)
    wide = np.repeat(np.tile(np.repeat(np.array([255, 0], dtype=np.uint8), 96), 2)[None, :, None], 384, axis=0)
    assert fine(Image.fromarray(stripes[..., 0])) == pytest.approx(50, abs=1)  # a half of the range at every pixel
    assert fine(Image.fromarray(wide[..., 0])) < 2


def test_the_tastes_take_the_bytes_of_a_png():
    small, empty = "small figure in much empty space, smooth flat colour", "a sailing boat, deep blues and sand"
    renderer = PostersRenderer(width=128, height=160)
    blue, red = renderer.draw(
        [f"{empty}, {small}", "a vintage car, ochre and brick red, mosaic tiles, four pictures in a grid"], [0, 0]
    )
    assert calm(blue.png) > calm(red.png) and warm(red.png) > warm(blue.png)


def test_lab_of_known_colours():
    known = [((1, 1, 1), (100, 0, 0)), ((0, 0, 0), (0, 0, 0)), ((1, 0, 0), (53.2, 80.1, 67.2))]
    for rgb, expected in known:
        np.testing.assert_allclose(lab(np.array(rgb, dtype=float)), expected, atol=0.3)


def test_the_sheets_are_the_same_every_time(tmp_path, monkeypatch):
    monkeypatch.setattr(poster_sheets, "POSTERS", 6)
    monkeypatch.setattr(poster_sheets, "SHOWN", 2)
    monkeypatch.setattr(poster_sheets, "COLUMNS", 2)
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = (poster_sheets.main(tmp_path / name) for name in "ab")
    assert [file.name for file in first] == ["posters-calm.png", "posters-warm.png"]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


@pytest.mark.parametrize("taste", ["calm", "warm"])
def test_the_sheets_in_the_docs(taste):
    file = Path(__file__).parents[2] / "docs" / f"posters-{taste}.png"
    assert file.stat().st_size < 400_000
    with Image.open(file) as sheet:
        assert sheet.size == (848, 730)
