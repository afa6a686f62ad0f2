"""What a pipeline reads of prompts: a cut is marked where, and only where, the end of a prompt changes no pixel.

Negative prompts and other settings change the picture, or are refused before it is drawn.
"""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from edpbrl_gym.rendering import RenderSettings
from edpbrl_gym.rendering.diffusers import LoadedPipeline, load_pipeline
from edpbrl_gym.rendering.diffusers.pipelines import generate
from edpbrl_gym.rendering.diffusers.reading import TextWatch
from tests.helpers.tiny_diffusion import renderer_of, save_tiny_stable_diffusion
from tests.helpers.tiny_pipelines import PIPELINES, save_tiny_pipeline

# tokens that a prompt may have, without the marks of the tokenizer; where there is a template, it depends on its pieces
LENGTHS: dict[str, int | None] = {"sd1": 75, "sdxl": 75, "sd3": 255, "flux": 511, "pixart": 299}
LENGTHS |= dict.fromkeys(("qwen-image", "z-image", "sana"))
GUIDANCE = {"flux without guidance": 0.0}


class _Stop(Exception):
    """Ends a call when the texts have been read."""


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    loaded: dict[str, LoadedPipeline] = {}

    def loading(kind):
        if kind not in loaded:
            folder = tmp_path_factory.mktemp("models") / kind.replace(" ", "-")
            (save_tiny_stable_diffusion(folder) if kind == "sd1" else save_tiny_pipeline(kind, folder))
            loaded[kind] = load_pipeline(RenderSettings(model=str(folder)), "cpu")
        return loaded[kind]

    return loading


def of(loaded, **changes):
    return RenderSettings(**{"model": loaded.name, "steps": 2, "guidance": 4.0, "height": 32, "width": 32, **changes})


def draw(loaded, prompt, **changes):
    return generate(loaded, of(loaded, **changes), [prompt], [0])


def words(count, last="a"):
    return " ".join(["a"] * (count - 1) + [last])


def cut_of(loaded, prompts):
    def stop(*_):
        raise _Stop

    pipeline = loaded.pipeline
    denoiser = getattr(pipeline, "transformer", None) or pipeline.unet
    handle = denoiser.register_forward_pre_hook(stop)
    try:
        with TextWatch(pipeline, prompts) as watch:
            pipeline(prompt=list(prompts), num_inference_steps=1, height=32, width=32)
    except _Stop:
        pass
    finally:
        handle.remove()
    return [watch.is_cut(prompt) for prompt in prompts]


@pytest.mark.parametrize("kind", LENGTHS)
def test_a_prompt_is_cut_where_its_end_changes_no_pixel(kind, load):
    loaded = load(kind)
    low, high = 1, 600  # not cut, cut
    while high - low > 1:
        middle = (low + high) // 2
        (cut,) = cut_of(loaded, [words(middle)])
        low, high = (low, middle) if cut else (middle, high)
    assert LENGTHS[kind] in (None, low)

    def pixels(prompt, cut):
        drawn = draw(loaded, prompt)
        assert drawn.read.is_cut(prompt) == cut
        return drawn.pixels

    assert np.array_equal(pixels(words(high), True), pixels(words(high, "in"), True))
    assert np.array_equal(pixels(words(high), True), pixels(words(low) + " a quiet street, rain", True))
    assert not np.array_equal(pixels(words(low), False), pixels(words(low, "in"), False))


def test_a_word_that_is_read_in_part_is_cut_and_a_space_is_not(load):
    loaded = load("sd1")
    long_word = "lighthouse" * 4
    pieces = len(loaded.pipeline.tokenizer(long_word)["input_ids"]) - 2
    assert pieces > 2
    whole, half = f"{words(75 - pieces)} {long_word}", f"{words(76 - pieces)} {long_word}"
    assert cut_of(loaded, [whole, half, words(75) + "   "]) == [False, True, False]
    assert cut_of(loaded, [whole.upper(), "  " + whole, ""]) == [False, False, False]


def test_prompts_that_begin_alike_are_told_apart_in_a_batch(load):
    loaded = load("z-image")  # puts prompts into a template
    prompts = ["a sea", "a sea, fog", words(600), words(600) + ", fog", "a sea"]
    drawn = generate(loaded, of(loaded, steps=1), prompts, range(5))
    assert [drawn.read.is_cut(prompt) for prompt in prompts] == [False, False, True, True, False]


def test_an_encoder_that_reads_on_is_named_and_no_prompt_is_logged(load, tmp_path, caplog, capfd):
    loaded = load("sd3")
    renderer = renderer_of(of(loaded, steps=1), cache_folder=tmp_path, batch_size=1)
    with caplog.at_level(logging.WARNING):
        images = renderer.render([words(80), words(81), words(300, "in")])
    assert [image.cut for image in images] == [False, False, True]
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "Some prompts are longer than tokenizer, tokenizer_2 of the model keeps; tokenizer_3 reads them to the end",
        "1 of 1 prompts are longer than the model reads; their ends have no effect",
    ]
    assert "a a" not in "".join(capfd.readouterr())
    # a checkpoint without its third encoder reads as far as the others
    loaded.pipeline.text_encoder_3, third = None, loaded.pipeline.text_encoder_3
    try:
        assert cut_of(loaded, [words(75), words(76)]) == [False, True]
    finally:
        loaded.pipeline.text_encoder_3 = third


