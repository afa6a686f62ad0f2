"""Settings of the vocabulary-free experiment: the paper's numbers, and what is measured afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import tyro

from edpbrl_gym._validation import MOST_OPTIONS, MOST_PROMPTS, check_choice_of, check_count, check_path
from edpbrl_gym.experiments.settings import PAPER_USERS, check_named
from edpbrl_gym.features import check_encoder_spec
from edpbrl_gym.language.settings import ReinforceSettings

__all__ = ["ReinforceExperiment"]


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
        encoder: Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper: CLIP ViT-L/14),
            package.module:Class.
        vocabulary: Vocabulary (images, interiors, posters, styles) or folder of token files for the prior, the Random
            baseline and the held-out prompts of the preference error (None: images).
        map_prompts: Prompts of each policy in the t-SNE map (the paper: 100).
        repeats: Repeats of the similarity between policies (the paper: 10).
        users: The paper's users by name, or your own as name=sentence; theta* is the sentence's embedding.
        counts: Numbers of questions after which tastes are estimated.
        taste_seeds: Independent sets of questions and answers, at least 2 for a standard error.
        prompts: Held-out prompts of the preference error.
        pairs: Pairs of them.
    """

    training: ReinforceSettings = field(default_factory=ReinforceSettings)
    model: str | None = None
    num_options: int = 4
    kind: Literal["adapters", "copies"] = "adapters"
    rank: int = 8
    encoder: str = "minilm"
    vocabulary: str | None = None
    map_prompts: int = 100
    repeats: int = 10
    users: Mapping[str, str] = field(default_factory=lambda: dict(PAPER_USERS))
    counts: Annotated[tuple[int, ...], tyro.conf.arg(name="questions")] = (24, 48, 96, 192)
    taste_seeds: int = 5
    prompts: int = 1000
    pairs: int = 5000

    def __post_init__(self) -> None:
        for name in ("map_prompts", "repeats", "taste_seeds"):
            check_count(getattr(self, name), name)
        check_count(self.training.iterations, "iterations")
        check_count(self.num_options, "policies (K)", minimum=2, maximum=MOST_OPTIONS)
        check_count(self.rank, "rank")
        check_count(self.prompts, "prompts", minimum=2, maximum=MOST_PROMPTS)
        check_count(self.pairs, "pairs")
        check_choice_of(self.kind, "kind of policies", ("adapters", "copies"))
        check_encoder_spec(self.encoder)
        check_path(self.vocabulary, "vocabulary")
        if not self.counts:
            raise ValueError("Expected at least one number of questions, got none; write for example --questions 48")
        for count in self.counts:
            check_count(count, "questions")
        object.__setattr__(self, "counts", tuple(sorted(set(self.counts))))
        object.__setattr__(self, "users", check_named(self.users, PAPER_USERS, "user", "sentence"))

    def as_config(self) -> dict[str, Any]:
        """The settings, JSON-able; without those that decide nothing."""
        config = asdict(self)
        if self.kind == "copies":
            del config["rank"]
        return config
