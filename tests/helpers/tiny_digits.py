"""A class-conditional diffusion model with random weights, so small that a test can run it many times."""

from __future__ import annotations

from pathlib import Path

from edpbrl_gym._compat import declare_torchvision_schemas


def save_tiny_digits(folder: Path, *, prediction_type: str = "epsilon") -> Path:
    """Build a DDIMPipeline of 8 x 8 grey images in ten classes with random weights, save it, and return the folder."""
    declare_torchvision_schemas()
    import diffusers
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        unet = diffusers.UNet2DModel(
            sample_size=8,
            in_channels=1,
            out_channels=1,
            layers_per_block=1,
            block_out_channels=(4, 8),
            down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
            norm_num_groups=4,
            attention_head_dim=4,
            num_class_embeds=11,
        )
    scheduler = diffusers.DDIMScheduler(
        beta_schedule="squaredcos_cap_v2", clip_sample=True, prediction_type=prediction_type
    )
    diffusers.DDIMPipeline(unet=unet, scheduler=scheduler).save_pretrained(folder)
    return folder
