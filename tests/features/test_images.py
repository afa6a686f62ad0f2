"""The CLIP image tower: the rows of open_clip itself, in the space of the text tower, and its errors."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from edpbrl_gym.features import ImageEncoder, load_encoder, load_image_encoder
from edpbrl_gym.features.images import OpenClipImageEncoder
from tests.helpers.encoders import save_tiny_clip


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    return save_tiny_clip(tmp_path_factory.mktemp("clip") / "images")


@pytest.fixture(scope="module")
def encoder(clip_folder):
    return load_image_encoder(f"open_clip:local-dir:{clip_folder}")


def picture(seed: int, size=(40, 30), mode: str = "RGB") -> Image.Image:
    levels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(levels).convert(mode)


def test_rows_are_those_of_open_clip_itself(clip_folder, encoder, tmp_path):
    import open_clip
    import torch

    pictures = [picture(i, size) for i, size in enumerate([(40, 30), (32, 32), (20, 90), (8, 8), (64, 64)])]
    rows = encoder.encode_images(pictures)
    assert isinstance(encoder, ImageEncoder)
    assert rows.shape == (5, 24) and rows.dtype == np.float32 and encoder.dimension == 24
    np.testing.assert_allclose(np.linalg.norm(rows.astype(float), axis=1), 1.0, atol=1e-6)
    model, _, prepare = open_clip.create_model_and_transforms(f"local-dir:{clip_folder}")
    with torch.no_grad():
        plain = model.eval().encode_image(torch.stack([prepare(image) for image in pictures]), normalize=True).numpy()
    np.testing.assert_allclose(rows, plain, atol=1e-5)
    assert np.abs(np.diff(rows, axis=0)).max(axis=1).min() > 1e-3
    two = OpenClipImageEncoder(f"local-dir:{clip_folder}", batch_size=2)
    np.testing.assert_allclose(two.encode_images(pictures), rows, atol=1e-5)
    for i, image in enumerate(pictures):
        image.save(tmp_path / f"{i}.png")
    files = [tmp_path / f"{i}.png" if i % 2 else str(tmp_path / f"{i}.png") for i in range(5)]
    np.testing.assert_array_equal(encoder.encode_images(files), rows)
    assert encoder.encode_images([]).shape == (0, 24)
    text = load_encoder(f"open_clip:local-dir:{clip_folder}", cache=False)
    assert (text.name, text.dimension) == (encoder.name, encoder.dimension)
    assert text.fingerprint != encoder.fingerprint


def test_fingerprint_sees_weights_activation_and_preprocessing(encoder, tmp_path):
    import json

    def fingerprint(folder):
        return load_image_encoder(f"open_clip:local-dir:{folder}").fingerprint

    assert fingerprint(save_tiny_clip(tmp_path / "same")) == encoder.fingerprint
    others = {
        fingerprint(save_tiny_clip(tmp_path / "weights", seed=1)),
        fingerprint(save_tiny_clip(tmp_path / "activation", quick_gelu=True)),
    }
    changed = save_tiny_clip(tmp_path / "colours")
    config = json.loads((changed / "open_clip_config.json").read_text())
    config["preprocess_cfg"] = {"mean": [0.5, 0.5, 0.5]}
    (changed / "open_clip_config.json").write_text(json.dumps(config))
    others.add(fingerprint(changed))
    assert len(others | {encoder.fingerprint}) == 4


def test_errors_name_the_picture(encoder, tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected an image file at .*none.png, found none"):
        encoder.encode_images([tmp_path / "none.png"])
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ValueError, match="Expected an image file at .*text.png, but it can't be read"):
        encoder.encode_images([picture(1), tmp_path / "text.png"])
    with pytest.raises(TypeError, match="got int at index 1"):
        encoder.encode_images([picture(0), 3])
    for single in (tmp_path / "a.png", "a.png", picture(0)):
        with pytest.raises(TypeError, match=r"list of pictures.*write \[picture\]"):
            encoder.encode_images(single)
