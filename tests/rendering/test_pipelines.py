"""Loading pipelines: what their fingerprint sees, hub ids, devices and dtypes, and errors for people."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from edpbrl_gym.rendering import LoadedPipeline, Renderer, RenderSettings, load_pipeline
from edpbrl_gym.rendering.pipelines import cut_prompts, find_model, generate, model_fingerprint
from tests.helpers.tiny_diffusion import save_tiny_stable_diffusion


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_stable_diffusion(tmp_path_factory.mktemp("models") / "tiny")


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_fingerprint_is_of_what_decides_images(model, tmp_path):
    first = model_fingerprint(model)
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    change(copy / "model_index.json", _diffusers_version="0.1.0", _name_or_path="elsewhere")
    change(copy / "text_encoder" / "config.json", transformers_version="9")
    (copy / "README.md").write_text("about")
    for name in ("diffusion_pytorch_model.fp16.safetensors", "diffusion_pytorch_model.bin"):
        (copy / "unet" / name).write_bytes(b"not loaded")
    (copy / "unused").mkdir()
    (copy / "unused" / "config.json").write_text("{}")
    assert model_fingerprint(copy) == first
    assert load_pipeline(RenderSettings(model=str(copy))).fingerprint == first
    assert Renderer(RenderSettings(model=str(copy)), cache_folder=tmp_path / "images").fingerprint == first

    seen = {first, model_fingerprint(copy, "fp16")}
    for path, values in (
        (copy / "scheduler" / "scheduler_config.json", {"beta_end": 0.02}),
        (copy / "vae" / "config.json", {"scaling_factor": 0.5}),
        (copy / "model_index.json", {"_class_name": "StableDiffusionPAGPipeline"}),
    ):
        change(path, **values)
        seen.add(model_fingerprint(copy))
    with open(copy / "tokenizer" / "merges.txt", "a") as file:
        file.write("q q\n")
    seen.add(model_fingerprint(copy))
    weights = copy / "vae" / "diffusion_pytorch_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    seen.add(model_fingerprint(copy))
    assert len(seen) == 7
    checked = {
        model_fingerprint(save_tiny_stable_diffusion(tmp_path / str(flags), safety_checker=True, flagging=flags))
        for flags in (True, False)
    }
    assert len(checked | {first}) == 3


def test_a_hub_id_is_found_in_the_local_store_of_the_hub(model, tmp_path, monkeypatch):
    """Laid out as the hub's client keeps what it has downloaded; nothing is reached over the network."""
    import huggingface_hub.constants

    assert huggingface_hub.constants.HF_HUB_OFFLINE
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "0123456789" * 4
    store = tmp_path / "models--edpbrl-tests--tiny-diffusion"
    shutil.copytree(model, store / "snapshots" / commit)
    (store / "refs").mkdir()
    (store / "refs" / "main").write_text(commit)
    settings = RenderSettings(model="edpbrl-tests/tiny-diffusion", steps=2)
    assert find_model(settings).resolve() == (store / "snapshots" / commit).resolve()
    image = Renderer(settings, cache_folder=tmp_path / "images").render(["a gate"])[0]
    by_folder = Renderer(RenderSettings(model=str(model), steps=2), cache_folder=tmp_path / "images")
    assert by_folder.render(["a gate"]) == [image]  # the place of a model is no part of the key
    with pytest.raises(ConnectionError, match="Expected the model edpbrl-tests/none from the hub.*give its folder"):
        find_model(RenderSettings(model="edpbrl-tests/none"))


def test_dtypes_slices_and_variants(model, tmp_path):
    import torch

    settings = RenderSettings(model=str(model), steps=2, height=32, width=32)
    plain, _ = generate(load_pipeline(settings), settings, ["a gate"], [0])
    sliced, _ = generate(load_pipeline(settings, "cpu", attention_slicing=True), settings, ["a gate"], [0])
    assert np.abs(plain - sliced).max() < 1e-5
    half = RenderSettings(model=str(model), steps=2, height=32, width=32, dtype="bfloat16")
    loaded = load_pipeline(half)
    assert loaded.pipeline.unet.dtype == loaded.pipeline.vae.dtype == torch.bfloat16
    pixels, _ = generate(loaded, half, ["a gate"], [0])
    assert pixels.dtype == np.float32 and pixels.shape == (1, 32, 32, 3)
    load_pipeline(settings).pipeline.save_pretrained(tmp_path / "variant", variant="fp16")
    variant = RenderSettings(model=str(tmp_path / "variant"), variant="fp16", steps=2, height=32, width=32)
    loaded = load_pipeline(variant, "cpu")
    np.testing.assert_array_equal(generate(loaded, variant, ["a gate"], [0])[0], plain)
    assert loaded.device == "cpu" and loaded.name == str(tmp_path / "variant")


