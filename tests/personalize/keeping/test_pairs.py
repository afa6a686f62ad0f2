"""Pairs for preference training against pairs by hand, read as trainers read them."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest
from PIL import Image

from edpbrl_gym.likelihood import Response
from edpbrl_gym.personalize.keeping import preferred_options, write_pairs


def png(level: int, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (level, 20, 40)).save(stream, kind)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("response", "pairs"),
    [
        (Response.best(1), {(1, 0), (1, 2), (1, 3)}),
        (Response.best_worst(2, 0), {(2, 0), (2, 1), (2, 3), (1, 0), (3, 0)}),
        (Response.ranking([3, 1, 0, 2]), {(3, 1), (3, 0), (3, 2), (1, 0), (1, 2), (0, 2)}),
        (Response.partial([3, 1]), {(3, 1), (3, 0), (3, 2), (1, 0), (1, 2)}),
        (Response.rating([0, 2, 2, 1]), {(1, 0), (2, 0), (3, 0), (1, 3), (2, 3)}),
        (Response.rating([1, 0, 1, 0]), {(0, 1), (0, 3), (2, 1), (2, 3)}),
        (Response.rating([2, 2, 2, 2]), set()),
        (Response.tie(), set()),
        (Response.skip(), set()),
    ],
)
def test_who_is_above_whom(response, pairs):
    found = preferred_options(response, 4)
    assert len(found) == len(set(found)) and set(found) == pairs


def test_the_table_is_what_trainers_read(tmp_path):
    pictures = {"a hut, ink": png(10), "a hut, oil": png(90), "a hut, clay": png(200, "JPEG"), "same": png(10)}
    questions = [
        ("a hut, ink", "a hut, oil", "a hut, clay"),
        ("a hut, oil", "a hut, ink"),
        ("a hut, oil", "not drawn"),
        ("same", "a hut, ink"),
    ]
    responses = [Response.best(1), Response.tie(), Response.best(0), Response.best(0)]
    assert write_pairs(tmp_path / "pairs", questions, responses, pictures, caption="a hut") == 2
    table = pq.read_table(tmp_path / "pairs" / "pairs.parquet")
    assert {"caption", "jpg_0", "jpg_1", "label_0", "label_1"} <= set(table.column_names)
    rows = table.to_pylist()
    assert [(row["prompt_0"], row["prompt_1"], row["label_0"], row["label_1"], row["ranking_id"]) for row in rows] == [
        ("a hut, ink", "a hut, oil", 0.0, 1.0, 0),
        ("a hut, oil", "a hut, clay", 1.0, 0.0, 0),
    ]
    for row in rows:  # as train_diffusion_dpo.py does
        winner, loser = (Image.open(io.BytesIO(row[name])).convert("RGB") for name in ("jpg_0", "jpg_1"))
        if row["label_0"] == 0:
            winner, loser = loser, winner
        assert row["caption"] == "a hut" and winner.getpixel((0, 0)) == (90, 20, 40) != loser.getpixel((0, 0))
        for side in "01":
            file = tmp_path / "pairs" / "pictures" / row[f"image_{side}_uid"]
            assert file.read_bytes() == row[f"jpg_{side}"]
        assert row["best_image_uid"] == row["image_0_uid" if row["label_0"] else "image_1_uid"]
    assert rows[1]["image_1_uid"].endswith(".jpg")
    assert len(list((tmp_path / "pairs" / "pictures").iterdir())) == 3
    readme = (tmp_path / "pairs" / "README.md").read_text()
    assert "path: pairs.parquet" in readme and "one person: 2." in readme


def test_without_a_subject_the_caption_is_the_winners_prompt(tmp_path):
    write_pairs(tmp_path, [("a", "b")], [Response.best(1)], {"a": png(1), "b": png(2)})
    assert pq.read_table(tmp_path / "pairs.parquet")["caption"].to_pylist() == ["b"]


def test_pictures_rated_one_at_a_time_are_paired_with_the_five_before(tmp_path):
    texts = [f"p{number}" for number in range(8)]
    levels = [3, 0, 3, 3, 3, 3, 3, 1]
    pictures = {text: png(number) for number, text in enumerate(texts)}
    count = write_pairs(tmp_path, [(text,) for text in texts], [Response.rating([level]) for level in levels], pictures)
    rows = pq.read_table(tmp_path / "pairs.parquet").to_pylist()
    found = [(row["prompt_0"], row["prompt_1"], bool(row["label_0"])) for row in rows]
    by_hand = [("p0", "p1", True), *(("p1", f"p{n}", False) for n in range(2, 7)),
               *((f"p{n}", "p7", True) for n in range(2, 7))]  # fmt: skip
    assert found == by_hand and count == 11


def test_each_picture_is_stored_once_in_a_group_of_rows(tmp_path):
    import numpy as np

    noise = np.random.default_rng(0).integers(0, 255, (5, 300, 300, 3), dtype=np.uint8)
    pictures = {}
    for number, levels in enumerate(noise):
        stream = io.BytesIO()
        Image.fromarray(levels).save(stream, "PNG")
        pictures[f"p{number}"] = stream.getvalue()
    assert write_pairs(tmp_path, [tuple(pictures)], [Response.ranking([0, 1, 2, 3, 4])], pictures) == 10
    assert (tmp_path / "pairs.parquet").stat().st_size < 2.1 * sum(map(len, pictures.values()))


def test_without_a_pair_nothing_is_written(tmp_path):
    assert write_pairs(tmp_path / "none", [("a", "b")], [Response.skip()], {"a": png(1), "b": png(2)}) == 0
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="PNG, JPEG or WebP"):
        write_pairs(tmp_path, [("a", "b")], [Response.best(0)], {"a": b"GIF89a", "b": png(2)})
