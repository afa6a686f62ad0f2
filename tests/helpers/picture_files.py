"""Folders of made pictures, and the odd files that real folders have."""

from __future__ import annotations

import io
import os
import struct
import unicodedata
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from edpbrl_gym._pictures import converted


def made_picture(number: int, size: tuple[int, int] = (48, 32)) -> Image.Image:
    """A picture of its own for every number: a ramp in its colour, with a bright corner at the top left."""
    rng = np.random.default_rng(number)
    ramp = np.linspace(0.2, 0.8, size[0])[None, :, None] * rng.uniform(0.2, 1.0, size=3)
    pixels = np.broadcast_to(ramp, (size[1], size[0], 3)) * 255
    pixels = np.array(pixels, np.uint8)
    pixels[: size[1] // 4, : size[0] // 4] = 250
    return Image.fromarray(pixels)


def encoded(picture: Image.Image, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, format=kind, **options)
    return stream.getvalue()


def bomb(width: int = 30_000, height: int = 30_000) -> bytes:
    """A PNG of some hundred bytes whose header says 900 million pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def rotated(picture: Image.Image, orientation: int) -> bytes:
    """A JPEG that is upright only by its EXIF."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    back = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    return encoded(picture.transpose(back[orientation]), "JPEG", exif=exif, quality=95)


def animation(kind: str, picture=made_picture) -> bytes:
    return encoded(picture(71), kind, save_all=True, append_images=[picture(72)], duration=100)


HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00heicmif1" + bytes(64)
READ, LEFT_OUT = "read", "left out"


def add_odd_files(folder: Path, outside: Path, made_picture=made_picture) -> dict[str, str]:
    """Put odd files into a folder, with pictures by their numbers; name of each -> whether it is to be read."""
    good = encoded(made_picture(50), "PNG")
    clear = made_picture(55).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    files: dict[str, tuple[bytes, str]] = {
        "broken.png": (good[:40] + bytes(40) + good[80:], LEFT_OUT),
        "cut.jpg": (encoded(made_picture(51).resize((400, 300)), "JPEG")[:2000], LEFT_OUT),
        "bomb.png": (bomb(), LEFT_OUT),
        "turning.gif": (animation("GIF", made_picture), READ),
        "turning.webp": (animation("WEBP", made_picture), READ),
        "sideways.jpg": (rotated(made_picture(52), 6), READ),
        "clear.png": (encoded(clear, "PNG"), READ),
        "print.jpg": (encoded(made_picture(53).convert("CMYK"), "JPEG"), READ),
        "phone.heic": (HEIC, LEFT_OUT),
        "zz copy.png": (good, LEFT_OUT),  # of sound.png, in another file
        "sound.png": (good, READ),
        "empty.png": (b"", LEFT_OUT),
        "text.png": (b"not a picture at all\n" * 20, LEFT_OUT),
        f"{'very long name ' * 16}.png": (encoded(made_picture(54), "PNG"), READ),
        unicodedata.normalize("NFD", "Schlösser über Äckern.png"): (encoded(made_picture(56), "PNG"), READ),
        "Case.png": (encoded(made_picture(57), "PNG"), READ),
        "case.PNG": (encoded(made_picture(58), "PNG"), READ),
        "drawing.svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", LEFT_OUT),
        "paper.pdf": (b"%PDF-1.4\n%%EOF\n", LEFT_OUT),
        "dot.png": (encoded(Image.new("RGB", (1, 1), "red"), "PNG"), READ),
        "notes.txt": (b"a list", LEFT_OUT),
    }
    for name, (data, _) in files.items():
        (folder / name).write_bytes(data)
    (folder / "folder.png").mkdir()
    outside.mkdir()
    (outside / "linked.png").write_bytes(encoded(made_picture(59), "PNG"))
    os.symlink(outside / "linked.png", folder / "linked.png")
    os.symlink(outside / "none.png", folder / "dangling.png")
    os.symlink(outside, folder / "elsewhere")
    os.mkfifo(folder / "pipe.png")
    (folder / ".hidden.png").write_bytes(b"hidden")
    (folder / os.fsdecode(b"wrong \xff name.png")).write_bytes(encoded(made_picture(60), "PNG"))
    (folder / "turned.png").write_bytes(encoded(made_picture(61), "PNG") + b"\nafter the end")
    found = {name: what for name, (_, what) in files.items()}
    found |= {"folder.png": LEFT_OUT, "linked.png": READ, "dangling.png": LEFT_OUT, "elsewhere": LEFT_OUT}
    return found | {"pipe.png": LEFT_OUT, "wrong \ufffd name.png": LEFT_OUT, "turned.png": READ}


class PixelEncoder:
    """A picture encoder without a model: the colours of a grid of 2 x 2."""

    name, dimension, fingerprint = "pixels", 12, "b1c0de00" * 8

    def encode_images(self, images):
        rows = [np.asarray(converted(image, "RGB").resize((2, 2)), np.float32).ravel() / 255 for image in images]
        return np.stack(rows) / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
