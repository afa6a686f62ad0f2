"""Settings of the vocabulary-free experiment: the paper's numbers, and what is measured afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.experiments.settings import PAPER_USERS, UserSettings
from edpbrl_gym.features import check_encoder_spec
from edpbrl_gym.language.settings import ReinforceSettings

__all__ = ["QUICK", "TUNED", "ReinforceExperiment"]

# what learnt most on development seeds (docs/reinforce.md); the defaults below are the paper's numbers
TUNED: dict[str, Any] = {
    "kind": "copies",
    "training": {
        "optimiser": "adamw",
        "learning_rate": 1e-3,
        "credit": "marginal_causal",
        "regularization": 10.0,
        "kl_weight": 0.015,
    },
}

# the quick version: a check that everything works, not a result
QUICK: dict[str, Any] = {
    "training": {"iterations": 10, "meta_samples": 4, "episodes": 4, "evaluation_samples": 4, "checkpoint_every": 5},
    "map_prompts": 25,
    "repeats": 3,
    "counts": (24, 48),
    "taste_seeds": 2,
    "prompts": 200,
    "pairs": 1000,
}


@dataclass(frozen=True, kw_only=True)
class ReinforceExperiment:
    """What decides the numbers of the experiment.

    Attributes:
        training: N, M, T, H, lambda, step size, credit and so on.
        model: Language model that all policies begin at: hub id or folder; None is the one that
            ships with the package.
        num_options: K.
        kind: "adapters" (LoRA on one frozen model) or "copies" (the paper's K models).
        rank: Of the adapters.
        noise: Standard deviation of the noise at the start, so that policies differ.
        encoder: Text encoder.
        vocabulary: Folder of the vocabulary whose tokens give the prior, the Random baseline and the prompts that
            estimates are judged on; None is the built-in one.
        map_prompts: Prompts of each policy in the t-SNE map (the paper: 100).
        repeats: Repeats of the similarity between policies (the paper: 10).
        repeat_prompts: Prompts of each policy in a repeat (the paper: 10).
        likely_prompts: Prompts of each policy whose perplexity under the base model is measured.
        shown_prompts: Prompts of each policy that the report shows.
        users: Sentence of each simulated user; theta* is its embedding.
        answerings: How the users answer.
        counts: Numbers of questions after which tastes are estimated.
        taste_seeds: Independent sets of questions and answers, at least 2 for a standard error.
        prompts: Random prompts of the preference error.
        pairs: Pairs of them.

    Raises:
        TypeError: If something is no number.
        ValueError: If something is out of range.
    """

    training: ReinforceSettings = field(default_factory=ReinforceSettings)
    model: str | None = None
    num_options: int = 4
    kind: str = "adapters"
    rank: int = 8
    noise: float = 0.0
    encoder: str = "minilm"
    vocabulary: str | None = None
    map_prompts: int = 100
    repeats: int = 10
    repeat_prompts: int = 10
    likely_prompts: int = 64
    shown_prompts: int = 5
    users: Mapping[str, str] = field(default_factory=lambda: dict(PAPER_USERS))
    answerings: tuple[UserSettings, ...] = (UserSettings("argmax", 1.0), UserSettings("sampled", 20.0))
    counts: tuple[int, ...] = (24, 48, 96, 192)
    taste_seeds: int = 5
    prompts: int = 1000
    pairs: int = 5000

    def __post_init__(self) -> None:
        """Check everything that ``training`` has not checked."""
        for name in ("map_prompts", "repeats", "repeat_prompts", "likely_prompts", "shown_prompts", "taste_seeds"):
            check_count(getattr(self, name), name)
        check_count(self.training.iterations, "iterations")
        check_count(self.num_options, "policies (K)", minimum=2)
        check_count(self.rank, "rank")
        check_count(self.prompts, "prompts", minimum=2)
        check_count(self.pairs, "pairs")
        check_choice_of(self.kind, "kind of policies", ("adapters", "copies"))
        check_number(self.noise, "noise", minimum=0.0)
        check_encoder_spec(self.encoder)
        if not self.counts:
            raise ValueError("Expected at least one number of questions, got none; write for example --questions 48")
        for count in self.counts:
            check_count(count, "questions")
        object.__setattr__(self, "counts", tuple(sorted(set(self.counts))))
        if not self.users or not all(text.strip() for text in self.users.values()):
            raise ValueError("Expected at least one user and a sentence for each, got none or an empty sentence")

    def as_config(self) -> dict[str, Any]:
        """The settings, JSON-able; without those that decide nothing."""
        config = asdict(self)
        if self.kind == "copies":
            del config["rank"]
        return config
