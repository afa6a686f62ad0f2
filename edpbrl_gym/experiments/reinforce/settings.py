"""Settings of the vocabulary-free experiment: the paper's numbers, and what is measured afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import tyro

from edpbrl_gym._validation import check_choice_of, check_count, check_number, check_path
from edpbrl_gym.experiments.settings import PAPER_USERS, UserSettings, check_users
from edpbrl_gym.features import check_encoder_spec
from edpbrl_gym.language.settings import ReinforceSettings

__all__ = ["Recipe", "ReinforceExperiment"]

Recipe = Literal["paper", "tuned"]

# what learnt most on development seeds (docs/reinforce.md)
_TUNED_TRAINING: dict[str, Any] = {
    "optimiser": "adamw",
    "learning_rate": 1e-3,
    "credit": "marginal_causal",
    "regularization": 10.0,
    "kl_weight": 0.015,
}
# the quick version: a check that everything works, not a result
_QUICK: dict[str, Any] = {
    "map_prompts": 25,
    "repeats": 3,
    "counts": (24, 48),
    "taste_seeds": 2,
    "prompts": 200,
    "pairs": 1000,
}
_QUICK_TRAINING: dict[str, Any] = {"iterations": 10, "meta_samples": 4, "episodes": 4, "evaluation_samples": 4}


@dataclass(frozen=True, kw_only=True)
class ReinforceExperiment:
    """Settings that decide the numbers of the experiment; the defaults are the paper's.

    Attributes:
        training: Settings of REINFORCE.
        model: Language model from which all policies start: hub id or folder, such as
            Gustavosta/MagicPrompt-Stable-Diffusion (None: the small model that ships with the package).
        num_options: K, policies and options of a question.
        kind: LoRA adapters on one frozen model, or K full copies (the paper's).
        rank: Rank of the adapters.
        noise: Standard deviation of the noise on the initial weights, so that policies differ.
        encoder: Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper: CLIP ViT-L/14),
            package.module:Class.
        vocabulary: Built-in vocabulary (images, interiors) or folder of token files for the prior, the Random baseline
            and the held-out prompts of the preference error (None: images).
        map_prompts: Prompts of each policy in the t-SNE map (the paper: 100).
        repeats: Repeats of the similarity between policies (the paper: 10).
        repeat_prompts: Prompts of each policy in a repeat (the paper: 10).
        likely_prompts: Prompts of each policy whose perplexity under the base model is measured.
        shown_prompts: Prompts of each policy that the report shows.
        users: The paper's users by name, or your own as name=sentence; theta* is the sentence's embedding.
        answerings: How the users answer.
        counts: Numbers of questions after which tastes are estimated.
        taste_seeds: Independent sets of questions and answers, at least 2 for a standard error.
        prompts: Held-out prompts of the preference error.
        pairs: Pairs of them.

    Raises:
        TypeError: If something is no number.
        ValueError: If something is out of range.
    """

    training: ReinforceSettings = field(default_factory=ReinforceSettings)
    model: str | None = None
    num_options: int = 4
    kind: Literal["adapters", "copies"] = "adapters"
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
    answerings: Annotated[tuple[UserSettings, ...], tyro.conf.Suppress] = (
        UserSettings("argmax", 1.0),
        UserSettings("sampled", 20.0),
    )
    counts: Annotated[tuple[int, ...], tyro.conf.arg(name="questions")] = (24, 48, 96, 192)
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
        check_path(self.vocabulary, "vocabulary")
        if not self.counts:
            raise ValueError("Expected at least one number of questions, got none; write for example --questions 48")
        for count in self.counts:
            check_count(count, "questions")
        object.__setattr__(self, "counts", tuple(sorted(set(self.counts))))
        object.__setattr__(self, "users", check_users(self.users))

    @classmethod
    def preset(cls, recipe: Recipe = "paper", *, quick: bool = False) -> ReinforceExperiment:
        """The paper's experiment or the tuned one, at full size or as a quick check."""
        training = (_TUNED_TRAINING if recipe == "tuned" else {}) | (_QUICK_TRAINING if quick else {})
        kind: Literal["adapters", "copies"] = "copies" if recipe == "tuned" else "adapters"
        return cls(training=ReinforceSettings(**training), kind=kind, **(_QUICK if quick else {}))

    def as_config(self) -> dict[str, Any]:
        """The settings, JSON-able; without those that decide nothing."""
        config = asdict(self)
        if self.kind == "copies":
            del config["rank"]
        return config
