"""Arguments of ``edpbrl bench``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

__all__ = ["Bench"]


@dataclass(frozen=True)
class Bench:
    """Count the questions that each way of asking and estimating needs, with simulated users."""

    benchmark: tyro.conf.Positional[Literal["queries"]]
    """queries: learning curves, questions needed, wins and losses against Random, what each piece buys."""
    quick: bool = False
    """A small version in about 5 minutes on 2 cores: 2 regimes, 3 arms and 2 seeds where you do not set them."""
    regime: tuple[str, ...] = ()
    """Who answers what, such as argmax, scale-20, pairs-argmax (none given: all)."""
    arm: tuple[str, ...] = ()
    """Rule+estimator[+answers], such as random+ours, tuples+ours+ranking, adaptive (none given: all of the study)."""
    seeds: int | None = None
    """Seeds of the headline regimes; side regimes and ablations take at most 5 (None: 20, quick: 2)."""
    full: bool = False
    """Every seed with all ten sentences instead of two."""
    episodes: tuple[int, ...] | None = None
    """The T at which estimates are judged; questions are asked up to the largest (None: 1 to 60)."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, precomputed:FILE."""
    jobs: int | None = None
    """Processes (None: one for each core); the results do not depend on it, the times do."""
    out: Path | None = None
    """Run folder (None: runs/queries, or runs/queries-quick). A stopped run goes on; arms may be added later."""
    report: Path | None = None
    """Run nothing: rewrite results, figures and REPORT.md of this run folder from what is finished."""
    page: Path | None = None
    """Also write the report as this Markdown file, with its figures beside it."""
