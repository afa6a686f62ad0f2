"""Frozen diffusion models: deterministic denoising in blocks, guided towards texts or classes."""

from edpbrl_gym.diffusion.denoiser import Denoiser, load_denoiser, model_shape
from edpbrl_gym.diffusion.enumeration import enumerate_episodes
from edpbrl_gym.diffusion.schedulers import SCHEDULERS, BlockSchedule

__all__ = ["SCHEDULERS", "BlockSchedule", "Denoiser", "enumerate_episodes", "load_denoiser", "model_shape"]