def test_a_pipeline_of_another_class(model, tmp_path):
    """Stable Diffusion XL: two text encoders, larger images, no safety checker; with the settings of its turbo."""
    import diffusers
    import torch
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    small = load_pipeline(RenderSettings(model=str(model))).pipeline
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = CLIPTextConfig(**{**small.text_encoder.config.to_dict(), "projection_dim": 32})
        unet = diffusers.UNet2DConditionModel.from_config(
            dict(small.unet.config)
            | {
                "cross_attention_dim": 64,
                "addition_embed_type": "text_time",
                "addition_time_embed_dim": 8,
                "projection_class_embeddings_input_dim": 32 + 6 * 8,
            }
        )
        xl = diffusers.StableDiffusionXLPipeline(
            vae=small.vae,
            text_encoder=small.text_encoder,
            text_encoder_2=CLIPTextModelWithProjection(config),
            tokenizer=small.tokenizer,
            tokenizer_2=small.tokenizer,
            unet=unet,
            scheduler=diffusers.EulerAncestralDiscreteScheduler(timestep_spacing="trailing"),
        )
        xl.save_pretrained(tmp_path / "xl")
    settings = RenderSettings(model=str(tmp_path / "xl"), steps=1, guidance=0)
    loaded = load_pipeline(settings)
    assert type(loaded.pipeline).__name__ == "StableDiffusionXLPipeline"
    prompts = ["a gate", "a sea, fog"]
    together, flags = generate(loaded, settings, prompts, [0, 1])
    assert together.shape == (2, 64, 64, 3) and flags == [False, False]
    for i, prompt in enumerate(prompts):
        assert np.abs(generate(loaded, settings, [prompt], [i])[0][0] - together[i]).max() < 1e-5
    images = Renderer(settings, cache_folder=tmp_path / "images").render([*prompts, "a " * 90])
    assert [image.cut for image in images] == [False, False, True]
    assert len({image.sha256 for image in images}) == 3


def test_settings_that_a_pipeline_has_not_are_refused(model):
    class Plain:
        """A pipeline without negative prompts and sizes; real ones of this kind are too large for a test."""

        tokenizer = None

        def __call__(self, prompt, num_inference_steps, guidance_scale, generator, output_type):
            raise AssertionError("it must not be run")

    loaded = load_pipeline(RenderSettings(model=str(model)))
    plain = type(loaded)(pipeline=Plain(), fingerprint="", name="plain", device="cpu")
    with pytest.raises(ValueError, match="Expected no height for plain, as Plain has none"):
        generate(plain, RenderSettings(model="a/b", height=64), ["a"], [0])
    with pytest.raises(ValueError, match="Expected no negative_prompt"):
        generate(plain, RenderSettings(model="a/b", negative="dark"), ["a"], [0])
    assert cut_prompts(plain.pipeline, ["a " * 500]) == [False]
    assert cut_prompts(loaded.pipeline, []) == []


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"nsfw_content_detected": [False, True]}, [False, True]),
        ({"nsfw_detected": np.array([True, False])}, [True, False]),
        ({"nsfw_content_detected": None}, [False, False]),
        ({}, [False, False]),
    ],
)
def test_what_is_not_asked_for_stays_the_pipelines_own(flags, expected):
    class Sized:
        """A pipeline with sizes of its own in its signature, as Kandinsky and Sana have, which take no None."""

        def __call__(self, prompt, num_inference_steps, generator, output_type, guidance_scale=4.0, height=48, width=40,
                     negative_prompt=""):  # fmt: skip
            assert negative_prompt == ""
            return SimpleNamespace(images=np.zeros((len(prompt), height, width, 3)), **flags)

    loaded = LoadedPipeline(pipeline=Sized(), fingerprint="", name="sized", device="cpu")
    pixels, found = generate(loaded, RenderSettings(model="a/b"), ["a", "b"], [0, 1])
    assert pixels.shape == (2, 48, 40, 3) and found == expected
    pixels, _ = generate(loaded, RenderSettings(model="a/b", height=64), ["a", "b"], [0, 1])
    assert pixels.shape == (2, 64, 40, 3)
    if any(expected):
        with pytest.raises(ValueError, match="for each of 1 images, got 2"):
            generate(loaded, RenderSettings(model="a/b"), ["a"], [0])


def test_what_cannot_be_loaded_is_explained(model, tmp_path):
    def load(folder, device="cpu", **changes):
        return load_pipeline(RenderSettings(model=str(folder), **changes), device)

    for name in (tmp_path / "nowhere", "nowhere", "./a/b", "a/b/c"):
        with pytest.raises(FileNotFoundError, match="model folder or a hub id of the form owner/name"):
            load(name)
    with pytest.raises(FileNotFoundError, match=r"Expected model_index\.json in .*save_pretrained"):
        load(tmp_path)
    (tmp_path / "one.safetensors").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="single checkpoint with diffusers' from_single_file"):
        load(tmp_path / "one.safetensors")
    with pytest.raises(ValueError, match="Expected device as 'cpu'"):
        load(model, "toaster")

    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"cut short")
    with pytest.raises(ValueError, match="Expected a text-to-image pipeline of diffusers at .*folder is whole"):
        load(broken)
    change(broken / "model_index.json", _class_name="DDPMPipeline")
    with pytest.raises(ValueError, match="makes images from texts"):
        load(broken)
    (broken / "scheduler" / "scheduler_config.json").write_text("{")
    with pytest.raises(ValueError, match="Expected a JSON object in .*scheduler_config"):
        load(broken)
    (broken / "model_index.json").write_text("[]")
    with pytest.raises(ValueError, match="Expected a JSON object in .*model_index"):
        load(broken)
    with pytest.raises(ValueError, match="could not be loaded"):
        load(model, variant="fp16")


class _Blocked:
    """A meta path finder for a package that is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "diffusers":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def test_missing_diffusers_says_what_to_install(model, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "diffusers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Blocked(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match=r'pip install "edpbrl-gym\[images\]"'):
        Renderer(RenderSettings(model=str(model)), cache_folder=tmp_path).render(["a gate"])


def test_loggers_of_the_libraries_are_left_as_they_were(model):
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    diffusers_logging.set_verbosity(logging.INFO)
    before = (diffusers_logging.get_verbosity(), transformers_logging.get_verbosity())
    load_pipeline(RenderSettings(model=str(model)))
    assert (diffusers_logging.get_verbosity(), transformers_logging.get_verbosity()) == before
    assert diffusers_logging.is_progress_bar_enabled()
    diffusers_logging.set_verbosity(logging.WARNING)
