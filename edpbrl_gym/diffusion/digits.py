"""A small class-conditional diffusion model of handwritten digits, trained in minutes on two cores.

The data are scikit-learn's 1,797 digits of 8 x 8 pixels. The model is a ``UNet2DModel`` of diffusers that predicts the
noise (Ho, Jain and Abbeel, 2020, "Denoising diffusion probabilistic models"), with a schedule of squared cosines
(Nichol and Dhariwal, 2021). A share of the training images loses its class, so that the model also knows "no class"
(Ho and Salimans, 2022). What is saved is the moving average of the weights.
"""

from __future__ import annotations

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

from edpbrl_gym._compat import require
from edpbrl_gym._places import TRAINING_FILE, ModelFolders
from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.diffusion.denoiser import load_denoiser
from edpbrl_gym.diffusion.schedulers import BlockSchedule
from edpbrl_gym.features.strokes import handwritten_digits
from edpbrl_gym.rendering.pipelines import model_fingerprint, quiet

if TYPE_CHECKING:
    import torch

__all__ = ["DEFAULT", "FOLDERS", "QUICK", "DigitsReport", "DigitsSettings", "read_digits", "train_mini_diffusion"]

FOLDERS = ModelFolders("edpbrl mini-diffusion model", "edpbrl train-mini-diffusion")

_CLASSES = 10
_NOISE_STEPS = 1000
_PACKAGES = ("diffusers", "torch", "numpy", "scikit-learn")


@dataclass(frozen=True, kw_only=True)
class DigitsSettings:
    """Sizes of the model and its training.

    Attributes:
        steps: Optimiser steps.
        batch_size: Images of a step.
        learning_rate: Largest learning rate of AdamW; it rises for a third of the steps and falls afterwards.
        channels: Channels of the UNet at 8 x 8 and 4 x 4 pixels, multiples of 4.
        without_class: Share of the training images that lose their class.
        samples: Generated images that are read for the report, a multiple of 10.

    Raises:
        ValueError: A value is out of range.
    """

    steps: int = 1200
    batch_size: int = 128
    learning_rate: float = 2e-3
    channels: tuple[int, int] = (16, 32)
    without_class: float = 0.15
    samples: int = 500

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            check_count(getattr(self, name), name)
        check_count(self.samples, "samples", minimum=_CLASSES)
        check_number(self.learning_rate, "learning_rate", minimum=0.0, exclusive=True)
        if not 0 < check_number(self.without_class, "without_class") < 1:
            raise ValueError(f"Expected without_class between 0 and 1, got {self.without_class}")
        if any(check_count(count, "channels") % 4 for count in self.channels):
            raise ValueError(f"Expected channels as multiples of 4, got {self.channels}")


DEFAULT = DigitsSettings()
QUICK = DigitsSettings(steps=150, samples=100)


@dataclass(frozen=True)
class DigitsReport:
    """What came of a training.

    Attributes:
        folder: Where the model lies.
        read_as_asked: Share of guided samples (weight 2, DDIM, 10 steps) that a classifier reads as their class.
        read_unguided: The same for weight 1, the model's own conditional samples.
        reader_accuracy: Accuracy of that classifier, which is trained on half of the real digits, on the other half.
        samples: Number of samples of each kind.
        steps: Optimiser steps.
        parameters: Parameters of the model.
        loss: Mean squared error of the noise over the last tenth of the steps.
        seconds: Time of the training and the report.
        cpu_seconds: Time of all cores.
    """

    folder: Path
    read_as_asked: float
    read_unguided: float
    reader_accuracy: float
    samples: int
    steps: int
    parameters: int
    loss: float
    seconds: float
    cpu_seconds: float

    def summary(self) -> str:
        """Return the figures as a few lines of text."""
        return (
            f"{self.parameters:,} parameters, {self.steps:,} steps, {self.seconds:.0f} s ({self.cpu_seconds:.0f} s of "
            f"CPU)\n"
            f"a classifier reads {self.read_as_asked:.1%} of {self.samples} samples as the digit asked for at guidance "
            f"weight 2,\n{self.read_unguided:.1%} at weight 1 "
            f"(it reads {self.reader_accuracy:.1%} of the real digits that it has not seen)"
        )


