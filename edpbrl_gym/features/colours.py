"""Which colours are where in a picture: 37 measures without a model, for tastes that a model of objects doesn't see."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._pictures import check_pictures, converted
from edpbrl_gym.features.base import hash_settings, normalise

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ColourEncoder"]

_CELLS, _PIXELS = 3, 16  # cells of a side, pixels of a cell's side
_VERSION = 1
_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = np.array([0.9505, 1.0, 1.089])  # D65


class ColourEncoder:
    """Mean lightness, red against green and yellow against blue (CIE Lab), and spread of lightness in 3 x 3 cells.

    A row is 1, the 27 means and the 9 standard deviations, in units of a third of the range 0 to 100 of lightness,
    divided by its norm; the 1 keeps that above 0 for a black picture.
    """

    name = "colours"
    dimension = 1 + 4 * _CELLS**2

    def __init__(self) -> None:
        self.fingerprint = hash_settings({"kind": self.name, "cells": _CELLS, "pixels": _PIXELS, "version": _VERSION})

    def encode_images(self, images: Sequence[Image | PathLike[str] | str]) -> NDArray[np.float32]:
        """As ``ImageEncoder.encode_images``."""
        check_pictures(images)
        rows = np.empty((len(images), self.dimension))
        for row, image in zip(rows, images, strict=True):
            row[:] = _measured(image)
        return normalise(rows, [f"picture {number}" for number in range(len(rows))], self.dimension, self.name)


def _measured(image: Image | PathLike[str] | str) -> Floats:
    from PIL import Image as Pillow

    side = _CELLS * _PIXELS
    small = converted(image, "RGB").resize((side, side), Pillow.Resampling.BOX)
    lab = _lab(np.asarray(small, dtype=np.float64) / 255.0) / (100.0 * _CELLS)
    cells = lab.reshape(_CELLS, _PIXELS, _CELLS, _PIXELS, 3).swapaxes(1, 2).reshape(_CELLS**2, _PIXELS**2, 3)
    return np.concatenate([[1.0], cells.mean(axis=1).ravel(), cells[:, :, 0].std(axis=1)])


def _lab(rgb: Floats) -> Floats:
    """CIE Lab of sRGB values in 0..1, (..., 3)."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    share = linear @ _TO_XYZ.T / _WHITE
    root = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)
