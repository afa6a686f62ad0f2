"""Deterministic samplers of diffusers, and blocks of their steps.

Given the noise, each of these schedulers turns the model's outputs into images without any further randomness. The
denoising steps are cut into blocks. Where a scheduler uses earlier outputs (all but "ddim" and "euler"), it begins
every block without any: what follows then depends on the latent and the block alone, so blocks are steps of an MDP.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from edpbrl_gym._compat import require
from edpbrl_gym._validation import check_choice_of, check_count

__all__ = ["SCHEDULERS", "BlockSchedule", "check_schedule"]

SCHEDULERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ddim": ("DDIMScheduler", {}),
    "euler": ("EulerDiscreteScheduler", {}),
    "dpm": ("DPMSolverMultistepScheduler", {"algorithm_type": "dpmsolver++"}),
    "deis": ("DEISMultistepScheduler", {}),
    "unipc": ("UniPCMultistepScheduler", {}),
}
"""Name -> class of diffusers and what is set beside the model's own configuration.

"ddim" is DDIM with eta = 0 (Song, Meng and Ermon, 2021, "Denoising diffusion implicit models").
"""


def check_schedule(scheduler: Any, steps: Any, blocks: Any) -> tuple[str, int, int]:
    """Return the arguments of `BlockSchedule`, checked without importing diffusers.

    Raises:
        ValueError: An unknown scheduler, or steps that blocks don't divide.
    """
    check_choice_of(scheduler, "scheduler", tuple(SCHEDULERS))
    count, number = check_count(steps, "steps"), check_count(blocks, "blocks")
    if count % number:
        raise ValueError(
            f"Expected steps as a multiple of blocks = {number}, got {count}: every block has as many denoising steps"
        )
    return scheduler, count, number


class BlockSchedule:
    """The denoising steps of a deterministic scheduler, in blocks of equal size.

    Args:
        scheduler: Name in ``SCHEDULERS``.
        config: Configuration of the model's own scheduler: its noise schedule and prediction type.
        steps: Number of denoising steps, a multiple of ``blocks``.
        blocks: Number of blocks B.

    Attributes:
        num_blocks: B.
        size: Denoising steps of a block.
        noise_scale: Standard deviation of the initial latent.

    Raises:
        ValueError: As for `check_schedule`, or the model's scheduler is none of these (such as flow matching).
    """

    def __init__(self, scheduler: str, config: Any, *, steps: int, blocks: int) -> None:
        name, count, self.num_blocks = check_schedule(scheduler, steps, blocks)
        self.size = count // self.num_blocks
        diffusers = require("diffusers", "diffusion models")
        class_name, fixed = SCHEDULERS[name]
        if "beta_schedule" not in config and "trained_betas" not in config:
            raise ValueError(
                f"Expected a model that was trained with a schedule of betas, got the scheduler "
                f"{config.get('_class_name', 'without a name')}; use a model such as Stable Diffusion 1.x"
            )
        # what a scheduler of another class does not say must not become DDIM's defaults: clipping is for pixels
        unsaid = {"clip_sample": False, "set_alpha_to_one": False} if name == "ddim" else {}
        fixed = {**{key: value for key, value in unsaid.items() if key not in config}, **fixed}
        self._fresh = getattr(diffusers, class_name).from_config(config, **fixed)
        self._fresh.set_timesteps(count)
        self.timesteps = self._fresh.timesteps
        if len(self.timesteps) != count:
            raise ValueError(
                f"Expected {count} denoising steps, the scheduler {name!r} makes {len(self.timesteps)} of this model's "
                'configuration; use scheduler="ddim"'
            )
        self.noise_scale = float(self._fresh.init_noise_sigma)

    def begin(self, block: int) -> BlockRun:
        """A run of the steps of a block, 0..B-1."""
        return BlockRun(copy.deepcopy(self._fresh), self.timesteps, block * self.size, self.size)


class BlockRun:
    """One block of denoising steps of a batch of latents.

    Attributes:
        clean: The predicted clean latent after the last step, torch tensor (n, C, H, W).
    """

    def __init__(self, scheduler: Any, timesteps: Any, start: int, size: int) -> None:
        self._scheduler = scheduler
        self._steps = [timesteps[index] for index in range(start, start + size)]
        self._last = start + size == len(timesteps)
        if hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index(start)
        self.clean: Any = None

    def timestep(self, index: int) -> Any:
        """Timestep of a denoising step of the block, a torch scalar."""
        return self._steps[index]

    def model_input(self, index: int, latents: Any) -> Any:
        """What the model is given at a step."""
        return self._scheduler.scale_model_input(latents, self._steps[index])

    def step(self, index: int, output: Any, latents: Any) -> Any:
        """The latents after a step, from the model's output (guided); sets ``clean`` after the last one."""
        result = self._scheduler.step(output, self._steps[index], latents)
        if index + 1 == len(self._steps):
            self.clean = result.prev_sample if self._last else self._predicted(index, result, output, latents)
        return result.prev_sample

    def _predicted(self, index: int, result: Any, output: Any, latents: Any) -> Any:
        """The clean latent that the model predicts (Ho, Jain and Abbeel, 2020, Eq. 15)."""
        predicted = getattr(result, "pred_original_sample", None)
        if predicted is not None:
            return predicted
        config = self._scheduler.config
        kept = float(self._scheduler.alphas_cumprod[int(self._steps[index])])
        signal, noise = np.sqrt(kept), np.sqrt(1.0 - kept)
        if config.prediction_type == "sample":
            return output
        if config.prediction_type == "v_prediction":
            return signal * latents - noise * output
        return (latents - noise * output) / signal
