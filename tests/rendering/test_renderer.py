"""The renderer on a real, tiny Stable Diffusion: equal to diffusers itself, batched, cached, stopped, out of memory."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from edpbrl_gym.rendering import CachedRenderer, RenderSettings
from edpbrl_gym.rendering.diffusers import load_pipeline
from edpbrl_gym.rendering.diffusers.pipelines import generate
from tests.helpers.tiny_diffusion import renderer_of, save_tiny_stable_diffusion

PROMPTS = ["a gate", "a gate, warm sunshine", "", "Zürich at dawn, 霧"]
SEEDS = [0, 1, 2, 2**63 - 1]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_stable_diffusion(tmp_path_factory.mktemp("models") / "tiny")


def settings_of(model, **changes) -> RenderSettings:
    return RenderSettings(**{"model": str(model), "steps": 3, **changes})


def levels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png))).astype(int)


class Calls:
    """Counts the calls of the UNet and the images in each; refuses more than ``limit`` as torch's allocator does."""

    def __init__(self, renderer: CachedRenderer, limit: int | None = None) -> None:
        self.sizes: list[int] = []
        self.limit = limit
        renderer.renderer.loaded.pipeline.unet.register_forward_pre_hook(self._before)

    def _before(self, module, arguments):
        import torch

        self.sizes.append(len(arguments[0]))
        if self.limit is not None and len(arguments[0]) > self.limit:
            torch.empty(2**60, dtype=torch.uint8)


def test_images_are_those_of_diffusers_itself(model, tmp_path):
    import diffusers
    import torch

    before = torch.get_rng_state()
    images = renderer_of(settings_of(model), cache_folder=tmp_path).render(PROMPTS, seed=SEEDS)
    assert torch.equal(before, torch.get_rng_state())
    plain = diffusers.StableDiffusionPipeline.from_pretrained(model)
    plain.set_progress_bar_config(disable=True)
    for image, prompt, seed in zip(images, PROMPTS, SEEDS, strict=True):
        generator = torch.Generator("cpu").manual_seed(seed)
        expected = plain(prompt, num_inference_steps=3, guidance_scale=7.5, generator=generator).images[0]
        assert (image.prompt, image.seed, image.width, image.height) == (prompt, seed, 64, 64)
        assert np.abs(levels(image.png) - np.asarray(expected).astype(int)).max() <= 1
        assert image.load().tobytes() == Image.open(io.BytesIO(image.png)).tobytes()


# Euler a and LCM draw noise at every step: it must come from each image's own generator
@pytest.mark.parametrize(
    ("scheduler", "changes"),
    [
        ("PNDMScheduler", {}),
        ("EulerAncestralDiscreteScheduler", {"guidance": 0.0, "steps": 2}),
        ("LCMScheduler", {"height": 32, "width": 48, "negative": "dark"}),
    ],
)
def test_batch_and_single_agree(scheduler, changes, tmp_path):
    folder = save_tiny_stable_diffusion(tmp_path / "model", scheduler=scheduler)
    settings = settings_of(folder, **changes)
    loaded = load_pipeline(settings)
    assert type(loaded.pipeline.scheduler).__name__ == scheduler
    together, *_ = generate(loaded, settings, PROMPTS, SEEDS)
    backwards, *_ = generate(loaded, settings, PROMPTS[::-1], SEEDS[::-1])
    assert together.shape == (4, settings.height or 64, settings.width or 64, 3)
    for i, (prompt, seed) in enumerate(zip(PROMPTS, SEEDS, strict=True)):
        alone, *_ = generate(loaded, settings, [prompt], [seed])
        assert np.abs(alone[0] - together[i]).max() < 1e-5
        assert np.abs(backwards[3 - i] - together[i]).max() < 1e-5
        assert np.abs(together[i] - together[i - 1]).max() > 1e-3
    singles = renderer_of(settings, cache_folder=tmp_path / "singles", batch_size=1).render(PROMPTS, seed=SEEDS)
    batches = renderer_of(settings, cache_folder=tmp_path / "batches", batch_size=3).render(PROMPTS, seed=SEEDS)
    for one, other in zip(singles, batches, strict=True):
        assert one.key == other.key
        assert np.abs(levels(one.png) - levels(other.png)).max() <= 1


def test_a_cache_hit_returns_the_same_bytes_without_the_model(model, tmp_path):
    first = renderer_of(settings_of(model), cache_folder=tmp_path).render(PROMPTS, seed=7)
    data = [image.png for image in first]
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    again = renderer_of(settings_of(model), cache_folder=tmp_path)
    seen = []
    images = again.render(PROMPTS[::-1] + PROMPTS, seed=7, progress=lambda done, total: seen.append((done, total)))
    assert [image.png for image in images] == data[::-1] + data
    assert seen == [(4, 4)] and "loaded" not in again.renderer.__dict__
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    # a damaged file is rendered again, to the same pixels
    first[0].path.write_bytes(data[0][:100])
    restored = again.render(PROMPTS, seed=7)[0]
    assert np.abs(levels(restored.png) - levels(data[0])).max() <= 1


