"""Loading pipelines: what their fingerprint sees, hub ids, devices and dtypes, and errors for people."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from edpbrl_gym.rendering import RenderSettings
from edpbrl_gym.rendering.diffusers import LoadedPipeline, load_pipeline
from edpbrl_gym.rendering.diffusers.files import find_model, model_fingerprint
from edpbrl_gym.rendering.diffusers.pipelines import generate
from tests.helpers.tiny_diffusion import renderer_of, save_tiny_stable_diffusion


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
    assert renderer_of(RenderSettings(model=str(copy)), cache_folder=tmp_path / "images").fingerprint == first

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
    image = renderer_of(settings, cache_folder=tmp_path / "images").render(["a gate"])[0]
    by_folder = renderer_of(RenderSettings(model=str(model), steps=2), cache_folder=tmp_path / "images")
    assert by_folder.render(["a gate"]) == [image]  # the place of a model is no part of the key
    with pytest.raises(ConnectionError, match="Expected the model edpbrl-tests/none from the hub.*give its folder"):
        find_model(RenderSettings(model="edpbrl-tests/none"))


def test_dtypes_slices_and_variants(model, tmp_path):
    import torch

    settings = RenderSettings(model=str(model), steps=2, height=32, width=32)
    plain, *_ = generate(load_pipeline(settings), settings, ["a gate"], [0])
    sliced, *_ = generate(load_pipeline(settings, "cpu", attention_slicing=True), settings, ["a gate"], [0])
    assert np.abs(plain - sliced).max() < 1e-5
    half = RenderSettings(model=str(model), steps=2, height=32, width=32, dtype="bfloat16")
    loaded = load_pipeline(half)
    assert loaded.pipeline.unet.dtype == loaded.pipeline.vae.dtype == torch.bfloat16
    pixels, *_ = generate(loaded, half, ["a gate"], [0])
    assert pixels.dtype == np.float32 and pixels.shape == (1, 32, 32, 3)
    load_pipeline(settings).pipeline.save_pretrained(tmp_path / "variant", variant="fp16")
    variant = RenderSettings(model=str(tmp_path / "variant"), variant="fp16", steps=2, height=32, width=32)
    loaded = load_pipeline(variant, "cpu")
    np.testing.assert_array_equal(generate(loaded, variant, ["a gate"], [0])[0], plain)
    assert loaded.device == "cpu" and loaded.name == str(tmp_path / "variant")


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

        def __call__(self, prompt, generator, output_type, num_inference_steps=9, guidance_scale=4.0, height=48,
                     width=40, negative_prompt=""):  # fmt: skip
            assert (num_inference_steps, guidance_scale, negative_prompt) == (9, 4.0, "")
            return SimpleNamespace(images=np.zeros((len(prompt), height, width, 3)), **flags)

    loaded = LoadedPipeline(pipeline=Sized(), fingerprint="", name="sized", device="cpu")
    pixels, found, _ = generate(loaded, RenderSettings(model="a/b"), ["a", "b"], [0, 1])
    assert pixels.shape == (2, 48, 40, 3) and found == expected
    pixels, *_ = generate(loaded, RenderSettings(model="a/b", height=64), ["a", "b"], [0, 1])
    assert pixels.shape == (2, 64, 40, 3)
    if any(expected):
        with pytest.raises(ValueError, match="for each of 1 images, got 2"):
            generate(loaded, RenderSettings(model="a/b"), ["a"], [0])


def test_what_cannot_be_loaded_is_explained(model, tmp_path):
    def load(folder, device="cpu", **changes):
        return load_pipeline(RenderSettings(model=str(folder), **changes), device)

    (tmp_path / "one.safetensors").write_bytes(b"")
    for name, said in (
        *((name, "a hub id of the form owner/name") for name in (tmp_path / "no", "no", "./a/b", "a/b/c")),
        (tmp_path, r"Expected model_index\.json in .*save_pretrained"),
    ):
        with pytest.raises(FileNotFoundError, match=said):
            load(name)
    for changes, said in (
        ({"device": "toaster"}, "Expected device as 'cpu'"),
        ({"variant": "fp16"}, "could not be loaded"),
        ({"config": "a/b"}, "Expected no config with .*, which is no single file"),
        ({"revision": "v2"}, "Expected no revision with the folder .*, got 'v2': it is of a model on the"),
    ):
        with pytest.raises(ValueError, match=said):
            load(model, **changes)
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"cut short")
    for damage, said in (
        (lambda: None, "Expected a text-to-image pipeline of diffusers at .*folder is whole"),
        (lambda: change(broken / "model_index.json", _class_name="DDPMPipeline"), "makes images from texts"),
        (lambda: (broken / "scheduler/scheduler_config.json").write_text("{"), "a JSON object in .*scheduler_config"),
        (lambda: (broken / "model_index.json").write_text("[]"), "Expected a JSON object in .*model_index"),
    ):
        damage()
        with pytest.raises(ValueError, match=said):
            load(broken)
