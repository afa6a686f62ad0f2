"""Which colours are where, beside published values of CIE Lab."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from edpbrl_gym.features import ImageEncoder, load_image_encoder
from edpbrl_gym.features.colours import ColourEncoder, _lab


@pytest.mark.parametrize(
    ("rgb", "lab"),
    [
        ((1, 1, 1), (100, 0, 0)), ((0, 0, 0), (0, 0, 0)), ((1, 0, 0), (53.24, 80.09, 67.20)),
        ((0, 0, 1), (32.30, 79.19, -107.86)), ((0.5, 0.5, 0.5), (53.39, 0, 0)), ((0.02, 0.02, 0.02), (1.40, 0, 0)),
    ],
)  # fmt: skip
def test_lab(rgb, lab):
    np.testing.assert_allclose(_lab(np.array(rgb, dtype=float)), lab, atol=0.06)


def test_every_cell_has_its_colour_and_its_spread():
    encoder = load_image_encoder("colours", cache=False)
    assert isinstance(encoder, ImageEncoder) and (encoder.name, encoder.dimension) == ("colours", 37)
    pixels = np.zeros((90, 120, 3), dtype=np.uint8)
    pixels[:30, 80:] = (0, 0, 255)  # the last cell of the first row
    pixels[60:, :40:2] = 255  # the first of the last row, striped more finely than a cell's pixels are wide
    rows = encoder.encode_images(
        [Image.fromarray(pixels), Image.new("L", (5, 5), 0), Image.new("RGB", (8, 2), "white")]
    )
    np.testing.assert_allclose(np.linalg.norm(rows.astype(float), axis=1), 1.0, atol=1e-6)
    means = rows[0, 1:28].reshape(3, 3, 3) / rows[0, 0] * 300
    np.testing.assert_allclose(means[0, 2], (32.30, 79.19, -107.86), atol=0.1)
    np.testing.assert_allclose(means[1], 0, atol=1e-3)
    spread = rows[0, 28:].reshape(3, 3) / rows[0, 0] * 300
    assert means[2, 0, 0] > 40 and spread[2, 0] > 5 and np.delete(spread, 6).max() < 1e-3
    np.testing.assert_array_equal(rows[1], np.eye(37)[0])
    np.testing.assert_allclose(rows[2, 1:28:3] / rows[2, 0], 1 / 3, atol=1e-5)
    assert encoder.encode_images([]).shape == (0, 37) and encoder.fingerprint == ColourEncoder().fingerprint
