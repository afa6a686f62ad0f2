"""Images on disk, each whole or not at all: a PNG and a JSON record of what it shows and how it was made."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._files import replacing

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ImageCache", "RenderedImage", "encode_png"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RenderedImage:
    """An image on disk.

    Attributes:
        key: sha256 of everything that decides the image (``image_key``).
        prompt: the text that it was made from.
        seed: of its noise.
        path: the PNG file.
        flagged: the model's safety checker objected. Such an image is kept as the pipeline returned it (Stable
            Diffusion returns it black); code that shows images must show a mark in its place.
        width: in pixels.
        height: in pixels.
        sha256: of the PNG's bytes, hex.
        cut: the prompt is longer than the model reads; its end had no effect.
    """

    key: str
    prompt: str = field(repr=False)  # prompts of a study do not belong into logs
    seed: int
    path: Path
    flagged: bool
    width: int
    height: int
    sha256: str
    cut: bool = False

    @property
    def png(self) -> bytes:
        """The bytes of the PNG file.

        Raises:
            OSError: the file is gone, or it is not the one that was rendered.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise FileNotFoundError(f"Expected a rendered image at {self.path}, found none; render it again") from None
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise OSError(f"Expected the image as it was rendered at {self.path}, got other bytes; render it again")
        return data

    def load(self) -> Image:
        """Return the image as PIL has it, RGB; a flagged one as it is stored.

        Raises:
            OSError: the file is gone, or it is not the one that was rendered.
        """
        from PIL import Image

        image = Image.open(io.BytesIO(self.png))
        image.load()
        return image


def encode_png(pixels: NDArray[np.float32]) -> bytes:
    """Return an image of shape (height, width, 3) with values in 0..1 as PNG bytes, 8 bits a channel, rounded."""
    from PIL import Image

    levels = np.rint(np.clip(pixels, 0.0, 1.0) * 255.0).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(levels).save(stream, format="PNG")
    return stream.getvalue()


class ImageCache:
    """The images of a folder, by key. Any number of processes may read and write it.

    The PNG is written first, then its record, which holds the PNG's sha256; each appears under its name only when it
    is whole on disk. An image is served only when its record is readable and belongs to its key and the PNG has the
    recorded bytes. So a stop at any moment, a file cut short or a changed file costs a rendering and is never served.

    Args:
        folder: made on first writing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).expanduser()

    def path(self, key: str) -> Path:
        """Return where the PNG of ``key`` lies (or would lie).

        Raises:
            ValueError: no sha256 in hex.
        """
        if not re.fullmatch("[0-9a-f]{64}", key):
            raise ValueError(f"Expected a key of 64 hexadecimal digits (image_key), got {key!r}")
        return self.folder / key[:2] / f"{key}.png"

    def get(self, key: str) -> RenderedImage | None:
        """Return the image of ``key``, or None where there is none that is whole."""
        path = self.path(key)
        record_path = path.with_suffix(".json")
        try:
            text = record_path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            record = json.loads(text)
            image = RenderedImage(
                key=record["key"],
                prompt=record["prompt"],
                seed=record["seed"],
                path=path,
                flagged=record["flagged"],
                width=record["width"],
                height=record["height"],
                sha256=record["sha256"],
                cut=record["cut"],
            )
            if image.key != key or not isinstance(image.flagged, bool):
                raise ValueError("the record is not of this image")
            image.png  # noqa: B018 - checks the bytes
        except (ValueError, KeyError, TypeError, OSError) as error:
            # only the kind of error: its text may quote a prompt
            _log.warning("Image %s in the cache is damaged (%s); it is rendered again", key[:16], type(error).__name__)
            return None
        return image

    def put(
        self, key: str, png: bytes, *, prompt: str, seed: int, flagged: bool, cut: bool, made: dict[str, Any]
    ) -> RenderedImage:
        """Write an image and return it.

        Args:
            key: of ``image_key``.
            png: the image file.
            prompt: the text that it was made from.
            seed: of its noise.
            flagged: the safety checker objected.
            cut: the prompt is longer than the model reads.
            made: how it was made (settings, device, versions), for people; JSON-able.

        Raises:
            OSError: the folder can't be written.
            ValueError: ``png`` is no image.
        """
        from PIL import Image, UnidentifiedImageError

        path = self.path(key)
        try:
            width, height = Image.open(io.BytesIO(png)).size
        except UnidentifiedImageError:
            raise ValueError(f"Expected the bytes of an image, got {len(png)} bytes that are none") from None
        record = {
            "key": key,
            "prompt": prompt,
            "seed": seed,
            "flagged": bool(flagged),
            "cut": bool(cut),
            "width": width,
            "height": height,
            "sha256": hashlib.sha256(png).hexdigest(),
            "made": made,
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as part:
                part.write_bytes(png)
            with replacing(path.with_suffix(".json")) as part:
                part.write_text(json.dumps(record, indent=1), encoding="utf-8")
        except OSError as error:
            raise OSError(
                f"Expected a cache folder for images that can be written at {self.folder}, got {error}; choose "
                "another folder (EDPBRL_CACHE sets the default one)"
            ) from error
        return RenderedImage(
            key=key, prompt=prompt, seed=seed, path=path, flagged=bool(flagged), width=width, height=height,
            sha256=str(record["sha256"]), cut=bool(cut),
        )  # fmt: skip
