"""What changes a model before it draws: own steps and guidance, a LoRA, quantised weights, offload, single files."""

from __future__ import annotations

import inspect
import json
from importlib.util import find_spec

import numpy as np
import pytest

from edpbrl_gym.rendering import RenderSettings
from edpbrl_gym.rendering.diffusers import adapting, load_pipeline, pipelines
from edpbrl_gym.rendering.diffusers.files import find_model, model_class, model_fingerprint
from edpbrl_gym.rendering.diffusers.pipelines import generate
from edpbrl_gym.rendering.settings import image_key
from tests.helpers.tiny_diffusion import renderer_of, save_single_checkpoint, save_tiny_stable_diffusion
from tests.helpers.tiny_pipelines import save_tiny_pipeline

# steps and guidance that each pipeline has of its own
OWN = {"sd1": (50, 7.5), "sdxl": (50, 5.0), "sd3": (28, 7.0), "flux": (28, 3.5), "flux without guidance": (28, 0.0)}
OWN |= {"qwen-image": (50, 4.0), "z-image": (50, 5.0), "sana": (20, 4.5), "pixart": (20, 4.5)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_stable_diffusion(tmp_path_factory.mktemp("models") / "sd1")


def of(model, **changes):
    return RenderSettings(**{"model": str(model), "steps": 2, "height": 32, "width": 32, **changes})


def pixels(model, prompt="a gate", **changes):
    settings = of(model, **changes)
    return generate(load_pipeline(settings, "cpu"), settings, [prompt], [0]).pixels


def identity(settings, folder):
    return renderer_of(settings, cache_folder=folder).renderer.identity()


@pytest.mark.parametrize("kind", OWN)
def test_what_is_not_set_is_the_pipelines_own_and_shares_its_pictures(kind, tmp_path):
    folder = tmp_path / "model"
    save_tiny_stable_diffusion(folder) if kind == "sd1" else save_tiny_pipeline(kind, folder)
    steps, guidance = OWN[kind]
    unset = RenderSettings(model=str(folder))
    settings = RenderSettings(model=str(folder), steps=steps, guidance=guidance)
    # the key of a picture with explicit values is what it was when these were the only ones
    expected = {"model": model_fingerprint(folder), "steps": steps, "guidance": guidance, "height": None, "width": None}
    expected |= {"negative": "", "dtype": "float32"}
    assert identity(settings, tmp_path) == identity(unset, tmp_path) == expected
    assert identity(RenderSettings(model=str(folder), guidance=guidance + 1), tmp_path) != expected
    called = {}
    loaded = load_pipeline(unset, "cpu")

    class Stopped(Exception):
        pass

    def call(self, **arguments):
        called.update(arguments)
        raise Stopped

    cls = type(loaded.pipeline)
    call.__signature__ = inspect.signature(cls.__call__)
    loaded.pipeline.__class__ = type(cls.__name__, (cls,), {"__call__": call})
    for one in (unset, settings):
        called.clear()
        with pytest.raises(Stopped):
            generate(loaded, one, ["a gate"], [0])
        name = "true_cfg_scale" if kind == "qwen-image" else "guidance_scale"
        assert (called["num_inference_steps"], called[name]) == (steps, guidance)


def test_old_records_are_read_and_new_ones_say_what_was_drawn(model, tmp_path):
    fields = {"steps": 50, "guidance": 7.5, "height": 32, "width": 32, "negative": "", "dtype": "float32"}
    old = {"model": str(model), **fields, "variant": None, "revision": None}
    assert RenderSettings(**old).as_dict() == old
    renderer = renderer_of(of(model, steps=None), cache_folder=tmp_path)
    image = renderer.render(["a gate"])[0]
    assert image.key == image_key("a gate", 0, {"model": model_fingerprint(model), **fields})
    assert json.loads((tmp_path / image.key[:2] / f"{image.key}.json").read_text())["made"]["settings"] == old
    assert renderer_of(RenderSettings(**old), cache_folder=tmp_path).render(["a gate"]) == [image]
    assert renderer.describe()["steps"] is None


# -- LoRA --------------------------------------------------------------------------------------------------------------


def save_lora(model, folder, seed=0):
    """Random weights of a LoRA for the denoiser of a pipeline, made with peft and saved as diffusers does."""
    import diffusers
    import torch
    from peft import LoraConfig, get_peft_model_state_dict

    pipeline = getattr(diffusers, model_class(model)).from_pretrained(model)
    denoiser = "transformer" if hasattr(pipeline, "transformer") else "unet"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        part = getattr(pipeline, denoiser)
        part.add_adapter(LoraConfig(r=4, target_modules=["to_q", "to_v"], init_lora_weights=False))
    pipeline.save_lora_weights(folder, **{f"{denoiser}_lora_layers": get_peft_model_state_dict(part)})
    return folder / "pytorch_lora_weights.safetensors"


def test_a_lora_changes_the_picture_by_its_weight_and_the_key_by_its_bytes(model, tmp_path):
    lora, other = save_lora(model, tmp_path / "one"), save_lora(model, tmp_path / "other", seed=1)
    plain = pixels(model)
    assert np.array_equal(pixels(model, lora=f"{lora}@0"), plain)
    drawn = [pixels(model, lora=name) for name in (str(lora), f"{lora}@0.5", str(other))]
    for i, one in enumerate(drawn):
        assert np.abs(one - plain).max() > 1e-3
        assert all(np.abs(one - another).max() > 1e-3 for another in drawn[:i])
    assert np.array_equal(pixels(model, lora=f"{lora.parent}@1.0"), drawn[0])  # a folder
    (tmp_path / "a@b.safetensors").write_bytes(lora.read_bytes())
    keys = [
        json.dumps(identity(of(model, lora=name), tmp_path))
        for name in (None, f"{lora}@0.5", lora, tmp_path / "a@b.safetensors", f"{lora}@1", other)
        for name in [None if name is None else str(name)]
    ]
    assert len(set(keys)) == 4 and keys[2] == keys[3] == keys[4]  # the bytes and the weight count, not the place
    renderer = renderer_of(of(model, lora=str(lora)), cache_folder=tmp_path / "images")
    image = renderer.render(["a gate"])[0]
    assert image.sha256 != renderer_of(of(model), cache_folder=tmp_path / "images").render(["a gate"])[0].sha256
    assert "lora" in json.loads((image.path.parent / f"{image.key}.json").read_text())["made"]["settings"]


def test_a_lora_that_is_none_for_the_model_is_refused(model, tmp_path):
    flux, pixart = (save_tiny_pipeline(kind, tmp_path / kind) for kind in ("flux", "pixart"))
    lora = save_lora(flux, tmp_path / "lora")
    assert np.abs(pixels(flux, lora=str(lora)) - pixels(flux)).max() > 1e-3
    (tmp_path / "two").mkdir()
    for name in "ab":
        (tmp_path / "two" / f"{name}.safetensors").write_bytes(b"cut")
    for folder, name, error, said in (
        (model, lora, ValueError, "LoRA for .*sd1, but pytorch_lora_weights.safetensors has no weights for its Stable"),
        (pixart, lora, ValueError, "can't be loaded: PixArtSigmaPipeline takes no LoRA; leave it out"),
        (model, tmp_path / "two" / "a.safetensors", ValueError, "a.safetensors could not be loaded"),
        (model, tmp_path / "two", FileNotFoundError, r"at .*two, got a\.safetensors, b\.safetensors; name the file"),
        (model, tmp_path / "no.safetensors", FileNotFoundError, "no.safetensors, got none"),
        (model, "owner/none@0.5", ConnectionError, r"Expected the LoRA owner/none from the hub"),
    ):
        with pytest.raises(error, match=said):
            load_pipeline(of(folder, lora=str(name)), "cpu")


# -- offload and quantised weights -------------------------------------------------------------------------------------


def test_offload_needs_an_accelerator_and_changes_no_picture(model, tmp_path, monkeypatch):
    for offload in ("model", "sequential"):
        renderer = renderer_of(of(model), cache_folder=tmp_path, device="cpu", offload=offload)
        with pytest.raises(ValueError, match=f"accelerator with offload '{offload}', got the device cpu.*leave offl"):
            renderer.render(["a gate"])
    with pytest.raises(ValueError, match="Expected offload as 'model', 'sequential' or None, got 'disk'"):
        renderer_of(of(model), cache_folder=tmp_path, offload="disk").render(["a gate"])
    monkeypatch.setattr(pipelines, "check_offload", lambda *_: None)  # accelerate's hooks themselves run on the CPU too
    settings = of(model, negative="dark " * 90)
    long = "a " * 90
    whole = generate(load_pipeline(settings, "cpu"), settings, [long], [0])
    loaded = load_pipeline(settings, "cpu", offload="model")
    assert hasattr(loaded.pipeline.unet, "_hf_hook")
    for _ in range(2):
        drawn = generate(loaded, settings, [long], [0])
        assert np.array_equal(drawn.pixels, whole.pixels)
        assert drawn.read.is_cut(long) and drawn.read.negative_is_cut


@pytest.mark.parametrize(
    ("quantize", "package"),
    [("quanto:int8", "optimum-quanto"), ("torchao:Int8WeightOnlyConfig", "torchao"),
     ("bitsandbytes_4bit", "bitsandbytes"), ("bitsandbytes_8bit", "bitsandbytes"),
     ('{"quant_backend": "bitsandbytes_4bit", "quant_kwargs": {"load_in_4bit": true}}', "bitsandbytes")],
)  # fmt: skip
def test_quantised_weights_draw_or_name_the_package_that_they_need(quantize, package, tmp_path):
    flux = save_tiny_pipeline("flux", tmp_path / "flux")
    settings = of(flux, quantize=quantize)
    assert identity(settings, tmp_path) == {**identity(of(flux), tmp_path), "quantize": quantize}
    if find_spec(package.partition("-")[0]) is None:
        with pytest.raises(ModuleNotFoundError, match=f"Expected the package '{package}' .*run: pip install {package}"):
            load_pipeline(settings, "cpu")
    elif package == "bitsandbytes":  # which needs a GPU
        with pytest.raises(ValueError, match="could not be loaded"):
            load_pipeline(settings, "cpu")
    else:
        difference = np.abs(pixels(flux, quantize=quantize) - pixels(flux)).max()
        assert 0 < difference < 0.1


def test_the_quantisation_reaches_diffusers(model, monkeypatch):
    """Its own check of the packages, that comes only with a configuration, is met."""
    if find_spec("optimum") is not None:
        pytest.skip("optimum-quanto is installed")
    monkeypatch.setattr(adapting, "_PACKAGES", {})
    with pytest.raises(ValueError, match=r"could not be loaded \(ImportError: .*optimum-quanto"):
        load_pipeline(of(model, quantize="quanto:int8"), "cpu")


def test_a_wrong_quantisation_is_explained(model, tmp_path):
    for quantize in ("4bit", "", "torchao", "{", '{"quant_backend": "none", "quant_kwargs": {"a": 1}}', "[]"):
        with pytest.raises((ValueError, ModuleNotFoundError), match=r"Expected (quantize as bits|the package)"):
            load_pipeline(of(model, quantize=quantize), "cpu")


# -- single files ------------------------------------------------------------------------------------------------------


def test_a_single_checkpoint_file_draws_what_its_folder_draws(model, tmp_path):
    file = save_single_checkpoint(model, tmp_path / "model.safetensors")
    assert np.array_equal(pixels(file, config=str(model)), pixels(model))
    settings = RenderSettings(model=str(file), config=str(model), height=32, width=32)
    assert find_model(settings) == model
    first = identity(settings, tmp_path)
    assert (first["steps"], first["guidance"]) == (50, 7.5) and first["model"] != model_fingerprint(model)
    assert renderer_of(settings, cache_folder=tmp_path / "images").render(["a gate"])[0].width == 32
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert identity(settings, tmp_path)["model"] != first["model"]


def test_a_single_file_that_cannot_be_loaded_is_explained(model, tmp_path):
    file = save_single_checkpoint(model, tmp_path / "model.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(file.read_bytes()[:1000])
    (tmp_path / "model.ckpt").write_bytes(b"")
    for name, changes, error, said in (
        ("cut.safetensors", {}, ValueError, "Expected a whole .safetensors file, got .*cut.safetensors, which can't"),
        ("cut.safetensors", {"config": str(model)}, ValueError, "text-to-image pipeline .* could not be loaded"),
        ("model.ckpt", {}, ValueError, "checkpoint as .safetensors, got .*model.ckpt; other formats can run code"),
        ("model.safetensors", {}, ConnectionError, r"the configs of model.safetensors .option config. from the hub"),
        ("model.safetensors", {"config": str(tmp_path)}, FileNotFoundError, "model_index.json in the folder of conf"),
        ("model.safetensors", {"config": str(model), "variant": "fp16"}, ValueError, "Expected no revision and no var"),
        ("model.safetensors", {"config": str(model), "quantize": "quanto"}, ValueError, "Expected no quantize with"),
    ):
        with pytest.raises(error, match=said):
            load_pipeline(of(tmp_path / name, **changes), "cpu")
