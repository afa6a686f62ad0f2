"""Arguments of ``edpbrl personalize``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

__all__ = ["Personalize"]


@dataclass(frozen=True)
class Personalize:
    """Write the best prompts for a taste, compare tastes, draw the prompts."""

    theta: tyro.conf.Positional[Path]
    """Taste file of `edpbrl estimate`."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str | None = None
    """Text encoder (None: the one named in the taste file; one of your own must be given)."""
    base: tuple[str, ...] = ()
    """Base prompts, in quotes: every prompt begins with one of them, in place of the first step."""
    count: int = 10
    """Prompts wanted for each base and taste."""
    width: int = 20
    """Partial prompts kept after each step; more finds better prompts and takes longer."""
    shortlist: int = 16
    """Tokens of each step tried after each partial prompt."""
    per_base: int = 1
    """At most so many prompts with the same first token."""
    split: Literal["all", "train", "test"] = "all"
    """Use all tokens, or one part of the split (test: the held-out 25%)."""
    seed: int = 0
    """Seed of the split and of the policy's draws."""
    tokens_per_step: int | None = None
    """Use at most so many tokens of each step, drawn with --subset-seed (None: all)."""
    subset_seed: int = 0
    """Seed of the drawn tokens."""
    out: Path = Path("runs/prompts.csv")
    """CSV file for the prompts."""

    name: str = "ED-PBRL"
    """Name of the taste in tables and on the sheet."""
    theta_random: Path | None = None
    """Taste file learnt from Random questions, to compare with; the same as --compare Random=FILE."""
    compare: tuple[str, ...] = ()
    """More tastes to compare with, as NAME=FILE."""
    truth: str | None = None
    """The true taste where it is known: a sentence, or a taste file. Gives every prompt its GTScore."""
    policy: Path | None = None
    """PPO or MaskablePPO (.zip) trained for the taste, whose prompts are ranked too. A pickle: trust its source."""
    policy_samples: int = 256
    """Prompts drawn from the policy."""

    model: str | None = None
    """Text-to-image model by hub id or folder: draws the best prompts and a contact sheet (None: no pictures)."""
    pictures: int = 3
    """Prompts drawn for each base and taste."""
    sheet: Path | None = None
    """Contact sheet (None: beside the prompts, with .png)."""
    steps: int = 50
    """Denoising steps; turbo-class models take 1 to 4."""
    guidance: float = 7.5
    """Guidance scale; turbo-class models take 0."""
    negative: str = ""
    """What the pictures should not show."""
    image_height: int | None = None
    """Pixels (None: the model's own)."""
    image_width: int | None = None
    """Pixels (None: the model's own)."""
    image_seed: int = 0
    """Seed of the noise, the same for all pictures, so that they differ by their prompts only."""
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Number format of weights and noise; the short ones are for GPUs."""
    variant: str | None = None
    """File variant of the weights, such as fp16 (None: the main one)."""
    revision: str | None = None
    """Branch, tag or commit on the hub (None: the main branch)."""
    device: str | None = None
    """Torch device (None: cuda where there is one, else cpu)."""
    batch_size: int = 4
    """Most pictures made at once; halved when the memory is too small."""
    attention_slicing: bool = False
    """Less memory for more time."""
    cache: Path | None = None
    """Folder of the image cache (None: images/ in the folder that EDPBRL_CACHE names, else in the user's cache)."""
    score_guided: float | None = None
    """Also draw each base moved towards each taste: path length as a share of its embeddings' norm, such as 0.1."""
    projection: str | None = None
    """For --score-guided: CLIPTextModelWithProjection of the model's text encoder, by hub id or folder."""
