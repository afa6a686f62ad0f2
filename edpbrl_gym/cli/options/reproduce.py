"""Arguments of the experiments of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edpbrl_gym.cli.options.main import CriterionName

__all__ = ["Reinforce", "Synthetic", "TrainPromptLM"]


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
    num_options: int = 4
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
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper:
    CLIP ViT-L/14), package.module:Class."""
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
    (None: the project's own small model, which ships with it)."""
    num_options: int = 4
    """K, policies and options of a question."""
    recipe: Literal["paper", "tuned"] = "paper"
    """What the options below are where you do not set them: the paper's, or what learnt most on other seeds: copies,
    adamw 0.001, marginal_causal, lambda 10, KL weight 0.015 (docs/reinforce.md)."""
    kind: Literal["adapters", "copies"] | None = None
    """LoRA adapters on one frozen model (None: so, but in the recipe tuned), or K full copies (the paper's)."""
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
    regularization: float | None = None
    """Lambda of the objective (None: 1, tuned: 10)."""
    optimiser: Literal["sgd", "adamw"] | None = None
    """Optimiser of the policies (None: sgd, tuned: adamw)."""
    learning_rate: float | None = None
    """Its step size (None: 0.001)."""
    credit: Literal["batch_mean", "leave_one_out", "moving_average", "marginal", "causal", "marginal_causal"] | None = (
        None
    )
    """Baseline or credit of the gradient (None: batch_mean, tuned: marginal_causal, which varies least)."""
    average_decay: float = 0.9
    """Of the credit moving_average."""
    kl_weight: float | None = None
    """Weight of the divergence from the base model, which keeps prompts readable (None: 0, tuned: 0.015)."""
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
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper:
    CLIP ViT-L/14), package.module:Class."""
    device: str | None = None
    """Of the language models (None: cuda where there is one)."""
    seed: int = 0
    """Seed of everything."""
    out: Path | None = None
    """Run folder (None: runs/reinforce, or runs/reinforce-quick). A stopped run goes on where it was."""


@dataclass(frozen=True)
class TrainPromptLM:
    """Train a small language model of prompts on a vocabulary, as the project's own was trained (without options)."""

    quick: bool = False
    """A much smaller one in half a minute: 50 tokens of each step in place of 250, a sixth of the parameters."""
    prompts: int | None = None
    """Training prompts, composed from the vocabulary (None: 72000, quick: 12000)."""
    steps: int | None = None
    """Optimiser steps (None: one pass over the prompts)."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    seed: int = 0
    """Seed of everything."""
    out: Path | None = None
    """Folder of the model, for `--model` (None: prompt-lm, or prompt-lm-quick)."""