def test_a_stop_loses_at_most_one_batch(model, tmp_path):
    prompts = [f"a gate, number {i}" for i in range(7)]

    class Stop(KeyboardInterrupt):
        pass

    renderer = renderer_of(settings_of(model), cache_folder=tmp_path, batch_size=2)
    calls = Calls(renderer)

    def stop_in_the_third_batch(module, arguments):
        if len(calls.sizes) == 2 * 4 + 2:  # PNDM runs 4 calls for 3 steps
            raise Stop

    renderer.renderer.loaded.pipeline.unet.register_forward_pre_hook(stop_in_the_third_batch)
    seen = []
    with pytest.raises(Stop):
        renderer.render(prompts, progress=lambda done, total: seen.append((done, total)))
    assert list(dict.fromkeys(seen)) == [(0, 7), (2, 7), (4, 7)]
    resumed = renderer_of(settings_of(model), cache_folder=tmp_path, batch_size=2)
    calls = Calls(resumed)
    seen.clear()
    images = resumed.render(prompts, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 7), (6, 7), (7, 7)] and calls.sizes == [4] * 4 + [2] * 4
    assert [image.prompt for image in images] == prompts


def test_out_of_memory_halves_the_batch_and_goes_on(model, tmp_path, caplog):
    prompts = [f"a gate, number {i}" for i in range(6)]
    renderer = renderer_of(settings_of(model), cache_folder=tmp_path / "short", batch_size=6)
    calls = Calls(renderer, limit=2 * 2)
    images = renderer.render(prompts)
    assert calls.sizes == [12, 6] + [4] * 4 * 3 and renderer.batch_size == 2  # 6 -> 3 -> 2, and guidance doubles
    assert "Out of memory with 6 images at once; continuing with 3" in caplog.text
    plain = renderer_of(settings_of(model), cache_folder=tmp_path / "plenty", batch_size=6).render(prompts)
    for one, other in zip(images, plain, strict=True):
        assert one.key == other.key and np.abs(levels(one.png) - levels(other.png)).max() <= 1
    calls.limit = 0
    with pytest.raises(RuntimeError, match="memory for one image.*attention slicing.*smaller height"):
        renderer.render(["another"])


def test_each_flag_stays_with_its_image(tmp_path):
    folder = save_tiny_stable_diffusion(tmp_path / "model", safety_checker=True, flagging=False)
    renderer = renderer_of(settings_of(folder), cache_folder=tmp_path / "images", batch_size=4)
    checker = renderer.renderer.loaded.pipeline.safety_checker
    forward, seen = checker.forward, []

    def flag_the_dark_ones(clip_input, images):
        seen.extend(float(image.mean()) for image in images)
        forward(clip_input, images)
        return images, [mean < np.median(seen) for mean in seen]

    checker.forward = flag_the_dark_ones
    images = renderer.render(PROMPTS, seed=SEEDS)
    assert [image.flagged for image in images] == [mean < np.median(seen) for mean in seen]
    assert sum(image.flagged for image in images) == 2


def test_broken_numbers_are_not_kept(model, tmp_path):
    import torch

    renderer = renderer_of(settings_of(model), cache_folder=tmp_path)
    with torch.no_grad():
        renderer.renderer.loaded.pipeline.vae.decoder.conv_in.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="Expected finite pixels.*NaN or infinity in dtype float32"):
        renderer.render(["a gate"])
    assert not list(tmp_path.rglob("*.png"))


def test_wrong_arguments_are_explained(model, tmp_path):
    renderer = renderer_of(settings_of(model), cache_folder=tmp_path)
    for prompts, seed, error, said in (
        ("a gate", 0, TypeError, r"single text; write \[prompt\]"),
        (["a gate", 3], 0, TypeError, "got int at index 1"),
        (["a", "b"], [1, 2, 3], ValueError, "each of the 2 prompts, got 3 seeds"),
        (["a", "b"], np.array([1, -1]), ValueError, r"Expected seed\[1\] >= 0"),
        (["a", "b"], 1.5, TypeError, "Expected seed as an integer"),
    ):
        with pytest.raises(error, match=said):
            renderer.render(prompts, seed=seed)
    with pytest.raises(ValueError, match="batch_size >= 1"):
        renderer_of(settings_of(model), cache_folder=tmp_path, batch_size=0)
    assert "loaded" not in renderer.renderer.__dict__
