"""Score guidance: the gradient, the way up, and pictures of moved prompts, on a tiny Stable Diffusion."""

from __future__ import annotations

import io
import json
import threading

import numpy as np
import pytest
from PIL import Image

from edpbrl_gym.rendering import Renderer, RenderSettings, image_key
from edpbrl_gym.rendering.guidance import PromptGuide, check_same_features, load_projection
from edpbrl_gym.rendering.guided import GuidedRenderer, guided_key
from tests.helpers.tiny_diffusion import DIMENSION, save_projection, save_tiny_stable_diffusion

PROMPT = "a lighthouse, first snow, golden hour light"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_stable_diffusion(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def projection(model, tmp_path_factory):
    return save_projection(model, tmp_path_factory.mktemp("projection") / "clip")


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory):
    settings = RenderSettings(model=str(model), steps=2, height=32, width=32)
    return Renderer(settings, cache_folder=tmp_path_factory.mktemp("images"), device="cpu")


@pytest.fixture(scope="module")
def guided(plain, projection):
    return GuidedRenderer(plain, str(projection))


@pytest.fixture(scope="module")
def theta():
    return np.random.default_rng(5).normal(size=DIMENSION)


def reference_features(projection, model, text):
    """phi by transformers' own CLIPTextModelWithProjection."""
    import torch
    from transformers import CLIPTextModelWithProjection, CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(model / "tokenizer")
    whole = CLIPTextModelWithProjection.from_pretrained(projection)
    with torch.no_grad():
        row = whole(**tokenizer([text], return_tensors="pt")).text_embeds[0].double().numpy()
    return row / np.linalg.norm(row)


def test_features_are_those_of_the_model_with_projection(guided, projection, model):
    texts = [PROMPT, "fox", ", ".join(["a very long prompt indeed"] * 40)]
    rows = guided.guide.features(texts)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1.0)
    for text, row in zip(texts[:2], rows, strict=False):
        assert row == pytest.approx(reference_features(projection, model, text), abs=1e-6)


def test_the_gradient_agrees_with_finite_differences(guided, theta):
    import torch

    base = guided.guide
    guide = PromptGuide(base.encoder, base.tokenizer, base.projection, dtype="float64")
    assert base.encoder.dtype == torch.float32 and guide.encoder.dtype == torch.float64
    tokens = guide.tokens(PROMPT)
    here = guide.embed(tokens)
    taste = torch.as_tensor(theta)
    score, slope = guide.gradient(tokens, here, taste)
    assert score == pytest.approx(theta @ guide.features([PROMPT])[0], abs=1e-12)

    rng = np.random.default_rng(0)
    step, checked = 1e-5, 0
    words = np.flatnonzero(tokens.words[0].numpy())
    assert 3 <= len(words) < 75 and words[0] == 1
    for place in rng.choice(words, 4):
        for entry in rng.choice(here.shape[2], 5, replace=False):
            sides = []
            for sign in (1, -1):
                there = here.clone()
                there[0, place, entry] += sign * step
                sides.append(float((taste @ guide.features_of(tokens, there)).detach()))
            assert float(slope[0, place, entry]) == pytest.approx(
                (sides[0] - sides[1]) / (2 * step), rel=1e-6, abs=1e-9
            )
            checked += abs(sides[0] - sides[1]) > 0
    assert checked == 20
    still = np.setdiff1d(np.arange(here.shape[1]), words)
    assert not slope[0, still].any()  # begin, end and padding stay


def test_the_score_rises_with_the_strength_inside_the_trust_region(guided, theta):
    strengths = [0.0, 0.004, 0.01, 0.03, 0.1, 0.3, 1.0]
    moved = [guided.guide.ascend(PROMPT, theta, strength) for strength in strengths]
    scores = [one.score for one in moved]
    assert scores == sorted(scores) and len(set(scores)) == len(scores)
    assert scores[0] == moved[3].base_score == pytest.approx(theta @ guided.guide.features([PROMPT])[0])
    assert all(one.distance <= strength + 1e-6 for one, strength in zip(moved, strengths, strict=True))
    assert moved[4].distance > 0.02 and moved[-1].score <= np.linalg.norm(theta)
    assert theta @ moved[4].features == pytest.approx(moved[4].score, rel=1e-5)
    down = guided.guide.ascend(PROMPT, -theta, 0.1)
    assert -down.score < moved[0].score  # the opposite taste leads the other way
    same = guided.guide.ascend(PROMPT, 1000.0 * theta, 0.1)  # a direction has no scale
    assert float((same.embeddings - moved[4].embeddings).norm()) < 1e-4


