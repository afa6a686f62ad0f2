"""Frozen diffusion models with classifier-free guidance towards conditions: texts or classes.

The guided output is u + w (c - u), with u and c the model's outputs without and with the condition and w the weight
(Ho and Salimans, 2022, "Classifier-free diffusion guidance").
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import require, resolve_device
from edpbrl_gym._files import reading
from edpbrl_gym.diffusion.schedulers import BlockSchedule
from edpbrl_gym.rendering.diffusers.files import find_model, model_fingerprint, quiet
from edpbrl_gym.rendering.diffusers.pipelines import load_pipeline
from edpbrl_gym.rendering.settings import RenderSettings

__all__ = ["SHIPPED_FOLDER", "SHIPPED_NAME", "Condition", "Denoiser", "ModelShape", "load_denoiser", "model_shape"]

SHIPPED_FOLDER = Path(__file__).parent / "data" / "mini-diffusion"  # handwritten digits, trained by this package
SHIPPED_NAME = "edpbrl-gym mini-diffusion"

Condition = str | int

_BATCH_NUMBERS = 1 << 18  # in the latents that are decoded at once


class ModelShape:
    """What the configuration of a model says about its latents and conditions; no weights are read.

    Attributes:
        folder: Folder of the pipeline.
        latent: Shape of a latent, (C, H, W).
        classes: Number of classes of a class-conditional model, None for one with text conditions.

    Raises:
        ValueError: The model takes neither texts nor classes.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "unet" / "config.json"
        if not path.is_file():
            raise ValueError(
                f"Expected a diffusion model with a UNet (unet/config.json) in {folder}, found none; use Stable "
                "Diffusion 1.x or 2.x, or a folder like the one of the package"
            )
        with reading("the configuration of a UNet", path):
            config = json.loads(path.read_text(encoding="utf-8"))
            size = config.get("sample_size")
            if size is None:
                raise ValueError(f"Expected the size of the latents (sample_size) in {path}, got none")
            height, width = (size, size) if isinstance(size, int) else size
            if config.get("addition_embed_type") is not None or config["in_channels"] != config.get(
                "out_channels", config["in_channels"]
            ):
                raise ValueError(
                    f"Expected a UNet that takes a latent and one text or class, got one with further inputs in "
                    f"{folder} (such as Stable Diffusion XL, or an inpainting model); use Stable Diffusion 1.x or 2.x"
                )
            self.folder = folder
            self.latent = (int(config["in_channels"]), int(height), int(width))
            self.classes: int | None = None
            if config.get("cross_attention_dim") is None:
                embeddings = config.get("num_class_embeds")
                if embeddings is None or embeddings < 2:
                    raise ValueError(
                        f"Expected a model with text conditions or with class embeddings in {folder}, got neither; "
                        "there is nothing to guide towards"
                    )
                self.classes = int(embeddings) - 1  # the last one is "no class"

    def check_condition(self, condition: Any) -> Condition:
        """Return a condition of this model: a class in 0..classes - 1, or a text.

        Raises:
            ValueError: It is none.
        """
        if self.classes is None:
            if not isinstance(condition, str) or not condition.strip():
                raise ValueError(f"Expected texts as conditions of this model, got {condition!r}")
            return condition
        if isinstance(condition, bool) or not isinstance(condition, int | np.integer):
            raise ValueError(f"Expected classes 0..{self.classes - 1} as conditions, got {condition!r}")
        if not 0 <= condition < self.classes:
            raise ValueError(f"Expected classes 0..{self.classes - 1} as conditions, got {condition}")
        return int(condition)


def model_shape(model: str | None) -> ModelShape:
    """Return the shape of a model by hub id or folder; None is the package's own.

    Raises:
        FileNotFoundError: The folder does not exist, or has no pipeline.
        ConnectionError: The hub can't be reached, or has no such model.
        ValueError: It is no diffusion model with conditions.
    """
    return ModelShape(SHIPPED_FOLDER if model is None else find_model(RenderSettings(model=model)))


