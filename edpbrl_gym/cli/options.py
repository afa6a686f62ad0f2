"""The arguments of every command; light to import, so that --help is fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

__all__ = [
    "Bench",
    "Command",
    "Demo",
    "Design",
    "Estimate",
    "Personalize",
    "Reinforce",
    "Report",
    "Reproduce",
    "Synthetic",
    "TrainPromptLM",
]

CriterionName = Literal["V", "A", "D"]


@dataclass(frozen=True)
class Demo:
    """The main job in a minute: choose questions, a simulated user answers, write prompts that they like."""

    text: str = "A cosy winter evening, warm candle light behind frosted windows"
    """Taste of the simulated user in words."""
    episodes: int = 30
    """T, episodes that the user answers (one question for each step of a prompt)."""
    policies: int = 4
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
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG."""
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
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, precomputed:FILE."""
    solver: str = "newton"
    """Agent that designs: newton, exact, tuples, frank_wolfe (the paper's), reference, random, or package.module:Class
    (adaptive needs the answers while it asks, see docs/sessions.md; reinforce writes without a vocabulary, see
    `edpbrl reproduce reinforce`)."""
    device: str = "cpu"
    """Where newton multiplies all tokens: cpu, or cuda, cuda:1 and so on (torch)."""
    criterion: CriterionName = "D"
    """What the design optimises: D, A or V."""
    regularization: float = 1.0
    """Lambda of the estimate that will follow."""
    policies: int = 4
    """K, options of a question."""
    episodes: int = 30
    """T, episodes (one question for each step of a prompt)."""
    iterations: int | None = None
    """Iterations of the solver at most (None: the solver's default, 200 for newton and 100 for frank_wolfe)."""
    tolerance: float | None = None
    """Stop at this gap relative to the gain (None: the solver's default, 1e-6 for newton and 1e-4 for frank_wolfe)."""
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
    prior: Literal["ridge", "embeddings"] = "ridge"
    """What is expected of a taste: nothing (ridge), or that it lies where the vocabulary's embeddings vary."""
    regularization: float = 1.0
    """Lambda of the ridge, where --scale is not given."""
    scale: float | Literal["auto"] | None = None
    """Mean prior variance (1 / lambda), or auto: what fits the answers best (None: auto for embeddings)."""
    vocabulary: Path | None = None
    """Folder of token files whose embeddings make the prior (None: the built-in one)."""
    power: float = 1.0
    """Power of the embeddings' covariance; 0 is the ridge."""
    encoder: str | None = None
    """Text encoder of a questions file (None: that of design.json beside it, else minilm)."""
    out: Path = Path("runs/theta.safetensors")
    """File for theta."""


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


@dataclass(frozen=True)
class Synthetic:
    """Users whose taste is a sentence's embedding: designed against random questions. The defaults are the paper's."""

    quick: bool = False
    """A small version in about 3 minutes on 2 cores: T = 10, 40, 110 and 8 runs where you do not set them."""
    episodes: tuple[int, ...] = (10, 30, 50, 70, 90, 110)
    """The T at which estimates are judged."""
    runs: int = 25
    """Independent repeats."""
    agents: tuple[str, ...] = ("frank_wolfe", "random")
    """Who asks, the baseline last: name or package.module:Class[,option=value...], as frank_wolfe,criterion=D."""
    users: tuple[str, ...] = ("sunny", "medieval", "technological")
    """The paper's users by name, or your own as name=sentence."""
    modes: tuple[Literal["argmax", "sampled"], ...] = ("argmax", "sampled")
    """Users take the best option, or sample from the softmax (the paper does not say which)."""
    scales: tuple[float, ...] = (1.0, 20.0)
    """Inverse temperatures of the sampled mode; 1 is nearly uniform, at 20 about 6 in 10 answers are the best."""
    policies: int = 4
    """K, options of a question."""
    criterion: CriterionName = "V"
    """What the designs optimise."""
    regularization: float = 100.0
    """Lambda of the designs."""
    estimation_regularization: float | None = None
    """Lambda of the estimates (None: that of the designs)."""
    iterations: int = 100
    """Frank-Wolfe iterations at most."""
    design_for: Literal["each", "largest"] = "each"
    """A design for each T, as its objective has T in it, or one for the largest T, whose first episodes serve all."""
    feedback: Literal["truncated", "state"] = "truncated"
    """Compare partial prompts, or single tokens."""
    prompts: int = 1000
    """Held-out prompts of the preference error."""
    pairs: int = 5000
    """Pairs of them."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper: CLIP ViT-L/14)."""
    tokens_per_step: int | None = None
    """Use at most so many train tokens of every step (None: all)."""
    seed: int = 0
    """Seed of everything."""
    jobs: int | None = None
    """Processes (None: one for each core); the results do not depend on it."""
    out: Path | None = None
    """Run folder (None: runs/synthetic, or runs/synthetic-quick). A stopped run goes on where it was."""


@dataclass(frozen=True)
class Reinforce:
    """Language models as query policies, trained by REINFORCE, without a vocabulary. Sizes are the paper's.

    Several GPUs: accelerate launch --num_processes N -m edpbrl_gym.cli reproduce reinforce.
    """

    quick: bool = False
    """A check that everything works in a few minutes, not a result: few iterations of few trajectories."""
    model: str | None = None
    """Language model that all policies begin at: hub id or folder, such as Gustavosta/MagicPrompt-Stable-Diffusion
    (None: the project's own, made by `edpbrl train-prompt-lm`)."""
    policies: int = 4
    """K, policies and options of a question."""
    kind: Literal["adapters", "copies"] = "adapters"
    """LoRA adapters on one frozen model, or K full copies (the paper's)."""
    rank: int = 8
    """Rank of the adapters."""
    noise: float = 0.0
    """Standard deviation of the noise on the weights at the start."""
    iterations: int | None = None
    """Gradient steps (None: 200, quick: 10)."""
    meta_samples: int | None = None
    """M, samples of the objective for a gradient (None: 8, quick: 4)."""
    episodes: int | None = None
    """T, trajectories of a sample (None: 8, quick: 4)."""
    words: int = 8
    """H, words of a prompt."""
    max_tokens: int = 32
    """Most tokens of a prompt, whatever its words."""
    regularization: float = 1.0
    """Lambda of the objective."""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """Optimiser of the policies."""
    learning_rate: float = 1e-3
    """Its step size."""
    credit: Literal["batch_mean", "leave_one_out", "moving_average", "marginal", "causal", "marginal_causal"] = (
        "batch_mean"
    )
    """Baseline or credit of the gradient: the batch mean (the paper's), or with less variance (docs/reinforce.md)."""
    average_decay: float = 0.9
    """Of the credit moving_average."""
    kl_weight: float = 0.0
    """Weight of the divergence from the base model, which keeps prompts readable."""
    max_gradient_norm: float | None = None
    """Shorten gradients to this norm (None: never)."""
    temperature: float = 1.0
    """Of the sampling."""
    evaluate_every: int = 5
    """Iterations between evaluations."""
    evaluation_samples: int | None = None
    """Samples of the objective in an evaluation (None: 16, quick: 4)."""
    checkpoint_every: int = 5
    """Iterations between checkpoints."""
    batch_size: int = 64
    """Most prompts in one forward pass of a language model."""
    precision: Literal["float32", "bf16"] = "float32"
    """bf16: mixed precision, on CUDA only."""
    tensorboard: bool = False
    """Write the training's scalars for TensorBoard to OUT/training/tensorboard."""
    questions: tuple[int, ...] | None = None
    """Numbers of questions after which tastes are estimated (None: 24 48 96 192, quick: 24 48)."""
    vocabulary: Path | None = None
    """Token files for the prior, the Random baseline and the judged prompts (None: the built-in ones)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper: CLIP ViT-L/14)."""
    device: str | None = None
    """Of the language models (None: cuda where there is one)."""
    seed: int = 0
    """Seed of everything."""
    out: Path | None = None
    """Run folder (None: runs/reinforce, or runs/reinforce-quick). A stopped run goes on where it was."""


@dataclass(frozen=True)
class Reproduce:
    """Repeat an experiment of the paper."""

    experiment: tyro.conf.OmitArgPrefixes[
        tyro.conf.OmitSubcommandPrefixes[
            Annotated[Synthetic, tyro.conf.subcommand("synthetic")]
            | Annotated[Reinforce, tyro.conf.subcommand("reinforce")]
        ]
    ]


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


@dataclass(frozen=True)
class TrainPromptLM:
    """Train the small language model of prompts that `edpbrl reproduce reinforce` starts from."""

    quick: bool = False
    """A much smaller one in half a minute: 50 tokens of each step in place of 250, a sixth of the parameters."""
    prompts: int | None = None
    """Training prompts, composed from the vocabulary (None: 48000, quick: 12000)."""
    steps: int | None = None
    """Optimiser steps (None: one pass over the prompts)."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    seed: int = 0
    """Seed of everything."""
    out: Path | None = None
    """Folder of the model (None: prompt-lm in the cache folder, where it is looked for; quick: prompt-lm-quick)."""


@dataclass(frozen=True)
class Report:
    """Rebuild every figure and REPORT.md of a run from its results.parquet."""

    run: tyro.conf.Positional[Path]
    """Run folder, or its results.parquet."""
    out: Path | None = None
    """Folder for figures and report (None: the run's own)."""


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Design, tyro.conf.subcommand("design")]
    | Annotated[Estimate, tyro.conf.subcommand("estimate")]
    | Annotated[Personalize, tyro.conf.subcommand("personalize")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[TrainPromptLM, tyro.conf.subcommand("train-prompt-lm")]
    | Annotated[Report, tyro.conf.subcommand("report")]
)
