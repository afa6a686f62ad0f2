"""The renderer of pictures that exist."""

from __future__ import annotations

import os

import numpy as np
import pytest

from edpbrl_gym.pictures import DrawnEncoder, load_pictures
from edpbrl_gym.rendering import RenderingError, load_renderer
from tests.helpers.picture_files import PixelEncoder, add_odd_files, encoded, made_picture


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(4):
        (folder / f"picture_{number}.png").write_bytes(encoded(made_picture(number), "PNG"))
    return folder


def shows(image, number: int) -> bool:
    """Whether an image shows the made picture of this number."""
    return bool(np.array_equal(np.asarray(image.load()), np.asarray(made_picture(number))))


def test_pictures_are_found_by_the_texts_of_their_pool(folder, tmp_path):
    add_odd_files(folder, tmp_path / "outside")
    pool = load_pictures(folder)
    renderer = load_renderer(f"folder:{folder}", cache_folder=tmp_path / "cache")
    images = renderer.render(pool.vocabulary.all_tokens)
    assert len(images) == len(pool)
    numbered = {text: image for text, image in zip(pool.vocabulary.all_tokens, images, strict=True)}
    for number in range(4):
        assert shows(numbered[f"picture {number}"], number)
    assert shows(renderer.render(["  PICTURE  2"])[0], 2), "case and spaces are folded, as in vocabularies"
    assert renderer.describe()["model"] == f"folder:{folder}"


def test_a_text_without_a_picture_is_the_error_of_that_text(folder, tmp_path):
    (folder / "broken.png").write_bytes(encoded(made_picture(9), "PNG")[:60])
    renderer = load_renderer(f"folder:{folder}", cache_folder=tmp_path / "cache")
    with pytest.raises(RenderingError, match="none of 2 .*no picture of 'nobody'") as caught:
        renderer.render(["nobody", "picture 1", "broken"])
    assert [image is not None for image in caught.value.images] == [False, True, False]
    assert "broken.png" in str(caught.value.errors[1])
    assert caught.value.images[1] is not None
    assert shows(caught.value.images[1], 1)


def test_a_changed_file_is_another_picture_and_the_others_stay(folder, tmp_path):
    renderer = load_renderer(f"folder:{folder}", cache_folder=tmp_path / "cache")
    before, fingerprint = renderer.render(["picture 0", "picture 1"]), renderer.fingerprint
    (folder / "picture_1.png").write_bytes(encoded(made_picture(7), "PNG"))
    again = load_renderer(f"folder:{folder}", cache_folder=tmp_path / "cache")
    for one in (renderer, again):
        after = one.render(["picture 0", "picture 1"])
        assert after[0] == before[0], "from the cache"
        assert after[1].key != before[1].key
        assert shows(after[1], 7)
    assert again.fingerprint != fingerprint
    (folder / "picture_1.png").unlink()
    with pytest.raises(RenderingError, match="picture_1.png"):
        again.render(["picture 1"])


def test_a_file_that_changes_while_it_is_asked_for_is_not_stored_under_the_old_key(folder, tmp_path):
    renderer = load_renderer(f"folder:{folder}", cache_folder=tmp_path / "cache")
    renderer.renderer.identity_of("picture 1", 0)
    (folder / "picture_1.png").write_bytes(encoded(made_picture(8), "PNG"))
    (drawn,) = renderer.renderer.draw(["picture 1"], [0])
    assert "changed while it was read" in str(drawn)


def test_a_prompt_with_several_pictures_has_one_for_each_seed(folder, tmp_path):
    (folder / "prompts.csv").write_text("file,prompt\n" + "".join(f"picture_{n}.png,a cat\n" for n in (2, 0, 3)))
    renderer = load_renderer(f"folder:{folder}", cache_folder=tmp_path / "cache")
    images = renderer.render(["a cat"] * 4, seed=[0, 1, 2, 3])
    assert all(shows(image, number) for image, number in zip(images, (2, 0, 3, 2), strict=True))
    assert shows(renderer.render(["a cat (picture_3.png)"])[0], 3)


def test_a_folder_beside_a_file_and_a_folder_without_pictures(folder, tmp_path):
    renderer = load_renderer("folder:pictures", cache_folder=tmp_path / "cache", beside=tmp_path)
    assert shows(renderer.render(["picture 3"])[0], 3)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="Expected pictures .* found none; it is empty"):
        load_renderer(f"folder:{tmp_path / 'none'}", cache_folder=tmp_path / "cache")
    with pytest.raises(FileNotFoundError, match="Expected a folder of pictures"):
        load_renderer(f"folder:{tmp_path / 'nowhere'}", cache_folder=tmp_path / "cache")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission_is_the_error_of_its_text(folder, tmp_path):
    (folder / "picture_1.png").chmod(0)
    with pytest.raises(RenderingError, match="picture_1.png"):
        load_renderer(f"folder:{folder}", cache_folder=tmp_path / "cache").render(["picture 1"])


def test_the_encoder_of_drawn_pictures_knows_the_contents_of_the_folder(folder, tmp_path):
    def drawn():
        renderer = load_renderer(f"folder:{folder}", cache_folder=tmp_path / "cache")
        return DrawnEncoder(renderer, PixelEncoder())

    pool = load_pictures(folder)
    before, texts = drawn(), pool.vocabulary.all_tokens
    np.testing.assert_allclose(before.encode(texts), pool.encoder(PixelEncoder()).encode(texts), atol=1e-6)
    assert drawn().fingerprint == before.fingerprint
    (folder / "picture_1.png").write_bytes(encoded(made_picture(7), "PNG"))
    assert drawn().fingerprint != before.fingerprint
    assert load_pictures(folder).fingerprint != pool.fingerprint
