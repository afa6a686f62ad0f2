"""Settings of REINFORCE; the defaults are the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from edpbrl_gym._validation import check_choice_of, check_count, check_number

__all__ = ["CREDITS", "CreditName", "ReinforceSettings"]

CreditName = Literal["batch_mean", "marginal_causal"]
CREDITS: tuple[str, ...] = get_args(CreditName)

_COUNTS = (
    "meta_samples",
    "episodes",
    "words",
    "max_tokens",
    "batch_size",
    "evaluate_every",
    "evaluation_samples",
    "checkpoint_every",
)


@dataclass(frozen=True, kw_only=True)
class ReinforceSettings:
    """Settings of `train` (Algorithm "ED-PBRL with REINFORCE" of the paper); K is that of the policies.

    Attributes:
        iterations: N, gradient steps.
        meta_samples: M, independent samples of the objective for a gradient.
        episodes: T, trajectories (of K prompts) of a meta-sample.
        words: H, words of a prompt.
        regularization: Lambda of the objective, above 0.
        learning_rate: Step size.
        optimiser: sgd (the paper's) or adamw (without weight decay).
        credit: Credit of the gradient, see docs/reinforce.md; marginal_causal varies least.
        kl_weight: beta of the penalty beta sum_q KL(p_q || p_base), in nats a prompt, which keeps prompts readable;
            0 is none.
        max_gradient_norm: Gradients (of all policies together) are shortened to this norm (None: no limit).
        temperature: Softmax temperature of sampling and scoring alike.
        max_tokens: Maximum number of tokens of a prompt, whatever its words.
        seed: Seed of all draws, which are functions of it, the iteration and the policy.
        batch_size: Maximum number of prompts in one forward pass of a language model.
        evaluate_every: Iterations between evaluations.
        evaluation_samples: Meta-samples of an evaluation, at least 2.
        checkpoint_every: Iterations between checkpoints.

    Raises:
        TypeError: If something is no number.
        ValueError: If something is out of range.
    """

    iterations: int = 200
    meta_samples: int = 8
    episodes: int = 8
    words: int = 8
    regularization: float = 1.0
    learning_rate: float = 1e-3
    optimiser: Literal["sgd", "adamw"] = "sgd"
    credit: CreditName = "batch_mean"
    kl_weight: float = 0.0
    max_gradient_norm: float | None = None
    temperature: float = 1.0
    max_tokens: int = 32
    seed: int = 0
    batch_size: int = 64
    evaluate_every: int = 5
    evaluation_samples: int = 16
    checkpoint_every: int = 5

    def __post_init__(self) -> None:
        """Check everything."""
        for name in _COUNTS:
            check_count(getattr(self, name), name)
        check_count(self.iterations, "iterations", minimum=0)
        check_count(self.seed, "seed", minimum=0)
        check_count(self.evaluation_samples, "evaluation_samples", minimum=2)
        for name in ("regularization", "learning_rate", "temperature"):
            check_number(getattr(self, name), name, minimum=0.0, exclusive=True)
        check_number(self.kl_weight, "kl_weight", minimum=0.0)
        if self.max_gradient_norm is not None:
            check_number(self.max_gradient_norm, "max_gradient_norm", minimum=0.0, exclusive=True)
        check_choice_of(self.optimiser, "optimiser", ("sgd", "adamw"))
        check_choice_of(self.credit, "credit", CREDITS)
        if self.meta_samples < 2 and self.credit == "batch_mean":
            raise ValueError(
                f"Expected at least 2 meta_samples (M) for the credit {self.credit!r}, got {self.meta_samples}; its "
                "baseline is their mean"
            )
