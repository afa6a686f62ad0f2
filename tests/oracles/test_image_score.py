"""The image-score user: it answers by what the pictures show, and never sees a flagged one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.features import load_encoder, load_image_encoder
from edpbrl_gym.likelihood.choice import log_softmax
from edpbrl_gym.oracles import ImageScoreUser, Oracle
from edpbrl_gym.rendering import CachedRenderer, NotDrawn, RenderSettings, load_renderer
from edpbrl_gym.rendering.diffusers import DiffusersRenderer
from tests.helpers.encoders import save_tiny_clip
from tests.helpers.tiny_diffusion import renderer_of, save_tiny_stable_diffusion

pytestmark = pytest.mark.needs("clip", "images")

STYLE = "An image with warm colors depicting bright sunshine"
WORDS = ["a gate", "a sea", "a forest, calm", "a city at night", "fog", "a gate, warm sunshine"]


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    spec = f"open_clip:local-dir:{save_tiny_clip(tmp_path_factory.mktemp('clip') / 'scores')}"
    return load_image_encoder(spec), load_encoder(spec, cache=False)


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    folder = save_tiny_stable_diffusion(tmp_path_factory.mktemp("models") / "tiny")
    settings = RenderSettings(model=str(folder), steps=2, height=32, width=32)
    return renderer_of(settings, cache_folder=tmp_path_factory.mktemp("images"), batch_size=8)


def questions(count: int) -> Queries:
    rng = np.random.default_rng(1000)
    texts = [[str(text) for text in rng.choice(WORDS, 4, replace=False)] for _ in range(count)]
    features = rng.normal(size=(count, 4, 5))  # what the user looks at is not these
    return Queries(features, np.arange(count), np.zeros(count, dtype=int), texts)


def similarities(queries: Queries, renderer: CachedRenderer, towers, seed: int = 0) -> np.ndarray:
    """CLIP similarities computed from the model itself, picture by picture."""
    import open_clip
    import torch

    name = towers[1].name.removeprefix("open_clip:")
    model, _, prepare = open_clip.create_model_and_transforms(name)
    model.eval()
    values = np.empty((len(queries), queries.num_options))
    with torch.no_grad():
        sentence = model.encode_text(open_clip.get_tokenizer(name)([STYLE]), normalize=True)[0]
        for i, options in enumerate(queries.texts):
            for k, text in enumerate(options):
                picture = renderer.render([text], seed=seed)[0].load()
                values[i, k] = model.encode_image(prepare(picture)[None], normalize=True)[0] @ sentence
    return values


def test_argmax_takes_the_picture_that_is_most_similar(renderer, towers):
    queries = questions(12)
    user = ImageScoreUser(STYLE, renderer, *towers)
    assert isinstance(user, Oracle)
    answers = user.answer(queries)
    expected = similarities(queries, renderer, towers)
    gaps = np.diff(np.sort(expected, axis=1), axis=1)[:, -1]
    assert gaps.min() > 1e-6  # no tie that rounding could decide
    np.testing.assert_array_equal(answers.choices, expected.argmax(axis=1))
    assert len(set(answers.choices.tolist())) > 1
    other = ImageScoreUser(STYLE, renderer, *towers, image_seed=1).answer(queries)
    np.testing.assert_array_equal(other.choices, similarities(queries, renderer, towers, seed=1).argmax(axis=1))
    assert not np.array_equal(other.choices, answers.choices)  # the noise of a picture counts too
    pictures = renderer.render(queries.texts[0])
    np.testing.assert_allclose(user.scores(pictures), expected[0], atol=1e-6)
    again = user.scores([picture for picture in pictures for _ in range(3)])
    np.testing.assert_array_equal(again.reshape(4, 3), np.repeat(user.scores(pictures)[:, None], 3, axis=1))


def test_questions_with_different_numbers_of_options(renderer, towers):
    whole, sizes = questions(4), [4, 2, 3, 2]
    texts = [options[:size] for options, size in zip(whole.texts, sizes, strict=True)]
    asked = Queries([whole.features[i, :size] for i, size in enumerate(sizes)], whole.episode, whole.step, texts)
    expected = similarities(whole, renderer, towers)
    answers = ImageScoreUser(STYLE, renderer, *towers).answer(asked)
    assert answers.choices.tolist() == [int(row[:size].argmax()) for row, size in zip(expected, sizes, strict=True)]


def test_sampled_answers_are_a_logit_of_the_similarities(renderer, towers):
    single = questions(1)
    count, scale = 4000, 40.0
    many = single[np.zeros(count, dtype=int)]
    user = ImageScoreUser(STYLE, renderer, *towers, mode="sampled", scale=scale, seed=1000)
    answers = user.answer(many)
    chances = np.exp(log_softmax(scale * similarities(single, renderer, towers)))[0]
    shares = np.bincount(answers.choices, minlength=4) / count
    assert chances.max() > 0.3
    assert np.abs(shares - chances).max() < 4 * np.sqrt(0.25 / count)
    user.reset()
    np.testing.assert_array_equal(user.answer(many).choices, answers.choices)
    assert answers.details["mode"] == "sampled" and answers.details["scale"] == scale


def test_questions_with_a_flagged_picture_stay_without_an_answer(renderer, towers, tmp_path, monkeypatch):
    from edpbrl_gym.rendering.diffusers import pipelines
    from edpbrl_gym.rendering.diffusers import renderer as renderer_module

    def flag_fog(loaded, settings, prompts, seeds):
        generated = pipelines.generate(loaded, settings, prompts, seeds)
        return generated._replace(flagged=[prompt == "fog" for prompt in prompts])

    queries = questions(30)
    plain = ImageScoreUser(STYLE, renderer, *towers, mode="sampled", scale=40.0, seed=5).answer(queries)
    monkeypatch.setattr(renderer_module, "generate", flag_fog)
    flagging = renderer_of(renderer.renderer.settings, cache_folder=tmp_path, batch_size=8)
    user = ImageScoreUser(STYLE, flagging, *towers, mode="sampled", scale=40.0, seed=5)
    answers = user.answer(queries)
    hidden = np.array(["fog" in options for options in queries.texts])
    assert 0 < hidden.sum() < 30 and answers.details["flagged_questions"] == hidden.sum()
    # the other answers are those that the same draws give where nothing is flagged
    np.testing.assert_array_equal(answers.choices, np.where(hidden, -1, plain.choices))
    assert np.isnan(user.scores(flagging.render(["fog", "a gate"]))).tolist() == [True, False]


def test_questions_with_an_option_that_is_not_drawn_stay_without_an_answer(renderer, towers, tmp_path):
    class Some(DiffusersRenderer):
        def draw(self, texts, seeds):
            drawn = super().draw(texts, seeds)
            return [NotDrawn("late") if text == "fog" else one for text, one in zip(texts, drawn, strict=True)]

    queries = questions(30)
    plain = ImageScoreUser(STYLE, renderer, *towers, mode="sampled", scale=40.0, seed=5).answer(queries)
    settings = renderer.renderer.settings
    some = load_renderer(Some(settings.model, steps=2, height=32, width=32, batch_size=8), cache_folder=tmp_path)
    answers = ImageScoreUser(STYLE, some, *towers, mode="sampled", scale=40.0, seed=5).answer(queries)
    hidden = np.array(["fog" in options for options in queries.texts])
    assert answers.details["undrawn_questions"] == hidden.sum() and answers.details["flagged_questions"] == 0
    np.testing.assert_array_equal(answers.choices, np.where(hidden, -1, plain.choices))


def test_description_and_details_are_json(renderer, towers):
    user = ImageScoreUser(STYLE, renderer, *towers, name="sunny")
    described = json.loads(json.dumps(user.describe()))
    assert described["oracle"] == user.name == "sunny" and described["text"] == STYLE
    assert described["model_fingerprint"] == renderer.fingerprint
    assert described["image_encoder_fingerprint"] == towers[0].fingerprint
    json.dumps(user.answer(questions(1)).details)
    empty = Queries(features=np.empty((0, 2, 5)), episode=np.empty(0, int), step=np.empty(0, int), texts=[])
    assert len(user.answer(empty).choices) == 0


def test_what_does_not_fit_is_refused(renderer, towers, minilm, tmp_path):
    images, texts = towers
    other = load_encoder(f"open_clip:local-dir:{save_tiny_clip(tmp_path / 'other', seed=1)}", cache=False)
    for text, encoder, mode, said in (
        (STYLE, minilm, "argmax", "Expected both towers of one CLIP model"),
        (STYLE, other, "argmax", "load both with the same name"),
        (" ", texts, "argmax", "text that describes the taste"),
        (STYLE, texts, "best", "mode as one of"),
    ):
        with pytest.raises(ValueError, match=said):
            ImageScoreUser(text, renderer, images, encoder, mode=mode)
    queries = questions(1)
    bare = Queries(features=queries.features, episode=queries.episode, step=queries.step)
    with pytest.raises(ValueError, match="questions with texts"):
        ImageScoreUser(STYLE, renderer, images, texts).answer(bare)
