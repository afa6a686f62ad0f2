"""Pools of pictures and of prompts."""

from __future__ import annotations

import math
import os
from collections import Counter

import numpy as np
import pytest
from PIL import Image

import edpbrl_gym as eg
from edpbrl_gym._pictures import LONGEST, read_picture
from edpbrl_gym.pictures import load_pictures, prompt_pool
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary
from tests.helpers.picture_files import READ, add_odd_files, encoded, made_picture, rotated


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(6):
        (folder / f"a_picture of {number}.png").write_bytes(encoded(made_picture(number), "PNG"))
    return folder


def test_a_folder_is_a_pool(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "a_picture of 3.jpg").write_bytes(encoded(made_picture(30), "JPEG"))
    pool = eg.load_pictures(folder)
    assert pool.vocabulary.names == ("picture",)
    assert pool.vocabulary.all_tokens == [
        "a picture of 0", "a picture of 1", "a picture of 2", "a picture of 3 (a_picture of 3.png)", "a picture of 4",
        "a picture of 5", "a picture of 3 (a_picture of 3.jpg)",
    ]  # fmt: skip
    assert [file.relative_to(folder).as_posix() for file in pool.files][-1] == "sub/a_picture of 3.jpg"
    assert len(pool) == 7
    assert pool.left_out == {}
    assert load_pictures(folder) == pool


def test_odd_files_are_read_or_named_and_left_out(folder, tmp_path):
    expected = add_odd_files(folder, tmp_path / "outside")
    pool = load_pictures(folder)
    names = {file.name for file in pool.files}
    for name, what in expected.items():
        assert (name in names) == (what == READ), (name, pool.left_out.get(name))
        assert (name in pool.left_out) == (what != READ), name
    assert names | set(pool.left_out) == {f"a_picture of {n}.png" for n in range(6)} | set(expected)
    assert all(pool.left_out.values())
    assert "\n".join([*pool.left_out, *pool.left_out.values(), *pool.vocabulary.all_tokens]).encode()
    assert pool.left_out["zz copy.png"] == "the same picture as sound.png"
    assert "install pillow-heif" in pool.left_out["phone.heic"]
    assert pool.left_out["bomb.png"] == "it can't be read (at most 50,000,000 pixels are opened)"
    assert str(folder) not in " ".join(pool.left_out.values())
    assert len(set(pool.files)) == len(pool)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission_is_named(folder):
    (folder / "a_picture of 1.png").chmod(0)
    assert "a_picture of 1.png" in load_pictures(folder).left_out


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_table_gives_the_prompts(folder, separator):
    lines = ["image_path{}caption", "a_picture of 4.png{}a cat on a bus", "a_picture of 0.png{}a dog in rain"]
    lines += ["a_picture of 1.png{}a dog in rain", "gone.png{}gone", "../secret.png{}secret", "a_picture of 2.png{}"]
    name = "prompts.csv" if separator == "," else "prompts.tsv"
    (folder / name).write_text("\n".join(line.format(separator) for line in lines))
    (folder.parent / "secret.png").write_bytes(encoded(made_picture(90), "PNG"))
    pool = load_pictures(folder)
    assert pool.vocabulary.all_tokens == [
        "a cat on a bus", "a dog in rain (a_picture of 0.png)", "a dog in rain (a_picture of 1.png)"
    ]  # fmt: skip
    assert pool.left_out["gone.png"] == f"named in line 5 of {name}, but not there"
    assert "not below" in pool.left_out["../secret.png"]
    assert pool.left_out["a_picture of 2.png"] == f"without a prompt in line 7 of {name}"
    assert pool.left_out["a_picture of 3.png"] == f"not in {name}"
    assert load_pictures(folder / name).vocabulary == pool.vocabulary


def test_a_parquet_table_gives_the_prompts_and_two_tables_are_refused(folder):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"file": ["a_picture of 4.png"], "prompt": ["a cat"], "rating": [3]})
    frame.to_parquet(folder / "prompts.parquet")
    (folder / "answers.csv").write_text("question,choice\n1,2\n")
    pool = load_pictures(folder)
    assert pool.vocabulary.all_tokens == ["a cat"]
    assert pool.left_out["answers.csv"] == "a table without the columns file and prompt"
    (folder / "other.csv").write_text("file,text\na_picture of 4.png,a dog\n")
    with pytest.raises(ValueError, match=r"Expected one table .* got other.csv, prompts.parquet; give the table"):
        load_pictures(folder)
    assert load_pictures(folder / "other.csv").vocabulary.all_tokens == ["a dog"]


def test_a_folder_without_a_picture_says_what_is_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected a folder of pictures at .*nothing"):
        load_pictures(tmp_path / "none")
    with pytest.raises(ValueError, match="got none that can be read; it is empty"):
        load_pictures(tmp_path)
    (tmp_path / "text.png").write_text("text")
    with pytest.raises(ValueError, match=r"got none that can be read; left out: text.png \(it can't be read"):
        load_pictures(tmp_path)
    with pytest.raises(ValueError, match="Expected a folder of pictures, or a table"):
        load_pictures(tmp_path / "text.png")