class Denoiser(ABC):
    """A frozen model that denoises a batch of latents towards a condition each.

    Attributes:
        name: Hub id, folder, or ``SHIPPED_NAME``.
        fingerprint: sha256 (hex) of weights and configurations.
        calls: Number of calls of the model so far; a call serves all latents of a batch, with and without condition.
        device: Torch device.
    """

    def __init__(self, unet: Any, conditions: Sequence[Condition], *, name: str, fingerprint: str, device: str) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self.device = device
        self.calls = 0
        self._unet = unet
        self._embedded = self._embed(list(conditions))  # the last row is "no condition"

    @abstractmethod
    def _embed(self, conditions: list[Condition]) -> Any:
        """Embeddings of the conditions and of "no condition", as the model takes them, (c + 1, ...)."""

    @abstractmethod
    def _output(self, inputs: Any, timesteps: Any, embedded: Any) -> Any:
        """The model's outputs, (n, C, H, W)."""

    @abstractmethod
    def _pixels(self, clean: Any) -> Any:
        """Images of clean latents, torch tensor (n, 1 or 3, height, width) with values about -1..1."""

    def advance(
        self,
        schedule: BlockSchedule,
        latents: NDArray[np.float32],
        blocks: NDArray[np.int64],
        conditions: NDArray[np.int64],
        weights: NDArray[np.float64],
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Denoise every latent by one block of steps; each step is one call of the model for all latents.

        Args:
            schedule: The denoising steps.
            latents: Shape (n, C, H, W).
            blocks: The block of each latent, 0..B-1, (n,).
            conditions: Index of each latent's condition, (n,).
            weights: Weight of the guidance, (n,).

        Returns:
            The latents after the block and the predicted clean latents, (n, C, H, W) each.
        """
        import torch

        if not len(latents):
            return latents.copy(), latents.copy()
        groups = [(np.flatnonzero(blocks == block), schedule.begin(int(block))) for block in np.unique(blocks)]
        current = torch.as_tensor(latents, device=self.device)
        scale = torch.as_tensor(weights, dtype=torch.float32, device=self.device)[:, None, None, None]
        nothing = np.full(len(latents), len(self._embedded) - 1)
        embedded = self._embedded[torch.as_tensor(np.concatenate([nothing, conditions]), device=self.device)]
        with torch.inference_mode():
            for index in range(schedule.size):
                inputs, moments = current.clone(), np.empty(len(latents))
                for rows, run in groups:
                    inputs[rows] = run.model_input(index, current[rows])
                    moments[rows] = float(run.timestep(index))
                timesteps = torch.as_tensor(moments, dtype=torch.float32, device=self.device)
                outputs = self._output(torch.cat([inputs, inputs]), torch.cat([timesteps, timesteps]), embedded)
                self.calls += 1
                without, towards = outputs.chunk(2)
                guided = without + scale * (towards - without)
                following = torch.empty_like(current)
                for rows, run in groups:
                    following[rows] = run.step(index, guided[rows], current[rows])
                current = following
            clean = torch.empty_like(current)
            for rows, run in groups:
                clean[rows] = run.clean
        return current.cpu().numpy(), clean.cpu().numpy()

    def images(self, clean: NDArray[np.float32], batch_size: int | None = None) -> NDArray[np.uint8]:
        """Return images of clean latents, uint8 of shape (n, height, width, 3).

        Args:
            clean: Shape (n, C, H, W).
            batch_size: Most latents that are decoded at once; None: 4,096 of the digits', 16 of 64 x 64 latents.
        """
        import torch

        batch_size = batch_size or max(8, _BATCH_NUMBERS // max(1, int(np.prod(clean.shape[1:]))))
        parts = []
        with torch.inference_mode():
            for start in range(0, len(clean), batch_size):
                chunk = torch.as_tensor(clean[start : start + batch_size], device=self.device)
                pixels = ((self._pixels(chunk).float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
                parts.append(pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).cpu().numpy())
        return np.ascontiguousarray(np.concatenate(parts)) if parts else np.empty((0, 1, 1, 3), dtype=np.uint8)


class ClassDenoiser(Denoiser):
    """A class-conditional model of pixels: diffusers' ``UNet2DModel`` whose last class embedding means "no class"."""

    def _embed(self, conditions: list[Condition]) -> Any:
        import torch

        nothing = self._unet.config.num_class_embeds - 1
        return torch.tensor([*conditions, nothing], dtype=torch.long, device=self.device)

    def _output(self, inputs: Any, timesteps: Any, embedded: Any) -> Any:
        return self._unet(inputs, timesteps, class_labels=embedded).sample

    def _pixels(self, clean: Any) -> Any:
        return clean


class TextDenoiser(Denoiser):
    """A latent model with text conditions: a pipeline of diffusers with UNet, text encoder, tokenizer and VAE."""

    def __init__(self, pipeline: Any, conditions: Sequence[Condition], **identity: Any) -> None:
        self._pipeline = pipeline
        super().__init__(pipeline.unet, conditions, **identity)

    def _embed(self, conditions: list[Condition]) -> Any:
        import torch

        with torch.inference_mode():
            embedded, _ = self._pipeline.encode_prompt(
                [*map(str, conditions), ""], self.device, num_images_per_prompt=1, do_classifier_free_guidance=False
            )
        return embedded

    def _output(self, inputs: Any, timesteps: Any, embedded: Any) -> Any:
        return self._unet(inputs, timesteps, encoder_hidden_states=embedded).sample

    def _pixels(self, clean: Any) -> Any:
        vae = self._pipeline.vae
        return vae.decode(clean / vae.config.scaling_factor).sample


def load_denoiser(
    model: str | None, conditions: Sequence[Condition], *, device: str | None = None
) -> tuple[Denoiser, dict[str, Any]]:
    """Load a frozen model in float32.

    Args:
        model: Hub id or folder of a pipeline; None is the package's own.
        conditions: What it is guided towards, texts or classes.
        device: Torch device; None: "cuda" if available, else "cpu".

    Returns:
        The model, and the configuration of its scheduler.

    Raises:
        FileNotFoundError, ConnectionError: As for `model_shape`.
        ValueError: A condition does not fit the model, the device is unknown, or the weights are damaged.
        ModuleNotFoundError: diffusers is not installed.
    """
    require("diffusers", "diffusion models")
    shape = model_shape(model)
    checked = [shape.check_condition(condition) for condition in conditions]
    target = resolve_device(device)
    name = SHIPPED_NAME if model is None else model
    if shape.classes is None:
        assert model is not None
        loaded = load_pipeline(RenderSettings(model=model), target)
        for component in ("unet", "vae", "text_encoder"):
            if getattr(loaded.pipeline, component, None) is None:
                raise ValueError(
                    f"Expected a pipeline with a UNet, a VAE and a text encoder at {model}, it has no {component}; use "
                    "a model such as Stable Diffusion 1.x or 2.x"
                )
            getattr(loaded.pipeline, component).requires_grad_(False)
        text_model = TextDenoiser(loaded.pipeline, checked, name=name, fingerprint=loaded.fingerprint, device=target)
        return text_model, dict(loaded.pipeline.scheduler.config)
    from diffusers import UNet2DModel

    with quiet():
        try:
            unet: Any = UNet2DModel.from_pretrained(  # type: ignore[no-untyped-call]
                shape.folder / "unet", local_files_only=True
            )
        except Exception as error:  # of many classes
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"Expected a UNet2DModel of diffusers in {shape.folder / 'unet'}, but it could not be loaded "
                f"({type(error).__name__}: {reason}); check that the folder is whole"
            ) from error
    unet.to(target).eval().requires_grad_(False)
    config = json.loads((shape.folder / "scheduler" / "scheduler_config.json").read_text(encoding="utf-8"))
    class_model = ClassDenoiser(unet, checked, name=name, fingerprint=model_fingerprint(shape.folder), device=target)
    return class_model, config
