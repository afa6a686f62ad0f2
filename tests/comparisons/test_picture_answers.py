"""Answers about pictures in the shapes of ImageReward, HPD and Pick-a-Pic."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import edpbrl_gym as eg
from edpbrl_gym.cli import main
from edpbrl_gym.comparisons.answer_files import form_of
from edpbrl_gym.features.images import encode_files
from edpbrl_gym.likelihood import Response, format_of
from edpbrl_gym.personalize import load_taste
from tests.helpers.commands import refused
from tests.helpers.picture_files import PixelEncoder, encoded, made_picture

RANKS = [[2, 1, 4, 3], [1, 2], [3, 2, 1], [1, 2, 2], [2, 1]]
QUESTIONS = [[0, 1, 2, 3], [4, 5], [6, 7, 8], [9, 10, 11], [0, 5]]
RESPONSES = [
    Response.ranking([1, 0, 3, 2]), Response.best(0), Response.ranking([2, 1, 0]), Response.best(0), Response.best(1)
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(12):
        (folder / f"p{number}.jpg").write_bytes(encoded(made_picture(number), "JPEG"))
    return folder


@pytest.fixture
def rows(folder):
    """The features of the pictures by their numbers."""
    return encode_files(PixelEncoder(), [folder / f"p{number}.jpg" for number in range(12)])


def names(numbers) -> list[str]:
    return [f"p{number}.jpg" for number in numbers]


def hpd(key="image_path", rank="rank") -> list[dict]:
    return [{"id": str(n), "prompt": f"a thing {n}", key: names(numbers), rank: ranks}
            for n, (numbers, ranks) in enumerate(zip(QUESTIONS, RANKS, strict=True))]  # fmt: skip


def one_picture_an_entry(path) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image_path", "prompt_id", "prompt", "rank", "overall_rating"])
        for n, (numbers, ranks) in enumerate(zip(QUESTIONS, RANKS, strict=True)):
            writer.writerows(
                [name, f"{n:06}", "a thing", rank, 5] for name, rank in zip(names(numbers), ranks, strict=True)
            )


def lists_in_cells(path) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "prompt", "generations", "ranking"])
        writer.writeheader()
        writer.writerows(hpd("generations", "ranking"))


WRITERS = {
    "hpd.json": lambda path: path.write_text(json.dumps(hpd())),
    "reward.json": lambda path: path.write_text(json.dumps(hpd("generations", "ranking"), indent=1)),
    "lines.jsonl": lambda path: path.write_text("\n".join(map(json.dumps, hpd("file_path"))) + "\n"),
    "rewards.csv": one_picture_an_entry,
    "lists.csv": lists_in_cells,
}


@pytest.mark.parametrize("name", WRITERS)
def test_pictures_with_ranks_are_rankings_of_their_features(name, tmp_path, folder, rows):
    WRITERS[name](tmp_path / name)
    assert form_of(tmp_path / name) == "pictures"
    found = eg.load_comparisons(tmp_path / name, image_encoder=PixelEncoder(), pictures=folder)
    assert list(found.responses) == RESPONSES
    assert found.texts == [names(numbers) for numbers in QUESTIONS]
    for question, numbers in zip(found, QUESTIONS, strict=True):
        np.testing.assert_array_equal(question.options, rows[numbers])
    assert found.metadata["encoder"] == "picture:pixels"
    assert found.metadata["encoder_fingerprint"] == PixelEncoder.fingerprint
    # as the same answers given as features
    given = eg.Comparisons(
        [rows[numbers] for numbers in QUESTIONS], tuple(RESPONSES), np.arange(5), np.zeros(5, int)
    )  # fmt: skip
    np.testing.assert_allclose(eg.estimate(found).theta, eg.estimate(given).theta, atol=1e-12)


def test_the_case_of_hpd_needs_its_pictures(tmp_path, folder):
    entries = [
        {"prompt": "a cat on a bus", "image_path": ["a0.jpg", "a1.jpg", "a2.jpg", "a3.jpg"], "rank": [2, 1, 4, 3]},
        {"prompt": "a dog in rain", "image_path": ["b0.jpg", "b1.jpg"], "rank": [1, 2]},
    ]
    (tmp_path / "hpd.json").write_text(json.dumps(entries))
    with pytest.raises(ValueError, match=r"Expected pictures and a ranking .*a0.jpg, found none.*--pictures"):
        eg.load_comparisons(tmp_path / "hpd.json")
    with pytest.raises(FileNotFoundError, match="Expected the folder of the pictures"):
        eg.load_comparisons(tmp_path / "hpd.json", image_encoder=PixelEncoder(), pictures=tmp_path / "none")


def test_people_of_hpd_train_and_their_preferences(tmp_path, folder, rows):
    entries = [
        {"human_preference": [1, 0], "prompt": "a", "file_path": names([0, 1]), "user_hash": "ann"},
        {"human_preference": [0, 1], "prompt": "b", "file_path": names([2, 3]), "user_hash": "bob"},
        {"human_preference": [0, 0, 1, 0], "prompt": "c", "file_path": names([4, 5, 6, 7]), "user_hash": "ann"},
        {"human_preference": [0, 1, 1], "prompt": "d", "file_path": names([4, 5, 6]), "user_hash": "ann"},
    ]
    (tmp_path / "train.json").write_text(json.dumps(entries))
    ann, bob = eg.load_people(tmp_path / "train.json", image_encoder=PixelEncoder(), pictures=folder)
    assert (ann.who, bob.who) == ("ann", "bob")
    assert list(ann.responses) == [Response.best(0), Response.best(2)]
    assert list(bob.responses) == [Response.best(1)]
    np.testing.assert_array_equal(bob[0].options, rows[[2, 3]])


def test_pick_a_pic_has_bytes_labels_and_ties(tmp_path, rows):
    import pyarrow
    import pyarrow.parquet

    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    pictures = {number: encoded(made_picture(number), "JPEG") for number in range(8)}
    table = pyarrow.table({
        "caption": ["a", "b", "c", "d"],
        "jpg_0": [pictures[a] for a, _ in pairs], "jpg_1": [pictures[b] for _, b in pairs],
        "label_0": [1.0, 0.0, 0.5, 1.0], "label_1": [0.0, 1.0, 0.5, 0.0],
        "has_label": [True, True, True, False], "image_0_uid": list("wxyz"), "image_1_uid": list("WXYZ"),
    })  # fmt: skip
    pyarrow.parquet.write_table(table, tmp_path / "pick.parquet")
    found = eg.load_comparisons(tmp_path / "pick.parquet", image_encoder=PixelEncoder())
    assert [response.kind for response in found.responses] == ["best", "best", "tie"]
    assert [response.first for response in found.responses] == [0, 1, None]
    np.testing.assert_allclose(np.stack([one.options for one in found]), rows[[list(pair) for pair in pairs[:3]]])
    found.to_parquet(tmp_path / "again.parquet")
    again = eg.load_comparisons(tmp_path / "again.parquet")
    assert again.metadata == found.metadata


def test_a_tie_beside_rankings_and_pictures_that_are_not_there_are_left_out_by_name(tmp_path, folder, caplog):
    (folder / "cut.jpg").write_bytes(encoded(made_picture(3, (300, 300)), "JPEG")[:900])
    entries = [
        {"prompt": "a", "images": names([0, 1, 2]), "rank": [1, 2, 3]},
        {"prompt": "b", "images": names([0, 1]), "rank": [1, 1]},
        {"prompt": "c", "images": ["p0.jpg", "gone.jpg"], "rank": [1, 2]},
        {"prompt": "d", "images": ["p0.jpg", "cut.jpg"], "rank": [1, 2]},
        {"prompt": "e", "images": ["p0.jpg", "../images/p1.jpg"], "rank": [1, 2]},
        {"prompt": "f", "images": ["p0.jpg", "p0.jpg"], "rank": [1, 2]},
    ]
    (tmp_path / "hpd.json").write_text(json.dumps(entries))
    found = eg.load_comparisons(tmp_path / "hpd.json", image_encoder=PixelEncoder(), pictures=folder)
    assert list(found.responses) == [Response.ranking([0, 1, 2])]
    assert "4 questions without their pictures; entry 3: Expected an image file at" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"prompt": "a", "image_path": ["p0.jpg", "p1.jpg"], "rank": [1]}]',
         r"of each of 2 pictures in entry 1 of .*got \[1\]"),
        ('[{"prompt": "a", "image_path": ["p0.jpg", 7], "rank": [1, 2]}]',
         "file of a picture, or its bytes, in entry 1"),
        ('[{"prompt": "a", "image_path": ["p0.jpg", "p1.jpg"], "rank": ["x", "y"]}]', "rank or label .*'x'"),
        ('[{"prompt": "a", "image_path": ["p0.jpg", "p1.jpg"], "rank": [1, 2]}', "as JSON"),
        ('[["image_path", {"image_path": 1, "rank": 2}]]', "an object as entry 1"),
        ('{"image_0_url": "http://x/1", "image_1_url": "http://x/2", "label_0": 1, "label_1": 0}',
         "got their addr"),
        ('[{"image_path": null, "rank": [1]}]', r"Expected pictures \(image_path\) and their rank"),
    ],
)  # fmt: skip
def test_what_is_damaged_is_said_in_one_line(text, said, tmp_path, folder):
    (tmp_path / "hpd.json").write_text(text)
    with pytest.raises(ValueError, match=said) as caught:
        eg.load_comparisons(tmp_path / "hpd.json", image_encoder=PixelEncoder(), pictures=folder)
    assert "\n" not in str(caught.value)


def test_estimate_learns_a_taste_from_pictures(tmp_path, folder, capsys, monkeypatch):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "hpd.json").write_text(json.dumps(hpd()))
    spec, out = "tests.helpers.picture_files:PixelEncoder", tmp_path / "taste.safetensors"
    arguments = ["estimate", str(tmp_path / "hpd.json"), "--pictures", str(folder), "--out", str(out)]
    assert main([*arguments, "--image-encoder", spec, "--prior", "ridge", "--regularization", "0.5"]) == 0
    taste = load_taste(out)
    assert taste.provenance["encoder"] == f"picture:{spec}"
    answers = eg.load_comparisons(tmp_path / "hpd.json", image_encoder=spec, pictures=folder)
    np.testing.assert_allclose(
        taste.theta, eg.estimate(answers, regularization=0.5, model=format_of(RESPONSES)).theta, atol=1e-6
    )
    assert "5 questions with 2 to 4 options" in capsys.readouterr().out
    assert main([*arguments, "--image-encoder", spec]) == 0, "the default prior: the spread of the pictures"
    assert taste.vocabulary() is None
    capsys.readouterr()
    for more, said in (
        (["--vocabulary", "images"], "Expected no --vocabulary"),
        (["--encoder", "minilm"], "no --encoder"),
    ):
        assert main([*arguments, "--image-encoder", spec, *more]) == 2
        assert said in capsys.readouterr().err
    refused(capsys, [*arguments, "--image-encoder", "nonsense"], 2, "Expected an image encoder of one of the forms")
    (tmp_path / "long.csv").write_text("question,option,chosen,price\n1,a,1,2\n1,b,0,3\n")
    assert main(["estimate", str(tmp_path / "long.csv"), "--image-encoder", spec, "--out", str(out)]) == 2
    assert "Expected answers about pictures with --image-encoder" in capsys.readouterr().err
