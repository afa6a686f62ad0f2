"""Guided denoising against diffusers' own pipeline and against the formulas."""

import json

import numpy as np
import pytest
import torch

from edpbrl_gym.diffusion import SCHEDULERS, BlockSchedule, load_denoiser, model_shape
from edpbrl_gym.diffusion.denoiser import SHIPPED_NAME
from tests.helpers.tiny_diffusion import save_tiny_stable_diffusion
from tests.helpers.tiny_digits import save_tiny_digits


@pytest.fixture(scope="module")
def stable(tmp_path_factory):
    return str(save_tiny_stable_diffusion(tmp_path_factory.mktemp("stable") / "model", scheduler="DDIMScheduler"))


def noise(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def run(denoiser, schedule, latents, conditions, weights):
    """All blocks with the same direction; the latents and predicted clean latents after each."""
    seen = []
    for block in range(schedule.num_blocks):
        blocks = np.full(len(latents), block)
        latents, clean = denoiser.advance(schedule, latents, blocks, np.asarray(conditions), np.asarray(weights))
        seen.append((latents, clean))
    return seen


def test_one_direction_all_the_way_is_stable_diffusions_own_pipeline(stable):
    texts, weight = ["a lighthouse at dusk", "a meadow"], 6.0
    denoiser, config = load_denoiser(stable, texts)
    schedule = BlockSchedule("ddim", config, steps=6, blocks=3)
    latents = noise((2, 4, 8, 8))
    last = run(denoiser, schedule, latents * schedule.noise_scale, [0, 1], [weight, weight])[-1]
    from diffusers import StableDiffusionPipeline

    pipeline = StableDiffusionPipeline.from_pretrained(stable, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    expected = pipeline(
        texts, num_inference_steps=6, guidance_scale=weight, latents=torch.tensor(latents), eta=0.0, output_type="np"
    ).images
    # the pipeline decodes the last latent, which is what the prediction is at the end
    np.testing.assert_array_equal(last[0], last[1])
    np.testing.assert_allclose(denoiser.images(last[1]) / 255.0, expected, atol=0.51 / 255.0)


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_ddim_by_hand(tmp_path, prediction):
    """The update of DDIM with eta = 0 and the predicted clean image, written out with the cumulative alphas."""
    folder = save_tiny_digits(tmp_path / "model", prediction_type=prediction)
    denoiser, config = load_denoiser(str(folder), [3, 5])
    schedule = BlockSchedule("ddim", config, steps=4, blocks=2)
    start = noise((2, 1, 8, 8))
    seen = run(denoiser, schedule, start, [0, 1], [1.5, 3.0])
    from diffusers import DDIMScheduler, UNet2DModel

    unet = UNet2DModel.from_pretrained(folder / "unet").eval()
    kept = DDIMScheduler.from_config(config).alphas_cumprod.numpy().astype(np.float64)
    times = [int(t) for t in schedule.timesteps]
    assert times == [750, 500, 250, 0]
    x, weight = start.astype(np.float64), np.array([1.5, 3.0])[:, None, None, None]
    for number, time in enumerate(times):
        inputs, moments = torch.tensor(x, dtype=torch.float32), torch.tensor([time, time])
        with torch.no_grad():
            without = unet(inputs, moments, class_labels=torch.tensor([10, 10])).sample.double().numpy()
            towards = unet(inputs, moments, class_labels=torch.tensor([3, 5])).sample.double().numpy()
        output = without + weight * (towards - without)
        signal, sigma = np.sqrt(kept[time]), np.sqrt(1 - kept[time])
        if prediction == "epsilon":
            clean, eps = (x - sigma * output) / signal, output
        elif prediction == "sample":
            clean, eps = output, (x - signal * output) / sigma
        else:
            clean, eps = signal * x - sigma * output, signal * output + sigma * x
        clean = np.clip(clean, -1, 1)
        following = kept[times[number + 1]] if number < 3 else 1.0
        x = np.sqrt(following) * clean + np.sqrt(1 - following) * eps
        if number % 2:
            latents, predicted = seen[number // 2]
            np.testing.assert_allclose(latents, x, atol=2e-4)
            np.testing.assert_allclose(predicted, clean if number < 3 else x, atol=2e-4)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_is_deterministic_and_lanes_do_not_matter(digits, scheduler):
    denoiser, config = load_denoiser(digits, [1, 2])
    schedule = BlockSchedule(scheduler, config, steps=6, blocks=3)
    start = noise((3, 1, 8, 8)) * np.float32(schedule.noise_scale)
    directions = [0, 1, 1], [2.0, 1.0, 3.0]
    first, second = (run(denoiser, schedule, start, *directions) for _ in range(2))
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[1], two[1])
    assert np.isfinite(first[-1][1]).all()
    alone = run(denoiser, schedule, start[1:2], [1], [1.0])
    np.testing.assert_allclose(alone[-1][1], first[-1][1][1:2], atol=1e-4)


@pytest.mark.parametrize("scheduler", ["dpm", "deis", "unipc"])
def test_one_block_is_the_schedulers_own_run(digits, scheduler):
    import diffusers

    denoiser, config = load_denoiser(digits, [4])
    start = noise((2, 1, 8, 8))
    schedule = BlockSchedule(scheduler, config, steps=5, blocks=1)
    end = run(denoiser, schedule, start, [0, 0], [1.0, 1.0])[-1][0]
    class_name, fixed = SCHEDULERS[scheduler]
    own = getattr(diffusers, class_name).from_config(config, **fixed)
    own.set_timesteps(5)
    unet = diffusers.UNet2DModel.from_pretrained(f"{digits}/unet").eval()
    x = torch.tensor(start)
    with torch.no_grad():
        for time in own.timesteps:
            x = own.step(unet(x, time, class_labels=torch.tensor([4, 4])).sample, time, x).prev_sample
    np.testing.assert_allclose(end, x.numpy(), atol=1e-4)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_lanes_in_different_blocks_share_a_call(digits, scheduler):
    denoiser, config = load_denoiser(digits, [1, 2])
    schedule = BlockSchedule(scheduler, config, steps=4, blocks=2)
    start = noise((2, 1, 8, 8)) * np.float32(schedule.noise_scale)
    seen = run(denoiser, schedule, start, [0, 1], [2.0, 2.0])
    mixed = np.stack([start[0], seen[0][0][1]])
    calls, batches = denoiser.calls, []
    hook = denoiser._unet.register_forward_hook(lambda module, inputs, output: batches.append(len(inputs[0])))
    latents, clean = denoiser.advance(schedule, mixed, np.array([0, 1]), np.array([0, 1]), np.array([2.0, 2.0]))
    hook.remove()
    np.testing.assert_allclose(latents, [seen[0][0][0], seen[1][0][1]], atol=1e-4)
    np.testing.assert_allclose(clean, [seen[0][1][0], seen[1][1][1]], atol=1e-4)
    assert batches == [4, 4] and denoiser.calls - calls == 2  # a call a step, for both lanes with and without condition


def test_images_of_both_kinds(digits, stable):
    grey, _ = load_denoiser(digits, [0])
    image = grey.images(np.array([-1.0, 0.0, 1.0, 5.0], dtype=np.float32).reshape(4, 1, 1, 1))
    assert image.dtype == np.uint8 and image[:, 0, 0].tolist() == [[0] * 3, [128] * 3, [255] * 3, [255] * 3]
    colour, _ = load_denoiser(stable, ["a cat"])
    assert colour.images(noise((3, 4, 8, 8)), batch_size=2).shape == (3, 64, 64, 3)
    assert grey.images(np.empty((0, 1, 8, 8), dtype=np.float32)).shape[0] == 0


def test_weights_are_frozen_and_identified(digits):
    denoiser, _ = load_denoiser(digits, [0])
    assert not any(parameter.requires_grad for parameter in denoiser._unet.parameters())
    assert denoiser.name == digits and len(denoiser.fingerprint) == 64
    assert load_denoiser(None, [0])[0].name == SHIPPED_NAME


def test_models_that_do_not_fit(digits, stable, tmp_path):
    with pytest.raises(ValueError, match=r"classes 0\.\.9 as conditions, got 10"):
        load_denoiser(digits, [10])
    for wrong in ("seven", 1.5, True):
        with pytest.raises(ValueError, match=r"classes 0\.\.9 as conditions"):
            load_denoiser(digits, [wrong])
    with pytest.raises(ValueError, match="texts as conditions of this model, got 3"):
        load_denoiser(stable, [3])
    with pytest.raises(FileNotFoundError, match="no such folder"):
        model_shape(str(tmp_path / "none"))
    (tmp_path / "model_index.json").write_text("{}")
    with pytest.raises(ValueError, match=r"unet/config\.json"):
        model_shape(str(tmp_path))


def test_latents_are_not_clipped_where_the_model_does_not_say_so():
    """Models that ship another scheduler say nothing about DDIM's clipping, whose default is for pixels."""
    config = {"_class_name": "EulerDiscreteScheduler", "beta_schedule": "scaled_linear", "beta_start": 0.00085,
              "beta_end": 0.012, "num_train_timesteps": 1000}  # fmt: skip
    schedule = BlockSchedule("ddim", config, steps=4, blocks=1)
    run_of_block, latent = schedule.begin(0), torch.full((1, 4, 2, 2), 2.5)
    kept = run_of_block._scheduler.alphas_cumprod
    x = latent * kept[int(schedule.timesteps[0])] ** 0.5  # the clean latent is 2.5 everywhere, the noise 0
    for index in range(4):
        x = run_of_block.step(index, torch.zeros_like(x), x)
    assert torch.allclose(x / kept[0] ** 0.5, latent, atol=1e-3)
    assert not schedule._fresh.config.clip_sample


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"addition_embed_type": "text_time"}, "further inputs"),
        ({"in_channels": 9, "out_channels": 4}, "further inputs"),
        ({"sample_size": None}, "sample_size"),
        ({"cross_attention_dim": None}, "text conditions or with class embeddings"),
    ],
)
def test_models_with_other_inputs_are_refused(tmp_path, change, said):
    config = {"sample_size": 8, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 32, **change}
    (tmp_path / "model_index.json").write_text("{}")
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=said):
        model_shape(str(tmp_path))


def test_schedules_that_do_not_fit(digits):
    _, config = load_denoiser(digits, [0])
    with pytest.raises(ValueError, match="multiple of blocks = 3, got 10"):
        BlockSchedule("ddim", config, steps=10, blocks=3)
    with pytest.raises(ValueError, match="scheduler"):
        BlockSchedule("ddpm", config, steps=4, blocks=2)
    with pytest.raises(ValueError, match="schedule of betas, got the scheduler FlowMatch"):
        BlockSchedule("ddim", {"_class_name": "FlowMatchEulerDiscreteScheduler"}, steps=4, blocks=2)
