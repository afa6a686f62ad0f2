"""Texts by the pictures drawn from them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from edpbrl_gym.features import blocks_of, load_image_encoder
from edpbrl_gym.pictures.drawn import DrawnEncoder, features_of
from edpbrl_gym.rendering import Renderer, load_renderer
from edpbrl_gym.rendering.base import Drawn, NotDrawn
from edpbrl_gym.rendering.cached import RenderingError
from tests.helpers.encoders import CountingEncoder


class Colours(Renderer):
    """One colour for each text and seed, none for "nothing"."""

    name = "colours"
    batch_size = 2

    def __init__(self, version: int = 1) -> None:
        self.version, self.drawn = version, 0

    def describe(self):
        return {"model": "colours", "version": self.version}

    def draw(self, texts, seeds):
        self.drawn += len(texts)
        return [self._one(text, seed) for text, seed in zip(texts, seeds, strict=True)]

    def _one(self, text, seed):
        if text == "nothing":
            return NotDrawn("there is nothing to draw")
        colour = tuple(np.random.default_rng([seed, *text.encode()]).integers(0, 256, 3).tolist())
        file = io.BytesIO()
        Image.new("RGB", (8, 8), colour).save(file, "PNG")
        return Drawn(file.getvalue())


@pytest.fixture
def images():
    return load_image_encoder("tests.helpers.encoders:OwnImages", cache=False)


def test_a_text_has_the_features_of_its_picture(images, tmp_path):
    renderer = load_renderer(Colours(), cache_folder=tmp_path)
    drawn = DrawnEncoder(renderer, images, seed=3)
    assert (drawn.name, drawn.dimension) == ("picture:tests.helpers.encoders:OwnImages", 3)
    rows = drawn.encode(["a fog", "dusk", "a fog"])
    files = [image.path for image in renderer.render(["a fog", "dusk", "a fog"], seed=3)]
    np.testing.assert_allclose(rows, images.encode_images(files), atol=1e-6)
    assert renderer.renderer.drawn == 2 and drawn.encode([]).shape == (0, 3)
    seen = images.encoder.seen
    np.testing.assert_array_equal(drawn.encode(["dusk"]), rows[1:2])
    assert images.encoder.seen == seen
    prints = {
        DrawnEncoder(renderer, images, seed=4).fingerprint,
        DrawnEncoder(load_renderer(Colours(2), cache_folder=tmp_path), images, seed=3).fingerprint,
    }
    assert len(prints | {drawn.fingerprint}) == 3
    assert (
        DrawnEncoder(load_renderer(Colours(), cache_folder=tmp_path), images, seed=3).fingerprint == drawn.fingerprint
    )
    with pytest.raises(RenderingError, match="got none of 1"):
        drawn.encode(["dusk", "nothing"])


def test_features_of_text_picture_and_both(images, tmp_path):
    drawn, texts = DrawnEncoder(load_renderer(Colours(), cache_folder=tmp_path), images), CountingEncoder()
    assert features_of("text", texts, drawn) is texts
    assert features_of("picture", texts, drawn) is drawn
    both = features_of("both", texts, drawn)
    assert blocks_of(both) == (8, 3)
    expected = np.concatenate([texts.encode(["dusk"]), drawn.encode(["dusk"])], axis=1) / np.sqrt(2)
    np.testing.assert_allclose(both.encode(["dusk"]), expected, atol=1e-7)
    with pytest.raises(ValueError, match="features"):
        features_of("pictures", texts, drawn)
