"""Arguments of ``edpbrl render``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

__all__ = ["Render"]


@dataclass(frozen=True)
class Render:
    """Render prompts as images; what was rendered before is taken from the cache."""

    prompts: tyro.conf.Positional[Path]
    """Text file with a prompt in each line, or CSV file; `edpbrl personalize` and `edpbrl design` write such CSV."""
    model: str
    """Text-to-image model: hub id, such as CompVis/stable-diffusion-v1-4, or folder of a diffusers pipeline."""
    out: Path = Path("runs/images")
    """Folder for the images, manifest.csv and the contact sheet."""
    column: tuple[str, ...] = ()
    """Columns of the CSV file with prompts (none given: prompt, else text, else option_1, option_2, ...)."""
    prefixes: bool = False
    """Also render the truncated prompts: every beginning of a prompt that ends before a comma."""
    seed: tuple[int, ...] = (0,)
    """Seeds of the noise; every prompt gets an image for each."""
    steps: int = 50
    """Denoising steps; turbo-class models take 1 to 4."""
    guidance: float = 7.5
    """Guidance scale; turbo-class models take 0."""
    height: int | None = None
    """Pixels (None: the model's own)."""
    width: int | None = None
    """Pixels (None: the model's own)."""
    negative: str = ""
    """What the images should not show."""
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Number format of weights and noise; the short ones are for GPUs."""
    variant: str | None = None
    """File variant of the weights, such as fp16 (None: the main one)."""
    revision: str | None = None
    """Branch, tag or commit on the hub (None: the main branch)."""
    device: str | None = None
    """Torch device (None: cuda where there is one, else cpu)."""
    batch_size: int = 4
    """Most images made at once; halved when the memory is too small."""
    attention_slicing: bool = False
    """Less memory for more time."""
    cache: Path | None = None
    """Folder of the image cache (None: images/ in the folder that EDPBRL_CACHE names, else in the user's cache)."""
    sheet_columns: int = 4
    """Images in each row of the contact sheet; 0 draws none."""
