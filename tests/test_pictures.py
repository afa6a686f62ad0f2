"""Pictures from outside are opened in three formats and up to a size only, wherever one is opened."""

from __future__ import annotations

import ast
import io
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import edpbrl_gym
from edpbrl_gym._pictures import FORMATS, MAX_PIXELS, converted, open_picture
from edpbrl_gym.oracles.judge.messages import _png
from edpbrl_gym.rendering.cache import ImageCache, NewImage
from edpbrl_gym.rendering.sheets import Tile, contact_sheet


def encoded(kind: str, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.linear_gradient("L").resize((7, 5)).convert(mode).save(stream, format=kind)
    return stream.getvalue()


def huge_png() -> bytes:
    """A file of some hundred bytes whose header says 8,000 x 8,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 8_000, 8_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("as_bytes", [True, False])
def test_the_formats_open(kind, as_bytes, tmp_path):
    data = encoded(kind)
    file = tmp_path / f"picture.{kind}"
    file.write_bytes(data)
    with open_picture(data if as_bytes else file) as picture:
        assert picture.format == kind and picture.convert("RGB").size == (7, 5)


def every_way(file: Path):
    """All places that open a picture which someone gave."""
    yield lambda: converted(file, "RGB")
    yield lambda: contact_sheet([[Tile(file)]], file.parent / "sheet.png")
    yield lambda: _png(file, 4)
    yield lambda: ImageCache(file.parent / "cache").put_all(
        [NewImage("0" * 64, file.read_bytes(), prompt="a", seed=0, flagged=False, cut=False)], {}
    )


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        *(
            (f"a.{kind.lower()}", encoded(kind), "no PNG, JPEG or WebP")
            for kind in ("TIFF", "BMP", "GIF", "PPM", "TGA")
        ),
        ("a.png", encoded("GIF"), "no PNG, JPEG or WebP"),
        ("a.psd", b"8BPS\0\1" + bytes(6) + b"\0\3\0\0\0\4\0\0\0\4\0\x08\0\3" + bytes(12), "no PNG, JPEG or WebP"),
        ("a.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "no PNG, JPEG or WebP"),
        ("huge.png", huge_png(), "8000 x 8000 pixels, at most 50,000,000"),
    ],
)
def test_everything_else_is_refused_everywhere(name, data, said, tmp_path):
    file = tmp_path / name
    file.write_bytes(data)
    for way in every_way(file):
        with pytest.raises(ValueError, match=f"can't be read .*{said}"):
            way()
    assert not (tmp_path / "sheet.png").exists()


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", tmp_path, tmp_path / "none.png"):
        with pytest.raises(FileNotFoundError, match="Expected an image file at"), open_picture(path):
            pass


@given(st.sampled_from(FORMATS), st.integers(0, 10_000), st.integers(0, 255), st.booleans())
@settings(max_examples=150)
def test_damage_is_one_kind_of_error(kind, place, value, cut):
    data = bytearray(encoded(kind))
    place %= len(data)
    data[place] = value
    try:
        with open_picture(bytes(data[:place] if cut else data)) as picture:
            found = picture.convert("RGB")
    except ValueError as error:
        assert "Expected an image file at bytes" in str(error)  # noqa: PT017
    else:
        assert found.width * found.height <= MAX_PIXELS


def test_no_other_module_opens_a_picture():
    root = Path(edpbrl_gym.__file__).parent
    calls = [
        path.relative_to(root).as_posix()
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Image.open"
    ]
    assert calls == ["_pictures.py"]


def test_errors_of_the_caller_stay_and_a_huge_picture_warns_of_nothing(tmp_path, recwarn):
    with pytest.raises(ValueError, match="^the caller's own$"), open_picture(encoded("PNG")):
        raise ValueError("the caller's own")
    data = bytearray(encoded("PNG"))
    data[16:24] = (10_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    with pytest.raises(ValueError, match="10000 x 10000 pixels, at most"), open_picture(bytes(data)):
        pass
    assert not recwarn.list
