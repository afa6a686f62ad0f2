"""Arguments of ``edpbrl personalize``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

__all__ = ["Personalize"]


@dataclass(frozen=True)
class Personalize:
    """Write the best prompts for a taste."""

    theta: tyro.conf.Positional[Path]
    """Taste file of `edpbrl estimate`."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str | None = None
    """Text encoder (None: the one named in the taste file)."""
    base: str | None = None
    """Text that every prompt begins with, in place of the first step."""
    count: int = 10
    """Prompts wanted."""
    width: int = 20
    """Partial prompts kept after each step; more finds better prompts and takes longer."""
    shortlist: int = 16
    """Tokens of each step tried after each partial prompt."""
    per_base: int = 1
    """At most so many prompts with the same first token."""
    split: Literal["all", "train", "test"] = "all"
    """Use all tokens, or one part of the split."""
    seed: int = 0
    """Seed of the split."""
    out: Path = Path("runs/prompts.csv")
    """CSV file for the prompts."""
