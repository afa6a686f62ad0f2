"""``edpbrl rank``: the pictures of a folder by a taste in pictures."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from PIL import Image

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.features.images import encode_files
from edpbrl_gym.personalize import save_taste
from edpbrl_gym.pictures import load_pictures
from tests.helpers.commands import refused
from tests.helpers.picture_files import PixelEncoder, add_odd_files, encoded, made_picture

SPEC = "picture:tests.helpers.picture_files:PixelEncoder"
PIXELS = {"encoder": SPEC, "encoder_fingerprint": PixelEncoder.fingerprint}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(8):
        (folder / f"p{number}.png").write_bytes(encoded(made_picture(number), "PNG"))
    add_odd_files(folder, tmp_path / "outside")
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))
    return folder


def test_every_picture_is_ranked_and_everything_else_named(folder, tmp_path, capsys):
    theta = np.random.default_rng(0).normal(size=12)
    save_taste(tmp_path / "taste.safetensors", theta, PIXELS)
    out = tmp_path / "out"
    arguments = ["rank", str(folder), "--taste", str(tmp_path / "taste.safetensors"), "--out", str(out), "--count", "4"]
    refused(capsys, arguments, 2, f"give --encoder {SPEC} to have that code run")
    arguments += ["--encoder", SPEC]
    assert main(arguments) == 0
    pool = load_pictures(folder)
    scores = dict(zip(pool.vocabulary.all_tokens, encode_files(PixelEncoder(), pool.files) @ theta, strict=True))
    with open(out / "ranking.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["rank"]) for row in rows] == list(range(1, len(pool) + 1))
    assert [row["text"].lstrip("'") for row in rows] == sorted(scores, key=scores.__getitem__, reverse=True)
    np.testing.assert_allclose([float(row["score"]) for row in rows], sorted(scores.values(), reverse=True), atol=1e-5)
    with open(out / "left_out.csv", newline="", encoding="utf-8") as file:
        left_out = list(csv.DictReader(file))
    assert {row["file"] for row in left_out} == set(pool.left_out)
    said = capsys.readouterr().out
    assert rows[0]["file"] in said
    assert rows[-1]["file"] in said
    assert "bomb.png: it can't be read (at most 50,000,000 pixels are opened)" in said
    for name in ("best.png", "worst.png"):
        with Image.open(out / name) as sheet:
            assert sheet.width > 4 * 256
    before = (out / "best.png").read_bytes()
    assert main(arguments) == 0
    assert (out / "best.png").read_bytes() == before


def test_a_taste_about_anything_else_is_refused(folder, tmp_path, capsys):
    taste = tmp_path / "taste.safetensors"
    for origin, said in (({"encoder": "minilm"}, "one about texts (encoder minilm)"), ({}, "one about texts"),
                         ({"attributes": [f"a{n}" for n in range(12)]}, "one about attributes")):  # fmt: skip
        save_taste(taste, np.ones(12), origin)
        refused(capsys, ["rank", str(folder), "--taste", str(taste), "--out", str(tmp_path / "out")], 2, said,
                "edpbrl ask --pictures")  # fmt: skip
    save_taste(taste, np.ones(5), PIXELS)
    assert main(["rank", str(folder), "--taste", str(taste), "--out", str(tmp_path / "out"), "--encoder", SPEC]) == 2
    assert "5 features), got picture:tests.helpers.picture_files:PixelEncoder with 12" in capsys.readouterr().err
    refused(
        capsys, ["rank", str(folder), "--taste", str(taste), "--encoder", "minilm"], 2, "with a part 'picture:NAME'"
    )
    save_taste(taste, np.ones(12), PIXELS)
    refused(capsys, ["rank", str(tmp_path / "none"), "--taste", str(taste)], 2, "Expected a folder of pictures")
    (tmp_path / "empty").mkdir()
    assert main(["rank", str(tmp_path / "empty"), "--taste", str(taste), "--encoder", SPEC]) == 2
    assert "got none that can be read; it is empty" in capsys.readouterr().err.splitlines()[-1]
    refused(capsys, ["rank", str(folder), "--taste", str(tmp_path / "no.safetensors")], 2, "Expected a taste file")


def test_standard_errors_where_the_answers_lie_beside_the_taste(folder, tmp_path):
    pool = load_pictures(folder)
    rows = pool.encoder(PixelEncoder()).encode(pool.vocabulary.all_tokens)
    prior = make_prior("blocks", rows, blocks=(5, 7))
    rng = np.random.default_rng(0)
    features = rows[rng.integers(len(rows), size=(9, 3))]
    answers = Comparisons.of_choices(
        features=features, choice=features[:, :, 0].argmax(axis=1), episode=np.arange(9), step=np.zeros(9, dtype=int)
    )
    fit = prior.fit(prior.mapped(answers))
    origin = {**PIXELS, **prior.described(fit).facts, "answers": "answers.parquet"}
    save_taste(tmp_path / "taste.safetensors", fit.estimate.theta, origin, landmarks=prior.landmarks)
    command = ["rank", str(folder), "--taste", str(tmp_path / "taste.safetensors"), "--encoder", SPEC, "--count", "0"]

    def ranked():
        assert main([*command, "--out", str(tmp_path / "out")]) == 0
        with open(tmp_path / "out" / "ranking.csv", newline="", encoding="utf-8") as file:
            return {row["file"]: row.get("standard_error") for row in csv.DictReader(file)}

    assert set(ranked().values()) == {None}
    answers.to_parquet(tmp_path / "answers.parquet")
    mapped = prior.feature_map(rows)
    expected = np.sqrt(np.einsum("nd,de,ne->n", mapped, np.linalg.inv(fit.posterior.precision), mapped))
    found = ranked()
    np.testing.assert_allclose([float(found[name]) for name in pool.names], expected, rtol=1e-3)
    answers[:5].to_parquet(tmp_path / "answers.parquet")  # others than the taste's
    assert set(ranked().values()) == {None}
