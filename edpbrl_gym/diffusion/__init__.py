"""Frozen diffusion models: deterministic denoising in blocks, guided towards texts or classes."""

from edpbrl_gym.diffusion.denoiser import Denoiser, load_denoiser, model_shape
from edpbrl_gym.diffusion.enumeration import enumerate_episodes, enumerate_from, play_sequences
from edpbrl_gym.diffusion.pool import TrajectoryPool
from edpbrl_gym.diffusion.schedulers import SCHEDULERS, BlockSchedule

__all__ = [
    "SCHEDULERS",
    "BlockSchedule",
    "Denoiser",
    "TrajectoryPool",
    "enumerate_episodes",
    "enumerate_from",
    "load_denoiser",
    "model_shape",
    "play_sequences",
]
