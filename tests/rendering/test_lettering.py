"""Text in pictures: every character in a font that has it, or named; lines that fit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from edpbrl_gym.rendering.lettering import ELLIPSIS, letterings
from edpbrl_gym.rendering.sheets import Tile, contact_sheet

OWN, NOBODYS = "\U0010fffd", "\U0010fffc"  # for private use: no font of a machine has them


def drawn(text: str, size: int = 24) -> np.ndarray:
    """The ink of a line: a boolean image, cut to what is drawn."""
    image = Image.new("L", (600, 60), 255)
    (lettering,) = letterings([text], [size])
    lettering.draw(ImageDraw.Draw(image), (10, 10), *lettering.lines(text, 600), 0)
    ink = np.asarray(image) < 128
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@pytest.fixture
def own_font(tmp_path):
    """A real font with one character, a filled square, known to matplotlib as installed fonts are."""
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0)), pen.lineTo((100, 700)), pen.lineTo((800, 700)), pen.lineTo((800, 0)), pen.closePath()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "square"])
    builder.setupCharacterMap({ord(OWN): "square"})
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "square": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (900, 0), "square": (900, 100)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Square", "styleName": "Regular"})
    builder.setupOS2(), builder.setupPost()
    builder.save(tmp_path / "Square.ttf")
    known = len(font_manager.fontManager.ttflist)
    font_manager.fontManager.addfont(tmp_path / "Square.ttf")
    yield tmp_path / "Square.ttf"
    del font_manager.fontManager.ttflist[known:]


def test_plain_text_is_drawn_as_pillow_draws_it():
    image, other = Image.new("RGB", (200, 40), "white"), Image.new("RGB", (200, 40), "white")
    (lettering,) = letterings(["gallery, jugs"], [15])
    lettering.draw(ImageDraw.Draw(image), (3, 4), "gallery, jugs", "black")
    ImageDraw.Draw(other).text((3, 4), "gallery, jugs", font=ImageFont.load_default(15), fill="black")
    assert np.array_equal(np.asarray(image), np.asarray(other))


@pytest.mark.parametrize("character", "äßñłŐλЩ€…")
def test_european_letters_need_no_font_of_the_machine(character):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ink = drawn(character)
    assert not np.array_equal(ink, drawn("a")) and not np.array_equal(ink, drawn("?"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not np.array_equal(ink, drawn(NOBODYS))  # the box of a missing character


def test_a_character_is_drawn_in_the_font_that_has_it(own_font):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ink = drawn(f"ü{OWN}")
    square = ink[:, -15:]
    assert square[-12:].all(), "the square of the other font"
    assert np.array_equal(drawn(f"{OWN}\u0301")[-12:, :10], square[-12:, :10])  # a mark goes along with its letter
    (lettering,) = letterings([f"a{OWN}"], [20])
    assert lettering.length(f"a{OWN}") == pytest.approx(lettering.length("a") + 18)


def test_characters_without_a_font_are_named_once():
    with pytest.warns(UserWarning, match=r"found none on this machine for .* \(U\+10FFFA\).*Install one") as caught:
        letterings(["a \U0010fffa", "ä"], [15, 20])
        letterings(["\U0010fffa"], [15])
    assert len(caught) == 1


@settings(max_examples=50)
@given(st.text(max_size=80), st.integers(20, 200), st.integers(1, 4))
def test_lines_fit_and_keep_every_character(text, width, most):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (lettering,) = letterings([text], [12])
    lines = lettering.lines(text, width)
    assert all(lettering.length(line) <= width or len(line) <= 2 for line in lines)
    again = [word for line in lines for word in line.split()]
    assert "".join(again) == "".join(lettering.lines(text, 1e9)).replace(" ", "")
    cut = lettering.lines(text, width, most)
    assert cut == lines if len(lines) <= most else len(cut) == most and cut[:-1] == lines[: most - 1]
    if len(lines) > most:
        assert cut[-1].endswith(ELLIPSIS) and lettering.length(cut[-1]) <= width


def test_controls_and_directions_are_not_drawn():
    assert np.array_equal(drawn("a\x1bb\u202ec\u200bd"), drawn("a bcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn("half a pair: \ud83d")


def test_long_captions_end_with_an_ellipsis(tmp_path):
    """A row stays of a height that a page can hold, whatever its texts are."""
    long = "a lighthouse on a cliff, " * 2000
    tile = Tile(Image.new("RGB", (64, 64), "red"), long, (long,), note=long)
    rows = [[tile, Tile(None, note=long)]]
    (path,) = contact_sheet(rows, tmp_path / "s.png", columns=[long] * 2, labels=[long], title=long, tile=96)
    assert Image.open(path).height < 5000