@pytest.mark.parametrize("kind", ["sd1", *PIPELINES])
def test_a_negative_prompt_changes_the_picture_or_is_refused(kind, load):
    loaded = load(kind)
    scales = {"true_cfg_scale": 3.0} if "flux" in kind else {}
    guided = {"guidance": GUIDANCE.get(kind, 4.0), **scales}
    plain = draw(loaded, "a gate", **guided).pixels
    negative = draw(loaded, "a gate", negative="dark, blurry", **guided)
    assert not np.array_equal(plain, negative.pixels) and not negative.read.negative_is_cut
    long = [draw(loaded, "a gate", negative=f"{words(1200)} {end}", **guided) for end in ("dark", "rain, fog")]
    assert all(one.read.negative_is_cut and not one.read.is_cut("a gate") for one in long)
    assert np.array_equal(long[0].pixels, long[1].pixels)
    for guidance in (0.0, 1.0) if kind != "z-image" else (0.0,):  # which adds its guidance to 1
        steps = []
        denoiser = getattr(loaded.pipeline, "transformer", None) or loaded.pipeline.unet
        handle = denoiser.register_forward_hook(lambda *_, steps=steps: steps.append(1))
        with pytest.raises(ValueError, match=r"Expected (no negative prompt|true_cfg_scale above 1).*leave the neg"):
            draw(loaded, "a gate", negative="dark, blurry", guidance=guidance)
        handle.remove()
        assert not steps


@pytest.mark.parametrize("kind", ["sdxl", "sd3", "flux", "qwen-image", "z-image"])
def test_a_renderer_marks_two_prompts_that_differ_only_in_what_is_cut(kind, load, tmp_path):
    settings = of(load(kind), steps=1, guidance=None)  # the pipeline's own
    plain, *long = renderer_of(settings, cache_folder=tmp_path).render(
        ["a gate", words(1200, "fog"), words(1200, "sea")]
    )
    assert [image.cut for image in (plain, *long)] == [False, True, True]
    assert long[0].sha256 == long[1].sha256 != plain.sha256 and long[0].key != long[1].key
    scale = {"true_cfg_scale": 3.0} if kind == "flux" else {}
    settings = of(load(kind), steps=1, guidance=None, negative=words(1200), **scale)
    negative, _ = renderer_of(settings, cache_folder=tmp_path).render(["a gate", words(1200)])
    assert negative.sha256 != plain.sha256 and negative.negative_cut and not (negative.cut or plain.negative_cut)


def test_the_guidance_of_each_pipeline_is_read(load):
    qwen, flux, schnell = load("qwen-image"), load("flux"), load("flux without guidance")
    for loaded in (qwen, flux, load("sdxl")):
        one, other = (draw(loaded, "a gate", guidance=guidance).pixels for guidance in (2.0, 4.0))
        assert not np.array_equal(one, other)
    assert not np.array_equal(draw(flux, "a gate").pixels, draw(flux, "a gate", true_cfg_scale=3.0).pixels)
    assert np.array_equal(*(draw(schnell, "a gate", guidance=guidance).pixels for guidance in (0.0, None)))
    for loaded, changes, message in (
        (schnell, {"guidance": 3.0}, "Expected no guidance for .*FluxPipeline was distilled and ignores it"),
        (load("sdxl"), {"true_cfg_scale": 3.0}, "Expected no true_cfg_scale for .*XLPipeline has none; leave it out"),
        (qwen, {"true_cfg_scale": 3.0}, "Expected guidance or true_cfg_scale .*they are the same, got both"),
        (flux, {"height": 40}, "Expected a height that .* can draw, got 40, for which its images have 32 pixels"),
    ):
        with pytest.raises(ValueError, match=message):
            draw(loaded, "a gate", **changes)
    np.testing.assert_array_equal(
        draw(qwen, "a gate", guidance=None, true_cfg_scale=3.0).pixels, draw(qwen, "a gate", guidance=3.0).pixels
    )


def test_images_drawn_without_their_negative_prompt_are_not_taken_from_a_cache(load, tmp_path):
    flux, sd1 = load("flux"), load("sd1")
    renderer = renderer_of(of(flux, negative="dark"), cache_folder=tmp_path)
    with pytest.raises(ValueError, match="Expected true_cfg_scale above 1 with a negative prompt"):
        renderer.render(["a gate"])
    assert "loaded" not in renderer.renderer.__dict__  # nor is the model loaded for it
    image = renderer_of(of(flux, negative="dark", true_cfg_scale=2.0), cache_folder=tmp_path).render(["a gate"])[0]
    other = renderer_of(of(flux, true_cfg_scale=2.0), cache_folder=tmp_path).render(["a gate"])[0]
    assert image.sha256 != other.sha256 and image.key != other.key
    settings = of(sd1, negative=words(80))
    first = renderer_of(settings, cache_folder=tmp_path).render(["a gate"])[0]
    assert first.negative_cut and not first.cut
    record = json.loads((tmp_path / first.key[:2] / f"{first.key}.json").read_text())
    assert record["negative_cut"] is True and "true_cfg_scale" not in record["made"]["settings"]
    assert renderer_of(settings, cache_folder=tmp_path).render(["a gate"]) == [first]
