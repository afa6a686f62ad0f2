"""Arguments of ``edpbrl bench``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

__all__ = ["Bench"]


@dataclass(frozen=True)
class Bench:
    """Compare ways of asking and estimating with simulated users: questions needed, or a race of all rules."""

    benchmark: tyro.conf.Positional[Literal["queries", "race"]]
    """queries: learning curves, questions needed, wins and losses against Random, what each piece buys. race: ranks of
    our planner and of every rule of the literature, and the time of their questions."""
    quick: bool = False
    """A small version (queries: about 5 minutes on 2 cores, 2 regimes, 3 arms and 2 seeds; race: about 2 minutes, 3
    regimes, 6 contenders and 4 seeds) where you do not set them."""
    regime: tuple[str, ...] = ()
    """Who answers what, such as argmax, scale-20, pairs-argmax (queries) or items-d10-K4, mdp-truncated-K4 (race; none
    given: all)."""
    arm: tuple[str, ...] = ()
    """queries: rule+estimator[+answers], such as random+ours, tuples+ours+ranking, adaptive. race: a contender, such as
    ours, paper-text, bald, or bald@ours for a rule with our posterior (none given: all of the study)."""
    seeds: int | None = None
    """Seeds (None: 20, quick: 2 or 4); side regimes and ablations of queries take at most 5."""
    first_seed: int = 0
    """First seed of race; choices are made on seeds from 1000 on."""
    full: bool = False
    """queries: every seed with all ten sentences instead of two."""
    episodes: tuple[int, ...] | None = None
    """The T at which estimates are judged; questions are asked up to the largest (None: queries 1 to 60, race 1 to
    10)."""
    questions: tuple[int, ...] | None = None
    """The same for the items of race, in questions (None: 5 to 60)."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, precomputed:FILE, package.module:Class."""
    jobs: int | None = None
    """Processes (None: one for each core); the results do not depend on it, the times do."""
    out: Path | None = None
    """Run folder (None: runs/queries or runs/race, with -quick). A stopped run goes on; arms may be added later."""
    report: Path | None = None
    """Run nothing: rewrite results, figures and REPORT.md of this run folder from what is finished."""
    page: Path | None = None
    """Also write the report as this Markdown file, with its figures beside it."""