def train_mini_diffusion(
    out: str | os.PathLike[str], *, seed: int = 0, settings: DigitsSettings = DEFAULT, progress: bool = False
) -> DigitsReport:
    """Train the model and write it as a folder that diffusers loads (``DDIMPipeline``).

    The folder appears when everything is done, or not at all; an earlier model of this kind is replaced. Its
    ``training.json`` records settings, seed, figures and versions. On one kind of machine, seed, settings, versions and
    number of torch threads decide every byte of the weights. Global random state is neither read nor changed.

    Args:
        out: The folder.
        seed: Seed of weights, order, noise and samples.
        settings: All sizes.
        progress: Show a progress bar on a terminal's stderr.

    Raises:
        ValueError: Something else is at ``out``.
        ModuleNotFoundError: diffusers is not installed.
    """
    diffusers = require("diffusers", "training a diffusion model")
    started, cpu_started = time.perf_counter(), time.process_time()
    folder = Path(out).expanduser()
    FOLDERS.check_replaceable(folder)
    seed = check_count(seed, "seed", minimum=0)
    scheduler = diffusers.DDIMScheduler(
        num_train_timesteps=_NOISE_STEPS, beta_schedule="squaredcos_cap_v2", clip_sample=True
    )
    with _own_randomness(seed):
        unet = _new_model(settings)
        averaged, loss = _fit(unet, scheduler, settings, seed, progress)
    with FOLDERS.replacing(folder) as part:
        with quiet():
            diffusers.DDIMPipeline(unet=averaged, scheduler=scheduler).save_pretrained(part)
        guided, unguided, accuracy = _read_back(part, settings, seed)
        report = DigitsReport(
            folder=folder,
            read_as_asked=guided,
            read_unguided=unguided,
            reader_accuracy=accuracy,
            samples=settings.samples // _CLASSES * _CLASSES,
            steps=settings.steps,
            parameters=sum(parameter.numel() for parameter in averaged.parameters()),
            loss=loss,
            seconds=time.perf_counter() - started,
            cpu_seconds=time.process_time() - cpu_started,
        )
        document = {
            "kind": FOLDERS.kind,
            "format": 1,
            "seed": seed,
            "settings": asdict(settings),
            "report": {**asdict(report), "folder": folder.name},
            "fingerprint": model_fingerprint(part),
            "versions": {name: metadata.version(name) for name in _PACKAGES},
        }
        (part / TRAINING_FILE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return report


def read_digits(images: NDArray[np.floating]) -> tuple[NDArray[np.int64], float]:
    """Read images with a classifier (a support vector machine) that is trained on half of the real digits.

    Args:
        images: Brightness in 0..1, shape (n, 8, 8).

    Returns:
        The digit of each image, (n,), and the classifier's accuracy on the other half of the real digits.
    """
    digits = handwritten_digits()
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


def _new_model(settings: DigitsSettings) -> Any:
    from diffusers import UNet2DModel

    return UNet2DModel(  # type: ignore[no-untyped-call]
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


def _fit(unet: Any, scheduler: Any, settings: DigitsSettings, seed: int, progress: bool) -> tuple[Any, float]:
    """Train a model; returns the average of its weights, and the loss over the last tenth of the steps."""
    import copy

    import torch
    from tqdm.auto import tqdm

    digits = handwritten_digits()
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


def _loss(
    unet: Any, scheduler: Any, images: Any, classes: Any, settings: DigitsSettings, draws: torch.Generator
) -> Any:
    """Mean squared error of the predicted noise of a batch."""
    import torch

    rows = torch.randint(len(images), (settings.batch_size,), generator=draws)
    labels = classes[rows].clone()
    labels[torch.rand(len(rows), generator=draws) < settings.without_class] = _CLASSES
    times = torch.randint(_NOISE_STEPS, (len(rows),), generator=draws)
    noise = torch.randn(images[rows].shape, generator=draws)
    noisy = scheduler.add_noise(images[rows], noise, times)
    return ((unet(noisy, times, class_labels=labels).sample - noise) ** 2).mean()


def _read_back(folder: Path, settings: DigitsSettings, seed: int) -> tuple[float, float, float]:
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