# -- what is read ------------------------------------------------------------------------------------------------------


def near(picture: Image.Image, other: Image.Image, tolerance: float = 12.0) -> bool:
    if picture.size != other.size:
        return False
    difference = np.asarray(picture, float) - np.asarray(other, float)
    return bool(np.abs(difference).mean() < tolerance)


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_picture_is_upright(orientation):
    assert near(read_picture(rotated(made_picture(1), orientation)), made_picture(1))


def test_transparency_is_on_white_whatever_the_mode():
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    forms = {"RGBA": clear, "LA": clear.convert("LA"), "P": clear.quantize()}
    for mode, picture in forms.items():
        assert np.asarray(read_picture(encoded(picture, "PNG"))).min() == 255, mode
    keyed = encoded(Image.new("RGB", (4, 4), (9, 9, 9)), "PNG", transparency=(9, 9, 9))
    assert np.asarray(read_picture(keyed)).min() == 255


def test_colours_of_print_and_of_16_bits_are_seen():
    assert near(read_picture(encoded(made_picture(2).convert("CMYK"), "JPEG", quality=95)), made_picture(2))
    grey = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    seen = np.asarray(read_picture(encoded(Image.fromarray(grey), "PNG")))[..., 0]
    assert np.abs(seen - grey / 257.0).max() <= 0.5


def test_a_large_picture_is_made_smaller_and_a_long_one_stays_a_picture():
    large = encoded(made_picture(3, (3000, 2000)), "JPEG")
    assert read_picture(large).size == (LONGEST, round(LONGEST * 2 / 3))
    assert near(read_picture(large, longest=48), made_picture(3), 4.0)
    assert read_picture(encoded(Image.new("L", (9000, 1)), "PNG")).size == (LONGEST, 1)


def test_damaged_exif_is_no_reason_to_refuse_a_picture(recwarn):
    data = encoded(made_picture(4), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff" + bytes(range(40)))
    assert near(read_picture(data), made_picture(4))
    assert not recwarn.list


# -- prompts -----------------------------------------------------------------------------------------------------------


def used(vocabulary: Vocabulary, pool: Vocabulary) -> list[Counter]:
    """How often the pool uses the tokens of each step."""
    rows = [text.split(SEPARATOR) for text in pool.all_tokens]
    return [Counter({token: 0 for token in step}) + Counter(column) for step, column in zip(
        vocabulary.tokens, zip(*rows, strict=True), strict=True)]  # fmt: skip


@pytest.mark.parametrize(("sizes", "count"), [((4, 4, 4), 40), ((3, 5, 7), 60), ((2, 2, 2), 8), ((16,) * 6, 100),
                                              ((9, 10), 90), ((1, 6), 6), ((500, 400, 300), 1000)])  # fmt: skip
def test_a_pool_of_prompts_is_balanced_and_without_repetition(sizes, count):
    vocabulary = Vocabulary.from_lists([[f"s{h}t{a}" for a in range(size)] for h, size in enumerate(sizes)])
    pool = prompt_pool(vocabulary, count, seed=3)
    assert pool.names == ("prompt",)
    assert len(set(pool.all_tokens)) == count
    for step, times in zip(vocabulary.tokens, used(vocabulary, pool), strict=True):
        numbers = [times[token] for token in step]
        assert sum(numbers) == count
        assert max(numbers) - min(numbers) <= 1, "each token about equally often"
    assert prompt_pool(vocabulary, count, seed=3) == pool
    if 1 < count < math.prod(sizes):
        assert set(prompt_pool(vocabulary, count, seed=4).all_tokens) != set(pool.all_tokens)


def test_a_pool_of_prompts_about_a_subject():
    vocabulary = Vocabulary.from_lists(
        {"subject": ["a bear", "a cat"], "style": ["ink", "oil"], "light": ["dim", "low"]}
    )
    pool = prompt_pool(vocabulary, 4, seed=0, subject="a lighthouse on a cliff")
    assert sorted(pool.all_tokens) == [
        f"a lighthouse on a cliff, {style}, {light}" for style in ("ink", "oil") for light in ("dim", "low")
    ]
    with pytest.raises(ValueError, match="Expected a pool of at most 4 prompts, .* got 5; ask for fewer"):
        prompt_pool(vocabulary, 5, seed=0, subject="a lighthouse")


def test_prompts_that_read_alike_are_one_item():
    vocabulary = Vocabulary.from_lists([["a", "a, b"], ["b, c", "c"]])  # "a, b, c" in two ways
    assert len(set(prompt_pool(vocabulary, 3, seed=0).all_tokens)) == 3
    with pytest.raises(ValueError, match="at most 3 different texts, got 4"):
        prompt_pool(vocabulary, 4, seed=0)
