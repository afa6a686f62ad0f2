"""The project's own diffusion model: training, its record, and the one that ships with the package."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from edpbrl_gym.diffusion import BlockSchedule, load_denoiser
from edpbrl_gym.diffusion.denoiser import SHIPPED_FOLDER
from edpbrl_gym.diffusion.digits import DigitsSettings, read_digits, train_mini_diffusion
from edpbrl_gym.rendering.pipelines import model_fingerprint

TINY = DigitsSettings(steps=3, batch_size=8, samples=10, channels=(4, 8))


def record(folder):
    return json.loads((folder / "training.json").read_text())


def test_training_is_decided_by_the_seed_and_leaves_torchs_state_alone(tmp_path):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    weights = []
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        report = train_mini_diffusion(tmp_path / name, seed=seed, settings=TINY)
        weights.append((tmp_path / name / "unet" / "diffusion_pytorch_model.safetensors").read_bytes())
        assert report.steps == 3 and np.isfinite(report.loss) and 0 <= report.read_as_asked <= 1
    assert weights[0] == weights[1] != weights[2]
    assert torch.equal(torch.random.get_rng_state(), before)
    document = record(tmp_path / "a")
    assert document["seed"] == 1 and document["settings"]["steps"] == 3
    assert document["fingerprint"] == model_fingerprint(tmp_path / "a")
    assert load_denoiser(str(tmp_path / "a"), [0])[0].fingerprint == document["fingerprint"]


def test_a_little_training_lowers_the_loss(tmp_path):
    short, longer = (
        train_mini_diffusion(tmp_path / str(steps), settings=DigitsSettings(steps=steps, samples=10)).loss
        for steps in (5, 60)
    )
    assert longer < 0.7 * short  # of predicting nothing it is 1


def test_nothing_else_is_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(ValueError, match="free or a folder written by `edpbrl train-mini-diffusion`"):
        train_mini_diffusion(tmp_path / "mine", settings=TINY)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep me"


@pytest.mark.parametrize(
    ("change", "said"),
    [({"steps": 0}, "steps"), ({"samples": 9}, "samples"), ({"channels": (4, 6)}, "multiples of 4"),
     ({"without_class": 1.0}, "between 0 and 1"), ({"learning_rate": 0.0}, "learning_rate")],
)  # fmt: skip
def test_settings_out_of_range(change, said):
    with pytest.raises(ValueError, match=said):
        DigitsSettings(**change)


def test_the_reader_reads_real_digits():
    from sklearn.datasets import load_digits

    digits = load_digits()
    read, accuracy = read_digits(digits.images[1::2] / 16.0)
    assert (read == digits.target[1::2]).mean() == accuracy > 0.95


def test_the_shipped_model_is_that_of_its_record():
    document = record(SHIPPED_FOLDER)
    assert document["fingerprint"] == model_fingerprint(SHIPPED_FOLDER)
    assert DigitsSettings(**{**document["settings"], "channels": (16, 32)}) == DigitsSettings()
    assert document["report"]["read_as_asked"] >= 0.9 and document["report"]["read_unguided"] >= 0.9
    assert sum(path.stat().st_size for path in SHIPPED_FOLDER.rglob("*") if path.is_file()) < 1e6


def test_samples_of_the_shipped_model_are_the_digits_asked_for():
    denoiser, config = load_denoiser(None, range(10))
    schedule = BlockSchedule("ddim", config, steps=10, blocks=5)
    asked = np.tile(np.arange(10), 10)
    latents = np.random.default_rng(11).standard_normal((100, 1, 8, 8), dtype=np.float32)
    for block in range(5):
        latents, clean = denoiser.advance(schedule, latents, np.full(100, block), asked, np.full(100, 2.0))
    read, _ = read_digits(denoiser.images(clean)[..., 0] / 255.0)
    assert (read == asked).mean() >= 0.9
