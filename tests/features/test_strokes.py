"""Stroke measures on pictures whose strokes are known."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from edpbrl_gym.features.strokes import MEASURES, StrokeEncoder, measure_strokes


def stroke(lean=0.0, width=1.0, size=32, shift=0.0):
    """A straight stroke through the middle; it is shifted to the right by ``lean`` per height."""
    y, x = np.mgrid[1 : -1 : size * 1j, -1 : 1 : size * 1j]
    inside = (np.abs(x - shift - lean * y) < 0.08 * width) & (np.abs(y) < 0.7)
    return inside.astype(np.float64)


def measured(picture, name):
    return measure_strokes(picture[None])[0, MEASURES.index(name)]


def test_slant_is_the_lean_and_thicker_strokes_are_thicker():
    for lean in (-0.5, 0.0, 0.4):
        assert measured(stroke(lean), "slant") == pytest.approx(lean, abs=0.05)
    thin, thick = stroke(0.3, 1.0), stroke(0.3, 3.0)
    assert measured(thick, "thickness") > 1.5 * measured(thin, "thickness")
    assert measured(thick, "ink") > 2 * measured(thin, "ink")
    assert measured(thick, "slant") == pytest.approx(measured(thin, "slant"), abs=0.08)


def test_real_digits_are_standardised():
    images = [Image.fromarray((picture * 255 / 16).astype(np.uint8)) for picture in load_digits().images]
    rows = StrokeEncoder().encode_images(images)
    assert rows.dtype == np.float32 and rows.shape == (1797, 12)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(rows.std(axis=0) * np.sqrt(12), 1, atol=0.08)  # a few are cut at 3
    assert np.abs(rows * np.sqrt(12)).max() <= 3 + 1e-6
    assert np.linalg.norm(rows, axis=1).mean() == pytest.approx(1.0, abs=0.1)


def test_tastes_by_name():
    theta = StrokeEncoder().direction(thickness=1, mirror_symmetry=-1)
    assert np.linalg.norm(theta) == pytest.approx(1) and theta[MEASURES.index("mirror symmetry")] < 0
    with pytest.raises(ValueError, match="among ink, thickness.*got 'colour'"):
        StrokeEncoder().direction(colour=1)
    with pytest.raises(ValueError, match="other than 0"):
        StrokeEncoder().direction(ink=0)
