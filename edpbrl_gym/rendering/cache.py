"""Images on disk, written atomically: a PNG and a JSON record of its content and provenance."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._files import replacing, sweep
from edpbrl_gym._pictures import open_picture
from edpbrl_gym._places import Lock, RunFolderError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ImageCache", "NewImage", "RenderedImage", "encode_png"]

_log = logging.getLogger(__name__)
# fields of an image in its record
_RECORDED = ("key", "prompt", "seed", "flagged", "cut", "negative_cut", "width", "height", "sha256")


@dataclass(frozen=True)
class RenderedImage:
    """An image on disk.

    Attributes:
        key: sha256 of everything that determines the image (``image_key``).
        prompt: Prompt of the image.
        seed: Seed of its noise.
        path: The PNG file.
        flagged: Whether the model's safety checker flagged the image. It is stored as the pipeline returned it (Stable
            Diffusion returns it black); code that shows images must show a mark in its place.
        width: Width in pixels.
        height: Height in pixels.
        sha256: sha256 (hex) of the PNG's bytes.
        cut: Whether the prompt was longer than the model reads, so that its end had no effect.
        negative_cut: The same of the negative prompt.
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
    negative_cut: bool = False

    @property
    def png(self) -> bytes:
        """The bytes of the PNG file.

        Raises:
            OSError: The file was removed or changed.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise FileNotFoundError(f"Expected a rendered image at {self.path}, found none; render it again") from None
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise OSError(f"Expected the image as it was rendered at {self.path}, got other bytes; render it again")
        return data

    def load(self) -> Image:
        """Return the image as an RGB PIL image; a flagged one as it is stored.

        Raises:
            OSError: The file was removed or changed.
        """
        with open_picture(self.png) as image:
            image.load()
            return image.copy()


class NewImage(NamedTuple):
    """An image to be stored; ``RenderedImage`` describes the entries."""

    key: str
    png: bytes  # the image file
    prompt: str
    seed: int
    flagged: bool
    cut: bool
    negative_cut: bool = False
    size: tuple[int, int] | None = None  # where it is known to be a picture


def encode_png(pixels: NDArray[np.float32]) -> bytes:
    """Return an image of shape (height, width, 3) with values in 0..1 as PNG bytes, rounded to 8 bits per channel."""
    from PIL import Image

    levels = np.rint(np.clip(pixels, 0.0, 1.0) * 255.0).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(levels).save(stream, format="PNG")
    return stream.getvalue()


class ImageCache:
    """The images of a folder, by key. Any number of processes may read and write it.

    The record of a key names its PNG by the PNG's sha256. The PNG is written first, then the record, both atomically,
    and a PNG never changes. An image is returned only if its record is readable and belongs to its key, and the PNG has
    the recorded bytes. So after an interruption, or for a truncated or changed file, the image is rendered again. The
    images of a batch appear together (``put_all``), so that the batches of a run that goes on are those of one that
    was never stopped, and its images equal to the bit. If
    two processes render the same image at the same time (with different rounding, if their batches differ), each keeps
    its own, and later readers get the one written last.

    Args:
        folder: Folder of the images, created by the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).expanduser()

    def _path(self, key: str, sha256: str | None = None) -> Path:
        """Path of the record of a key or, with a sha256, of the PNG with these bytes.

        Raises:
            ValueError: The key or the sha256 is not 64 hexadecimal digits.
        """
        for name, digest in (("a key", key), ("a sha256", sha256 or key)):
            if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
                raise ValueError(f"Expected {name} of 64 hexadecimal digits (image_key), got {digest!r}")
        return self.folder / key[:2] / (f"{key}.json" if sha256 is None else f"{key}-{sha256[:16]}.png")

    def has(self, key: str) -> bool:
        """Whether there is a record of ``key``, without a look at the image."""
        return self._path(key).is_file()

    def get(self, key: str) -> RenderedImage | None:
        """Return the image of ``key``, or None if there is no intact one.

        Raises:
            ValueError: The key is not one of ``image_key``.
            OSError: The folder can't be read.
        """
        record_path = self._path(key)
        try:
            text = record_path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        try:
            record = {"negative_cut": False, **json.loads(text)}  # older records lack it
            path = self._path(key, record["sha256"])
            image = RenderedImage(path=path, **{name: record[name] for name in _RECORDED})
            if image.key != key or not isinstance(image.flagged, bool):
                raise ValueError("the record is not of this image")
            image.png  # noqa: B018 - checks the bytes
        except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            # only the type of the error: its text may quote a prompt
            _log.warning("Image %s in the cache is damaged (%s); it is rendered again", key[:16], type(error).__name__)
            return None
        return image

    @contextmanager
    def alone(self, key: str, stop: threading.Event) -> Iterator[bool]:
        """Hold a key, so that no other process asks for the same image; False if ``stop`` was set before.

        Raises:
            OSError: The folder can't be written.
        """
        path, lock = self._path(key).with_suffix(".lock"), None
        while lock is None and not stop.is_set():
            try:
                lock = Lock.of(path, path, "draws it")
            except RunFolderError as error:
                if error.__cause__ is not None:
                    raise OSError(str(error)) from error
                stop.wait(0.1)
        yield lock is not None

    def prepare(self) -> None:
        """Create and sweep the folder, and finish batches of killed processes, before anything is rendered.

        Raises:
            OSError: The folder can't be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK):
                raise PermissionError("no permission to write")
            sweep(self.folder)
        except OSError as error:
            raise self._unusable(error) from error
        self.finish_batches()

    def put_all(self, images: Sequence[NewImage], provenance: dict[str, Any]) -> list[RenderedImage]:
        """Write the images of a batch, all or none: rounding depends on the batch, so it is rendered again as a whole.

        The PNGs come first, then one file with all records, then the records one by one. Where the process is killed
        after the file of all records, ``finish_batches`` writes the others.

        Args:
            images: The images, rendered together.
            provenance: Settings, device, versions and so on, for people; JSON-able.

        Raises:
            OSError: The folder can't be written.
            ValueError: One of them is not an image.
        """
        stored = [self._stored(image) for image in images]
        records = [_record(image, provenance) for image in stored]
        together = self._batches / f"{hashlib.sha256(''.join(image.key for image in images).encode()).hexdigest()}.json"
        try:
            for new, image in zip(images, stored, strict=True):
                image.path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(image.path) as temporary:
                    temporary.write_bytes(new.png)
            if len(records) > 1:
                _write_json(together, records)
            for record in records:
                _write_json(self._path(record["key"]), record)
            if len(records) > 1:
                together.unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from error
        return stored

    def finish_batches(self) -> None:
        """Write the records of batches whose process was killed while it wrote them.

        Raises:
            OSError: The folder can't be read or written.
        """
        try:
            for together in sorted(self._batches.glob("*.json")):
                try:
                    for record in json.loads(together.read_bytes()):
                        if self.get(record["key"]) is None:
                            _write_json(self._path(record["key"]), record)
                except FileNotFoundError:
                    continue  # its own process, or another one, has done it
                except (ValueError, KeyError, TypeError) as error:
                    _log.warning("A batch of images in the cache is damaged (%s); left out", type(error).__name__)
                together.unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def _batches(self) -> Path:
        return self.folder / "batches"

    def _stored(self, image: NewImage) -> RenderedImage:
        try:
            if image.size is None:
                with open_picture(image.png) as picture:
                    width, height = picture.size
            else:
                width, height = image.size
        except ValueError as error:
            raise ValueError(
                f"Expected the bytes of an image, got {len(image.png)} bytes that are none: {error}"
            ) from None
        digest = hashlib.sha256(image.png).hexdigest()
        return RenderedImage(
            key=image.key, prompt=image.prompt, seed=image.seed, path=self._path(image.key, digest),
            flagged=bool(image.flagged), width=width, height=height, sha256=digest, cut=bool(image.cut),
            negative_cut=bool(image.negative_cut),
        )  # fmt: skip

    def _unusable(self, error: OSError) -> OSError:
        return OSError(
            f"Expected a cache folder for images that can be read and written at {self.folder}, got "
            f"{error.strerror or error}; choose another folder (EDPBRL_CACHE sets the default one)"
        )


def _record(image: RenderedImage, provenance: dict[str, Any]) -> dict[str, Any]:
    return {**{name: getattr(image, name) for name in _RECORDED}, "made": provenance}


def _write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")
