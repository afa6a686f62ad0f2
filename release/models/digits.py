"""Train the diffusion model of handwritten digits that ships with the package.

The data are scikit-learn's 1,797 digits of 8 x 8 pixels. The model is a ``UNet2DModel`` of diffusers that predicts the
noise (Ho, Jain and Abbeel, 2020, "Denoising diffusion probabilistic models"), with a schedule of squared cosines
(Nichol and Dhariwal, 2021). A share of the training images loses its class, so that the model also knows "no class"
(Ho and Salimans, 2022). What is saved is the moving average of the weights.

    python -m release.models.digits                     # two minutes on two cores, in ./mini-diffusion
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from edpbrl_gym._compat import require
from edpbrl_gym._files import replacing_folder
from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym._validation import check_count
from edpbrl_gym.diffusion.denoiser import load_denoiser
from edpbrl_gym.diffusion.schedulers import BlockSchedule
from edpbrl_gym.rendering.diffusers.files import model_fingerprint, quiet
from release.models.folders import TRAINING_FILE, check_free

if TYPE_CHECKING:
    import torch

__all__ = ["DEFAULT", "Settings", "read_digits", "train"]

KIND = "edpbrl mini-diffusion model"
_CLASSES = 10
_NOISE_STEPS = 1000
_PACKAGES = ("diffusers", "torch", "numpy", "scikit-learn")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sizes of the model and its training.

    Attributes:
        steps: Optimiser steps.
        batch_size: Images of a step.
        learning_rate: Largest learning rate of AdamW; it rises for a third of the steps and falls afterwards.
        channels: Channels of the UNet at 8 x 8 and 4 x 4 pixels, multiples of 4.
        without_class: Share of the training images that lose their class.
        samples: Generated images that are read for the report, a multiple of 10.
    """

    steps: int = 1200
    batch_size: int = 128
    learning_rate: float = 2e-3
    channels: tuple[int, int] = (16, 32)
    without_class: float = 0.15
    samples: int = 500


DEFAULT = Settings()


def train(
    out: str | os.PathLike[str], *, settings: Settings = DEFAULT, seed: int = 0, progress: bool = False
) -> dict[str, Any]:
    """Train a model, write it as a folder that diffusers loads (``DDIMPipeline``), and return its record.

    On one kind of machine, seed, settings, versions and number of torch threads decide every byte of the weights.

    Args:
        out: A folder that does not exist yet.
        settings: All sizes.
        seed: Seed of weights, order, noise and samples; global random state is neither read nor changed.
        progress: Show a progress bar on a terminal's stderr.

    Raises:
        ValueError: Something is at ``out``.
    """
    diffusers = require("diffusers", "training a diffusion model")
    started, cpu_started = time.perf_counter(), time.process_time()
    folder, seed = check_free(out), check_count(seed, "seed", minimum=0)
    scheduler = diffusers.DDIMScheduler(
        num_train_timesteps=_NOISE_STEPS, beta_schedule="squaredcos_cap_v2", clip_sample=True
    )
    with _own_randomness(seed):
        unet = _new_model(settings)
        averaged, loss = _fit(unet, scheduler, settings, seed, progress)
    with replacing_folder(folder) as part:
        with quiet():
            diffusers.DDIMPipeline(unet=averaged, scheduler=scheduler).save_pretrained(part)
        guided, unguided, accuracy = _read_back(part, settings, seed)
        report = {
            "folder": folder.name,
            "read_as_asked": guided,
            "read_unguided": unguided,
            "reader_accuracy": accuracy,
            "samples": settings.samples // _CLASSES * _CLASSES,
            "steps": settings.steps,
            "parameters": sum(parameter.numel() for parameter in averaged.parameters()),
            "loss": loss,
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - cpu_started,
        }
        record = {
            "kind": KIND,
            "format": 1,
            "seed": seed,
            "settings": asdict(settings),
            "report": report,
            "fingerprint": model_fingerprint(part),
            "versions": {name: metadata.version(name) for name in _PACKAGES},
        }
        (part / TRAINING_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def read_digits(images: NDArray[np.floating]) -> tuple[NDArray[np.int64], float]:
    """Read images with a classifier (a support vector machine) that is trained on half of the real digits.

    Args:
        images: Brightness in 0..1, shape (n, 8, 8).

    Returns:
        The digit of each image, (n,), and the classifier's accuracy on the other half of the real digits.
    """
    digits = load_digits()
    from sklearn.svm import SVC

    rows = digits.data / 16.0
    reader = SVC(gamma=0.25).fit(rows[::2], digits.target[::2])  # 0.001 for brightness in 0..16
    accuracy = float(reader.score(rows[1::2], digits.target[1::2]))
    return np.asarray(reader.predict(np.reshape(images, (len(images), -1))), dtype=np.int64), accuracy


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Libraries draw weights from torch's global state; it is seeded here, and left as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "mini-diffusion weights"))
        yield


def _new_model(settings: Settings) -> Any:
    from diffusers import UNet2DModel

    return UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=settings.channels,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=8,
        num_class_embeds=_CLASSES + 1,  # the last one is "no class"
    )