def test_only_the_words_of_the_prompt_move(guided, theta):
    guide = guided.guide
    tokens = guide.tokens(PROMPT)
    change = (guide.ascend(PROMPT, theta, 0.2).embeddings - guide.embed(tokens))[0].norm(dim=1).numpy()
    words = tokens.words[0].numpy()
    assert (change[words] > 0).all() and not change[~words].any()


def test_strength_zero_gives_the_bytes_of_the_plain_picture_and_its_key(model, projection, theta, tmp_path):
    settings = RenderSettings(model=str(model), steps=2, height=32, width=32, negative="blurry")
    ordinary = Renderer(settings, cache_folder=tmp_path / "one", device="cpu").render([PROMPT], seed=4)[0]
    renderer = Renderer(settings, cache_folder=tmp_path / "two", device="cpu")
    # its own cache: the bytes come from prompt_embeds, not from the cache
    image, moved = GuidedRenderer(renderer, str(projection)).render(PROMPT, theta, 0.0, seed=4)
    assert image.png == ordinary.png and image.key == ordinary.key and moved.steps == 0


def test_half_precision_is_guided_in_float32(model, projection, theta, tmp_path):
    settings = RenderSettings(model=str(model), steps=2, height=32, width=32, dtype="bfloat16")
    renderer = Renderer(settings, cache_folder=tmp_path / "one", device="cpu")
    ordinary = renderer.render([PROMPT])[0]
    guided = GuidedRenderer(Renderer(settings, cache_folder=tmp_path / "two", device="cpu"), str(projection))
    same, _ = guided.render(PROMPT, theta, 0.0)
    moved, facts = guided.render(PROMPT, theta, 0.3)
    assert same.png == ordinary.png and moved.png != ordinary.png and facts.score > facts.base_score + 0.1
    assert str(facts.embeddings.dtype) == "torch.float32" and str(guided.conditioning(facts).dtype) == "torch.bfloat16"


def test_a_guided_picture_has_a_key_of_its_own_and_is_drawn_once(guided, plain, theta, monkeypatch):
    ordinary = plain.render([PROMPT], seed=1)[0]
    image, moved = guided.render(PROMPT, theta, 0.5, seed=1)
    assert image.key != ordinary.key and image.png != ordinary.png and moved.score > moved.base_score
    assert plain.render([PROMPT], seed=1)[0].png == ordinary.png  # guiding left the pipeline as it was
    record = json.loads(image.path.with_name(f"{image.key}.json").read_text())
    assert record["made"]["score_guided"]["strength"] == 0.5 and record["prompt"] == PROMPT

    def broken(*given, **options):
        raise AssertionError("drawn again")

    monkeypatch.setattr("edpbrl_gym.rendering.guided.generate", broken)
    again, _ = guided.render(PROMPT, theta, 0.5, seed=1)
    assert again.key == image.key and again.png == image.png


def test_threads_that_guide_and_that_render_wait_for_each_other(guided, plain, theta, tmp_path):
    """While a prompt is guided the text encoder reads moved embeddings: an ordinary picture must not be made then."""
    from concurrent.futures import ThreadPoolExecutor

    renderer = guided.renderer
    prompts = [f"{PROMPT}, number {i}" for i in range(12)]
    seen = []
    encoder = renderer.loaded.pipeline.text_encoder
    handle = encoder.register_forward_pre_hook(lambda module, inputs: seen.append(threading.get_ident()))
    try:
        with ThreadPoolExecutor(2) as pool:
            moving = pool.submit(lambda: [guided.render(prompt, theta, 0.02, seed=9)[0] for prompt in prompts[:4]])
            images = [image for prompt in prompts for image in renderer.render([prompt], seed=9)]
            moving.result()
    finally:
        handle.remove()
    assert len(set(seen)) == 2
    alone = Renderer(renderer.settings, cache_folder=tmp_path / "alone", device="cpu", batch_size=1)
    for image, expected in zip(images, alone.render(prompts, seed=9), strict=True):
        assert image.png == expected.png


