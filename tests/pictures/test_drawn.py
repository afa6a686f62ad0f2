"""Texts by the pictures drawn from them."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.features import blocks_of, load_encoder, load_image_encoder
from edpbrl_gym.pictures.drawn import DrawnEncoder, drawn_by, features_of
from edpbrl_gym.rendering import load_renderer
from edpbrl_gym.rendering.cached import RenderingError
from tests.helpers.encoders import CountingEncoder
from tests.helpers.renderers import Colours

OWN, IMAGES = "tests.helpers.encoders:OwnEncoder", "tests.helpers.encoders:OwnImages"


@pytest.fixture
def images():
    return load_image_encoder(IMAGES, cache=False)


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


def test_several_encoders_of_the_same_pictures(images, tmp_path):
    renderer, texts = load_renderer(Colours(), cache_folder=tmp_path), load_encoder(OWN, cache=False)
    drawn = drawn_by(renderer, f"{IMAGES}+colours", seed=2, cache=False)
    assert blocks_of(drawn) == (3, 37) and drawn.name == f"picture:{IMAGES}+picture:colours"
    both = features_of("both", texts, drawn)
    assert blocks_of(both) == (8, 3, 37) and blocks_of(features_of("picture", texts, drawn)) == (3, 37)
    loaded = load_encoder(both.name, cache=False, drawn=drawn)
    np.testing.assert_array_equal(loaded.encode(["dusk", "a fog"]), both.encode(["dusk", "a fog"]))
    assert loaded.fingerprint == both.fingerprint and renderer.renderer.drawn == 2
    alone = drawn_by(renderer, "colours", seed=2)
    assert isinstance(alone, DrawnEncoder)
    np.testing.assert_allclose(both.encode(["dusk"])[0, 11:] * np.sqrt(3), alone.encode(["dusk"])[0], atol=1e-6)
