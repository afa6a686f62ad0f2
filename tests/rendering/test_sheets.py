"""Contact sheets: what is drawn where, what is never shown, and files written whole."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from edpbrl_gym.rendering.sheets import Tile, contact_sheet, in_rows

MARGIN, GAP = 24, 20
LONG = "a lighthouse on a cliff, first snow, in the manner of a woodcut, seen from far below, golden hour light " * 2


def plain(colour: str, size: tuple[int, int] = (64, 64)) -> Image.Image:
    return Image.new("RGB", size, colour)


def pixels(path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def test_pictures_stand_in_their_rows_and_columns(tmp_path):
    rows = [[Tile(plain("red")), Tile(plain("lime"))], [None, Tile(plain("blue"))]]
    (path,) = contact_sheet(rows, tmp_path / "new" / "sheet.png", tile=64)
    seen = pixels(path)
    assert seen.shape == (2 * MARGIN + 2 * 64 + GAP, 2 * MARGIN + 2 * 64 + GAP, 3)
    top, left = MARGIN, MARGIN
    assert (seen[top : top + 64, left : left + 64] == (255, 0, 0)).all()
    assert (seen[top : top + 64, left + 84 : left + 148] == (0, 255, 0)).all()
    assert (seen[top + 84 : top + 148, left : left + 64] == 255).all()
    assert (seen[top + 84 : top + 148, left + 84 : left + 148] == (0, 0, 255)).all()


@pytest.mark.parametrize("caption", [LONG, "x" * 150, "\u00e9t\u00e9 " * 60, "short"])
def test_no_caption_leaves_its_column_or_reaches_the_next_row(caption, tmp_path):
    tile = Tile(plain("navy"), caption, ("RankScore 0.381", LONG))
    headers = ["Base", "ED-PBRL " * 20, "Random"]
    (path,) = contact_sheet([[tile] * 3] * 2, tmp_path / "s.png", columns=headers, labels=["one", LONG], tile=96)
    white = (pixels(path) == 255).all(axis=2)
    label = 96  # width of the labels
    for column in range(3):
        start = MARGIN + label + column * (96 + GAP) + 96
        assert white[:, start + 2 : start + GAP - 2].all(), f"something in the gap after column {column}"
    edge = MARGIN - 2  # a letter's edge may stand out of its box by a pixel
    assert white[:, :edge].all() and white[:, -edge:].all() and white[:edge].all() and white[-edge:].all()
    empty_rows = np.flatnonzero(white.all(axis=1))
    blocks = np.split(empty_rows, np.flatnonzero(np.diff(empty_rows) > 1) + 1)
    assert sum(len(block) >= GAP - 6 for block in blocks) >= 3  # the margins and the gap between the two rows


def test_a_flagged_picture_is_never_opened_and_a_missing_one_says_so(tmp_path):
    row = [Tile(tmp_path / "not there.png", "a prompt", flagged=True), Tile(None, note="not rendered")]
    (path,) = contact_sheet([row], tmp_path / "s.png", tile=128)
    seen = pixels(path)
    tile = seen[MARGIN : MARGIN + 128, MARGIN : MARGIN + 128]
    assert (np.ptp(tile, axis=2) == 0).all() and (tile < 100).any() and np.median(tile) == 205  # grey, with words
    other = seen[MARGIN : MARGIN + 128, MARGIN + 148 : MARGIN + 276]
    assert np.median(other) == 238 and (other < 100).any()


def test_pictures_keep_their_proportions(tmp_path):
    (path,) = contact_sheet([[Tile(plain("red", (200, 50))), Tile(plain("red", (50, 200)))]], tmp_path / "s", tile=100)
    red = (pixels(path) == (255, 0, 0)).all(axis=2)
    wide, tall = red[:, : MARGIN + 100], red[:, MARGIN + 120 :]
    assert (wide.any(axis=1).sum(), wide.any(axis=0).sum()) == (25, 100)
    assert (tall.any(axis=1).sum(), tall.any(axis=0).sum()) == (100, 25)


def test_many_rows_go_on_to_further_pages_and_every_picture_is_on_one(tmp_path):
    colours = [(20 * i + 5, 255 - 20 * i, 77) for i in range(11)]
    rows = in_rows([Tile(Image.new("RGB", (8, 8), colour)) for colour in colours], 2)
    assert [len(row) for row in rows] == [2] * 5 + [1]
    paths = contact_sheet(rows, tmp_path / "sheet.png", tile=50, title="Eleven", max_height=300)
    assert [path.name for path in paths] == ["sheet.png", "sheet-2.png", "sheet-3.png"][: len(paths)] and len(paths) > 1
    seen = np.concatenate([pixels(path).reshape(-1, 3) for path in paths])
    assert all(pixels(path).shape[0] <= 300 for path in paths)
    assert all((seen == colour).all(axis=1).sum() == 2500 for colour in colours)


def test_the_same_rows_give_the_same_bytes_from_files_and_from_images(tmp_path):
    plain("teal").save(tmp_path / "one.png")
    sheets = [
        contact_sheet([[Tile(image, "teal", ("GTScore 0.1",))]], tmp_path / f"{number}.png")[0].read_bytes()
        for number, image in enumerate((plain("teal"), tmp_path / "one.png", str(tmp_path / "one.png")))
    ]
    assert sheets[0] == sheets[1] == sheets[2]


def test_what_cannot_be_drawn_is_said(tmp_path):
    tile = Tile(plain("red"))
    (tmp_path / "text.png").write_text("hello")
    for rows, options, error, said in (
        ([[], []], {}, ValueError, "at least one picture"),
        ([[tile]], {"columns": ["a", "b"]}, ValueError, "each of the 1 columns, got 2"),
        ([[tile]], {"labels": ["a", "b"]}, ValueError, "each of the 1 rows, got 2"),
        ([[Tile(tmp_path / "none.png")]], {}, FileNotFoundError, "none.png"),
        ([[Tile(tmp_path / "text.png")]], {}, ValueError, r"an image file at .*text\.png"),
    ):
        with pytest.raises(error, match=said):
            contact_sheet(rows, tmp_path / "s.png", **options)
    assert not (tmp_path / "s.png").exists() and not list(tmp_path.glob(".*.part"))