def _fit(unet: Any, scheduler: Any, settings: Settings, seed: int, progress: bool) -> tuple[Any, float]:
    """Train a model; returns the average of its weights, and the loss over the last tenth of the steps."""
    import copy

    import torch
    from tqdm.auto import tqdm

    digits = load_digits()
    images = torch.tensor(digits.images[:, None] / 8.0 - 1.0, dtype=torch.float32)
    classes = torch.tensor(digits.target)
    draws = torch.Generator().manual_seed(derive_seed(seed, "mini-diffusion training"))
    optimiser = torch.optim.AdamW(unet.parameters(), lr=settings.learning_rate)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.learning_rate, total_steps=settings.steps + 1)
    averaged = copy.deepcopy(unet).eval()
    losses = []
    for step in tqdm(range(settings.steps), desc="train", unit="step", disable=None if progress else True):
        loss = _loss(unet, scheduler, images, classes, settings, draws)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimiser.step()
        rates.step()
        losses.append(float(loss.detach()))
        with torch.no_grad():
            for mean, weight in zip(averaged.parameters(), unet.parameters(), strict=True):
                mean.lerp_(weight, 1.0 - min(0.995, (1 + step) / (10 + step)))
    return averaged, float(np.mean(losses[-max(1, len(losses) // 10) :]))


def _loss(unet: Any, scheduler: Any, images: Any, classes: Any, settings: Settings, draws: torch.Generator) -> Any:
    """Mean squared error of the predicted noise of a batch."""
    import torch

    rows = torch.randint(len(images), (settings.batch_size,), generator=draws)
    labels = classes[rows].clone()
    labels[torch.rand(len(rows), generator=draws) < settings.without_class] = _CLASSES
    times = torch.randint(_NOISE_STEPS, (len(rows),), generator=draws)
    noise = torch.randn(images[rows].shape, generator=draws)
    noisy = scheduler.add_noise(images[rows], noise, times)
    return ((unet(noisy, times, class_labels=labels).sample - noise) ** 2).mean()


def _read_back(folder: Path, settings: Settings, seed: int) -> tuple[float, float, float]:
    """Shares of samples of the saved model that are read as asked, guided and not, and the reader's own accuracy."""
    denoiser, config = load_denoiser(str(folder), list(range(_CLASSES)), device="cpu")
    schedule = BlockSchedule("ddim", config, steps=10, blocks=1)
    asked = np.tile(np.arange(_CLASSES), settings.samples // _CLASSES)
    noise = generator(seed, "mini-diffusion samples").standard_normal((len(asked), 1, 8, 8), dtype=np.float32)
    shares, accuracy = [], 0.0
    for weight in (2.0, 1.0):
        _, clean = denoiser.advance(
            schedule, noise, np.zeros(len(asked), dtype=np.int64), asked, np.full(len(asked), weight)
        )
        read, accuracy = read_digits(denoiser.images(clean)[..., 0] / 255.0)
        shares.append(float((read == asked).mean()))
    return shares[0], shares[1], accuracy


def main() -> None:
    """Read the command line, train, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=DEFAULT.steps, help="optimiser steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything")
    parser.add_argument("--out", type=Path, default=Path("mini-diffusion"), help="folder, which must not exist")
    given = parser.parse_args()
    record = train(given.out, settings=Settings(steps=given.steps), seed=given.seed, progress=True)
    print(json.dumps(record["report"], indent=2))


if __name__ == "__main__":
    main()