def test_too_little_memory_for_a_guided_picture_says_what_to_do(projection, model, theta, tmp_path):
    import torch

    settings = RenderSettings(model=str(model), steps=2)
    renderer = Renderer(settings, cache_folder=tmp_path / "images", device="cpu")
    renderer.loaded.pipeline.unet.register_forward_pre_hook(lambda *given: torch.empty(2**60, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="memory for one image.*attention slicing"):
        GuidedRenderer(renderer, str(projection)).render(PROMPT, theta, 0.1)


def test_the_key_of_a_guided_picture_knows_what_guides_it(theta):
    key = image_key(PROMPT, 0, RenderSettings(model="m"), "f" * 64)
    weight = np.arange(6.0).reshape(2, 3)
    keys = {
        guided_key(key, theta, weight, 0.0),
        guided_key(key, theta, weight, 0.1),
        guided_key(key, theta, weight, 0.2),
        guided_key(key, theta + 1e-9, weight, 0.1),
        guided_key(key, theta, weight + 1e-6, 0.1),
        guided_key(image_key(PROMPT, 1, RenderSettings(model="m"), "f" * 64), theta, weight, 0.1),
    }
    assert len(keys) == 6 and key in keys


def test_the_conditioning_is_the_encoders_state_of_the_moved_embeddings(guided, theta):
    """Independent of hooks: the encoder with its token table overwritten by the moved embeddings."""
    import copy

    import torch

    moved = guided.guide.ascend("fox", theta, 0.5)
    tokens = guided.guide.tokens("fox")
    encoder = copy.deepcopy(guided.renderer.loaded.pipeline.text_encoder)
    words = tokens.words[0]
    with torch.no_grad():
        encoder.get_input_embeddings().weight[tokens.ids[0, words]] = moved.embeddings[0, words]
        expected = encoder(tokens.ids).last_hidden_state
    assert len(set(tokens.ids[0, words].tolist())) == int(words.sum())
    assert torch.allclose(guided.conditioning(moved), expected, atol=1e-6)


def test_a_flagged_guided_picture_is_marked(projection, theta, tmp_path):
    model = save_tiny_stable_diffusion(tmp_path / "model", safety_checker=True, flagging=True)
    renderer = Renderer(RenderSettings(model=str(model), steps=2), cache_folder=tmp_path / "images", device="cpu")
    image, _ = GuidedRenderer(renderer, str(projection)).render(PROMPT, theta, 0.1)
    assert image.flagged
    assert not np.asarray(Image.open(io.BytesIO(image.png))).any()  # as the pipeline returns it: black


def test_what_does_not_fit_is_refused_with_a_reason(guided, plain, model, projection, theta, tmp_path):
    guide = guided.guide
    with pytest.raises(ValueError, match=r"theta of shape \(12,\), got shape \(7,\)"):
        guide.ascend(PROMPT, np.ones(7), 0.1)
    with pytest.raises(ValueError, match="other than 0"):
        guide.ascend(PROMPT, np.zeros(DIMENSION), 0.1)
    with pytest.raises(ValueError, match="strength >= 0, got -1"):
        guide.ascend(PROMPT, theta, -1)
    with pytest.raises(ValueError, match="words to guide"):
        guide.ascend("", theta, 0.1)
    with pytest.raises(ValueError, match="ships without one.*clip-vit-large-patch14"):
        GuidedRenderer(plain).render(PROMPT, theta, 0.1)
    with pytest.raises(ValueError, match=r"lack text_projection.weight"):  # a tower without projection
        load_projection(str(model / "text_encoder"))
    with pytest.raises(FileNotFoundError, match="check the path"):
        load_projection(str(tmp_path / "none"))
    with pytest.raises(ConnectionError, match="give its folder"):
        load_projection("nobody/has-this-model")
    with pytest.raises(TypeError, match="Expected a CLIP text encoder"):
        PromptGuide(plain.loaded.pipeline.unet, plain.loaded.pipeline.tokenizer)
    import torch

    with pytest.raises(ValueError, match=r"shape \(d, 32\)"):
        PromptGuide(guide.encoder, guide.tokenizer, torch.ones(12, 31))


def test_a_taste_of_another_encoder_is_refused(guided, model, projection, tmp_path):
    texts = [PROMPT, "fox"]
    rows = np.stack([reference_features(projection, model, text) for text in texts])
    assert check_same_features(guided.guide, rows, texts, "clip") > 0.9999
    with pytest.raises(ValueError, match=r"shape \(2, 12\).*another space"):
        check_same_features(guided.guide, np.ones((2, 384)), texts, "minilm")
    other = load_projection(str(save_projection(model, tmp_path / "other", seed=4)))
    guide = PromptGuide(guided.guide.encoder, guided.guide.tokenizer, other.weight)
    with pytest.raises(ValueError, match="theta has no meaning for this pipeline"):
        check_same_features(guide, rows, texts, "clip")
