"""Arguments of the commands of the main job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

CriterionName = Literal["V", "A", "D"]

__all__ = ["CriterionName", "Demo", "Design", "Estimate", "Report"]


@dataclass(frozen=True)
class Demo:
    """The main job in a minute: choose questions, a simulated user answers, write prompts that they like."""

    text: str = "A cosy winter evening, warm candle light behind frosted windows"
    """Taste of the simulated user in words."""
    episodes: int = 30
    """T, episodes that the user answers (one question for each step of a prompt)."""
    num_options: int = 4
    """K, options of a question."""
    criterion: CriterionName = "D"
    """What the design optimises: D, A or V."""
    prior: Literal["words", "embeddings", "ridge"] = "words"
    """What the estimates expect of a taste: that it is near words of the vocabulary, that it lies where their
    embeddings vary, or nothing."""
    regularization: float = 0.1
    """Lambda of the design's prior, and of embeddings and ridge (1 / mean variance)."""
    iterations: int = 200
    """Iterations of the design at most."""
    mode: Literal["argmax", "sampled"] = "argmax"
    """The user takes the best option, or samples from the softmax."""
    scale: float = 20.0
    """Inverse temperature of the sampled mode."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, package.module:Class."""
    seed: int = 0
    """Seed of everything."""
    out: Path | None = None
    """Run folder (None: runs/demo, or runs/demo-HASH of settings that are not the defaults)."""


@dataclass(frozen=True)
class Design:
    """Choose the questions for a vocabulary: solve a design, certify it, write the questions to ask."""

    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, precomputed:FILE, package.module:Class."""
    solver: str = "newton"
    """Agent that designs: newton, exact, tuples, frank_wolfe (the paper's), reference, random, a rule of the literature
    that needs no answers (greedy_d, naive, thinning, dopewolfe, rollout_pool), or package.module:Class (adaptive and
    the other rules need the answers while they ask, see docs/sessions.md; reinforce writes without a vocabulary, see
    `edpbrl reproduce reinforce`)."""
    device: str = "cpu"
    """Where newton multiplies all tokens: cpu, or cuda, cuda:1 and so on (torch)."""
    criterion: CriterionName = "D"
    """What the design optimises: D, A or V."""
    regularization: float = 1.0
    """Lambda of the estimate that will follow."""
    num_options: int = 4
    """K, options of a question."""
    episodes: int = 30
    """T, episodes (one question for each step of a prompt)."""
    iterations: int | None = None
    """Iterations of the solver at most (None: the solver's default, 200 for newton and 100 for frank_wolfe)."""
    tolerance: float | None = None
    """Stop at this gap relative to the gain (None: the solver's default, 1e-6 for newton and 1e-4 for frank_wolfe)."""
    time_limit: float | None = None
    """Seconds for the solver at most; then the best design so far is written with its certificate (None: no limit)."""
    feedback: Literal["truncated", "state"] = "truncated"
    """Show partial prompts, or single tokens."""
    split: Literal["all", "train"] = "all"
    """Ask about all tokens, or about the 75% train part."""
    questions: Literal["csv", "parquet"] = "csv"
    """Format of the questions file."""
    seed: int = 0
    """Seed of the drawn questions and of the split."""
    out: Path = Path("runs/design")
    """Folder for the design and the questions."""


@dataclass(frozen=True)
class Estimate:
    """Estimate a taste from answered questions."""

    answers: tyro.conf.Positional[Path]
    """Comparisons (.parquet), or the questions file of `edpbrl design` with its choice column filled in (1..K)."""
    prior: Literal["words", "embeddings", "ridge"] = "words"
    """What is expected of a taste: that it is near words of the vocabulary, that it lies where their embeddings vary,
    or nothing."""
    regularization: float | None = None
    """Lambda of the ridge (None: 1, or what --scale says)."""
    scale: float | Literal["auto"] | None = None
    """Mean prior variance (1 / lambda) of ridge or embeddings, or auto: what fits the answers best (None: auto, but for
    the ridge --regularization)."""
    vocabulary: Path | None = None
    """Folder of token files whose embeddings make the prior (None: that of design.json beside the answers, else the
    built-in one where the options are made of its tokens)."""
    power: float | None = None
    """Power of the embeddings' covariance; 0 knows nothing of them (None: 0.75 for words, 1 for embeddings)."""
    encoder: str | None = None
    """Text encoder of a questions file (None: that of design.json beside it, else minilm)."""
    out: Path = Path("runs/theta.safetensors")
    """File for theta."""


@dataclass(frozen=True)
class Report:
    """Rebuild every figure and REPORT.md of a run from its results.parquet."""

    run: tyro.conf.Positional[Path]
    """Run folder, or its results.parquet."""
    out: Path | None = None
    """Folder for figures and report (None: the run's own)."""
