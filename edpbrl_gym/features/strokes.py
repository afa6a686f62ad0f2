"""Measures of a drawn stroke: how much ink, how thick, leaning which way; for small pictures of handwriting."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._pictures import check_pictures, converted
from edpbrl_gym.features.base import hash_settings

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["MEASURES", "StrokeEncoder", "measure_strokes"]

MEASURES: tuple[str, ...] = (
    *("ink", "thickness", "slant", "width", "height", "right", "low"),
    *("middle ink", "lower ink", "mirror symmetry", "turned symmetry", "edge ink"),
)
"""Names of the features, in order."""

_VERSION = 1
_TINY = 1e-6
# in standard deviations: pictures that are no handwriting would otherwise outweigh all differences between digits
_FARTHEST = 3.0


def measure_strokes(pictures: NDArray[np.floating]) -> Floats:
    """Measure grey pictures of bright strokes on a dark ground, with lengths in units of half the picture.

    - ink: mean brightness;
    - thickness: ink per length of its outline (total variation);
    - slant: shift to the right per height, as the regression of x on height, positive for strokes leaning right;
    - width, height: standard deviation of the ink's position;
    - right, low: position of its centre;
    - middle ink, lower ink, edge ink: shares of the ink within a third of the centre, below the middle, and in the
      outer half of the columns;
    - mirror symmetry, turned symmetry: correlation of the picture with its mirror image, and with itself turned by
      180 degrees.

    Args:
        pictures: Brightness in 0..1, shape (n, height, width).

    Returns:
        Shape (n, 12), one column for each of ``MEASURES``; a black picture has 0 everywhere.
    """
    grey = np.asarray(pictures, dtype=np.float64)
    _, rows, columns = grey.shape
    y = np.linspace(-1, 1, rows)[None, :, None]  # downwards
    x = np.linspace(-1, 1, columns)[None, None, :]
    total = grey.sum(axis=(1, 2))
    weight = grey / np.maximum(total, _TINY)[:, None, None]

    def mean(values: Floats) -> Floats:
        return np.asarray((weight * values).sum(axis=(1, 2)))

    centre_x, centre_y = mean(x), mean(y)
    from_x, from_y = x - centre_x[:, None, None], y - centre_y[:, None, None]
    var_x, var_y = mean(from_x**2), mean(from_y**2)
    outline = np.abs(np.diff(grey, axis=1, prepend=0, append=0)).sum(axis=(1, 2)) / columns
    outline = outline + np.abs(np.diff(grey, axis=2, prepend=0, append=0)).sum(axis=(1, 2)) / rows
    measures = [
        grey.mean(axis=(1, 2)),
        grey.mean(axis=(1, 2)) / np.maximum(outline, _TINY),
        -mean(from_x * from_y) / np.maximum(var_y, _TINY),
        np.sqrt(var_x),
        np.sqrt(var_y),
        centre_x,
        centre_y,
        mean((from_x**2 + from_y**2 < 1 / 9).astype(np.float64)),
        mean(np.broadcast_to(y > 0, grey.shape).astype(np.float64)),
        _correlation(grey, grey[:, :, ::-1]),
        _correlation(grey, grey[:, ::-1, ::-1]),
        mean(np.broadcast_to(np.abs(x) > 0.5, grey.shape).astype(np.float64)),
    ]
    return np.where(total[:, None] > _TINY, np.stack(measures, axis=1), 0.0)


def _correlation(first: Floats, second: Floats) -> Floats:
    left = first - first.mean(axis=(1, 2), keepdims=True)
    right = second - second.mean(axis=(1, 2), keepdims=True)
    norms = np.sqrt((left**2).sum(axis=(1, 2)) * (right**2).sum(axis=(1, 2)))
    return np.asarray((left * right).sum(axis=(1, 2)) / np.maximum(norms, _TINY))


@functools.lru_cache(maxsize=1)
def _of_real_digits() -> tuple[Floats, Floats]:
    """Mean and standard deviation of every measure over scikit-learn's handwritten digits, (12,) each."""
    check_installed(Need("sklearn", "handwritten digits", "images"))
    from sklearn.datasets import load_digits

    measures = measure_strokes(load_digits().images / 16.0)  # from 0..16, shape (1797, 8, 8)
    return measures.mean(axis=0), measures.std(axis=0)


class StrokeEncoder:
    """An image encoder of 12 stroke measures (``MEASURES``), for grey pictures of bright strokes on a dark ground.

    A feature is a measure in standard deviations from its mean over scikit-learn's 1,797 handwritten digits, at most 3
    either way, divided by the square root of 12: rows have a norm of about 1, and of at most 3. A taste such as "thick,
    leaning right" is a direction of this space (`direction`).
    """

    name = "strokes"
    dimension = len(MEASURES)

    def __init__(self) -> None:
        self.fingerprint = hash_settings({"kind": "strokes", "measures": MEASURES, "version": _VERSION})

    def encode_images(self, images: Sequence[Image | PathLike[str] | str]) -> NDArray[np.float32]:
        """As ``ImageEncoder.encode_images``, of pictures of one size, whose colours count by their brightness."""
        check_pictures(images)
        if not len(images):
            return np.empty((0, self.dimension), dtype=np.float32)
        arrays = [np.asarray(converted(image, "L")) for image in images]
        if len({array.shape for array in arrays}) > 1:
            raise ValueError("Expected pictures of one size, got several; resize them first")
        mean, deviation = _of_real_digits()
        rows = np.clip((measure_strokes(np.stack(arrays) / 255.0) - mean) / deviation, -_FARTHEST, _FARTHEST)
        return (rows / np.sqrt(self.dimension)).astype(np.float32)

    def direction(self, **measures: float) -> Floats:
        """A taste of unit norm from weights of measures, such as ``direction(thickness=1, middle_ink=1)``, shape (12,).

        Raises:
            ValueError: An unknown measure, or all weights are 0.
        """
        theta = np.zeros(self.dimension)
        for name, weight in measures.items():
            plain = name.replace("_", " ")
            if plain not in MEASURES:
                raise ValueError(f"Expected measures among {', '.join(MEASURES)}, got {name!r}")
            theta[MEASURES.index(plain)] = weight
        norm = float(np.linalg.norm(theta))
        if norm == 0:
            raise ValueError("Expected at least one measure with a weight other than 0, got none")
        return theta / norm
