"""Learning from what was seen: sessions on a pool by text and picture, and their tastes."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.blocks import BlocksPrior
from edpbrl_gym.estimation.items import ItemsPrior
from edpbrl_gym.features import load_encoder, load_image_encoder
from edpbrl_gym.likelihood import Response
from edpbrl_gym.personalize import load_taste, save_taste
from edpbrl_gym.pictures.drawn import DrawnEncoder, features_of, seen_answers
from edpbrl_gym.planners import make_planner
from edpbrl_gym.rendering import load_renderer
from edpbrl_gym.session import Session
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.commands import refused
from tests.helpers.renderers import Colours

TEXT, IMAGES = "tests.helpers.encoders:OwnEncoder", "tests.helpers.encoders:OwnImages"
POOL = Vocabulary(("prompt",), (tuple(f"a thing, number {number}" for number in range(60)),))


@pytest.fixture
def drawn(tmp_path):
    renderer = load_renderer(Colours(), cache_folder=tmp_path / "images")
    return DrawnEncoder(renderer, load_image_encoder(IMAGES, cache=False))


def answer(drawn, texts) -> int:
    """Of a person who likes green."""
    return int(drawn.encode(texts)[:, 1].argmax())


@pytest.mark.parametrize("feedback", ["state", "prompt"])
def test_a_session_on_a_pool_learns_from_texts_and_pictures(drawn, tmp_path, feedback):
    encoder = features_of("both", load_encoder(TEXT, cache=False), drawn)

    def planner():
        return make_planner("adaptive", POOL, encoder, feedback=feedback, num_options=4, seed=1)

    assert isinstance(planner().prior, ItemsPrior) and planner().prior.options["blocks"] == [8, 3]
    parts = {"vocabulary": POOL, "encoder": encoder}
    with Session(planner, feedback=feedback, folder=tmp_path / "session", **parts) as session:
        for _ in range(25):
            question = session.ask()
            session.tell(answer(drawn, question.texts))
        before = session.theta
        session.undo()
        session.tell(answer(drawn, session.ask().texts))
        np.testing.assert_array_equal(session.theta, before)
        assert 0.5 < session.progress().accuracy < 1
        best = [one.text for one in session.recommend(3)]
        session.words()
        answers, theta = session.comparisons, session.theta
        assert answers.metadata["blocks"] == [8, 3] and answers.dimension == 11
        utilities = session.memo.encode(POOL.all_tokens) @ theta
    green = drawn.encode(POOL.all_tokens)[:, 1]
    assert np.corrcoef(utilities, green)[0, 1] > 0.8
    assert np.mean([np.mean(green < drawn.encode([text])[0, 1]) for text in best]) > 0.8
    with Session.resume(tmp_path / "session", planner, **parts) as again:
        np.testing.assert_array_equal(again.theta, theta)
    # its file, and the encoder that is made from it
    prior = planner().prior
    fit = prior.fit(prior.mapped(answers).terms(session.model))
    facts = {**prior.described(fit).facts, "encoder": encoder.name}
    save_taste(tmp_path / "taste.safetensors", fit.estimate.theta, facts, vocabulary=POOL, landmarks=prior.landmarks)
    taste = load_taste(tmp_path / "taste.safetensors")
    loaded = load_encoder(f"{TEXT}+picture:{IMAGES}", cache=False, drawn=drawn)
    rows = taste.encoder(loaded).encode(POOL.all_tokens)
    np.testing.assert_allclose(rows @ taste.theta, utilities, atol=1e-4)


def test_answers_about_prompts_by_their_pictures(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))
    drawn = DrawnEncoder(load_renderer(Colours(), cache_folder=tmp_path / "cache" / "images"),
                         load_image_encoder(IMAGES, cache=False))  # fmt: skip
    rng = np.random.default_rng(0)
    texts = [[POOL.tokens[0][item] for item in rng.choice(60, 4, replace=False)] for _ in range(30)]
    encoder = load_encoder(TEXT, cache=False)
    features = np.stack([encoder.encode(question) for question in texts])
    responses = tuple(Response.best(answer(drawn, question)) for question in texts)
    known = {"encoder": TEXT, "encoder_fingerprint": encoder.fingerprint}
    zeros = np.zeros(30, dtype=int)
    answers = Comparisons(features, responses, np.arange(30), zeros, texts=texts, metadata=known)
    answers.to_parquet(tmp_path / "answers.parquet")
    seen = seen_answers(answers, features_of("both", encoder, drawn))
    assert seen.metadata["blocks"] == [8, 3] and seen.responses == answers.responses
    np.testing.assert_allclose(seen.features[3, 1, 8:], drawn.encode([texts[3][1]])[0] / np.sqrt(2), atol=1e-7)
    out = tmp_path / "taste.safetensors"
    arguments = ["estimate", str(tmp_path / "answers.parquet"), "--out", str(out), "--image-encoder", IMAGES]
    drawing = ["--renderer", "tests.helpers.renderers:Colours"]
    refused(capsys, [*arguments, "--features", "both"], 2, "Expected --renderer, which draws the pictures")
    refused(capsys, [*arguments, *drawing], 2, "none with text; got --features text")
    fits = {}
    for kind, spec in (("picture", f"picture:{IMAGES}"), ("both", f"{TEXT}+picture:{IMAGES}")):
        assert main([*arguments, *drawing, "--features", kind, "--encoder", TEXT]) == 0
        said = capsys.readouterr().out
        assert "reproduces" in said and ("blocks of features (8 features" in said) == (kind == "both")
        taste = load_taste(out)
        assert taste.provenance["encoder"] == spec
        whole = load_encoder(spec, cache=False, drawn=drawn)
        utilities = taste.encoder(whole).encode(POOL.all_tokens) @ taste.theta
        fits[kind] = np.corrcoef(utilities, drawn.encode(POOL.all_tokens)[:, 1])[0, 1]
    assert min(fits.values()) > 0.75
    with pytest.raises(ValueError, match="with the texts of their options"):
        seen_answers(Comparisons(features, responses, np.arange(30), zeros), drawn)


def test_a_taste_in_both_ranks_a_folder(drawn, tmp_path, monkeypatch):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, image in enumerate(drawn.renderer.render(POOL.tokens[0][:12])):
        (folder / f"p{number}.png").write_bytes(image.path.read_bytes())
    rng = np.random.default_rng(1)
    prior = BlocksPrior(rng.normal(size=(40, 11)), blocks=[8, 3])
    theta, spec = rng.normal(size=prior.dimension), f"{TEXT}+picture:{IMAGES}"
    facts = {"encoder": spec, "prior": "blocks", "prior_options": prior.options}
    save_taste(tmp_path / "taste.safetensors", theta, facts, landmarks=prior.landmarks)
    arguments = ["rank", str(folder), "--taste", str(tmp_path / "taste.safetensors"), "--encoder", spec]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    with open(tmp_path / "out" / "ranking.csv", newline="", encoding="utf-8") as file:
        ranked = [row["text"] for row in csv.DictReader(file)]
    images = load_image_encoder(IMAGES, cache=False).encode_images([folder / f"{text}.png" for text in ranked])
    rows = np.concatenate([load_encoder(TEXT, cache=False).encode(ranked), images], axis=1) / np.sqrt(2)
    scores = prior.feature_map(rows) @ theta
    assert len(ranked) == 12 and (np.diff(scores) <= 1e-6).all()
