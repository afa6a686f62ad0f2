"""Settings of the experiment: the paper's numbers, checked, and written to config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from edpbrl_gym._validation import check_choice_of, check_count, check_number, check_path
from edpbrl_gym.experiments.llm.folds import Fold, make_folds
from edpbrl_gym.experiments.llm.styles import STYLES
from edpbrl_gym.experiments.settings import AgentSettings, SyntheticSettings, parse_agents
from edpbrl_gym.features import check_encoder_spec

__all__ = ["LLMSettings"]


@dataclass(frozen=True)
class LLMSettings:
    """Settings that decide the numbers, besides the judge and the images; the defaults are the paper's.

    Attributes:
        styles: The ten styles by name, or your own as name=guidance.
        agents: Who asks, the baseline last: name or package.module:Class[,option=value...], such as
            newton,criterion=D,regularization=1.
        episodes: T, episodes asked by every agent (one question for each step of a prompt), the same for all styles.
        train_sizes: Numbers of training episodes at which estimates are judged.
        test_episodes: Held-out episodes of a fold.
        folds: Test windows, from the last episodes backwards.
        lambdas: Lambdas of the paper's ridge estimates; our default estimate, which needs none, is reported too.
        num_options: K, options of a question.
        criterion: Optimality criterion of the designs; the paper's is V.
        regularization: Lambda of the designs, and of the per-style table.
        iterations: Maximum number of Frank-Wolfe iterations.
        image_seed: Seed of all images, so that equal prompts look the same.
        vocabulary: Built-in vocabulary (images, interiors) or folder of token files, one per step, in alphabetical
            order (None: images). Questions use its 75% train part.
        encoder: Text encoder of the features: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper:
            ViT-L/14), package.module:Class.
        tokens_per_step: Maximum number of train tokens of every step (None: all).
        seed: Seed of all draws but the server's.

    Raises:
        ValueError: If a value is out of range.
    """

    styles: Mapping[str, str] = field(default_factory=lambda: dict(STYLES))
    agents: tuple[str, ...] = ("frank_wolfe", "random")
    episodes: int = 60
    train_sizes: tuple[int, ...] = (10, 20, 30, 40, 50)
    test_episodes: int = 10
    folds: int = 3
    lambdas: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)
    num_options: int = 4
    criterion: Literal["V", "A", "D"] = "V"
    regularization: float = 100.0
    iterations: int = 100
    image_seed: int = 0
    vocabulary: str | None = None
    encoder: str = "minilm"
    tokens_per_step: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.styles:
            raise ValueError("Expected at least one style, got none")
        styles = {name: guidance or STYLES.get(name, "") for name, guidance in self.styles.items()}
        for name, guidance in styles.items():
            if not name.strip() or not guidance.strip():
                known = ", ".join(STYLES)
                raise ValueError(f"Expected styles among {known} or as name=guidance text, got {name}={guidance!r}")
        object.__setattr__(self, "styles", styles)
        check_count(self.num_options, "num_options (K)", minimum=2)
        check_count(self.iterations, "iterations")
        check_count(self.seed, "seed", minimum=0)
        check_count(self.image_seed, "image_seed", minimum=0)
        if self.tokens_per_step is not None:
            check_count(self.tokens_per_step, "tokens_per_step", minimum=2)
        check_number(self.regularization, "regularization (lambda)", minimum=0.0)
        check_choice_of(self.criterion, "criterion", ("V", "A", "D"))
        if not self.lambdas or not self.train_sizes:
            raise ValueError("Expected at least one lambda and one train size, got none")
        for value in self.lambdas:
            check_number(value, "lambdas", minimum=0.0, exclusive=True)
        object.__setattr__(self, "lambdas", tuple(sorted({float(value) for value in self.lambdas})))
        folds = make_folds(self.episodes, self.test_episodes, self.folds)
        for size in self.train_sizes:
            folds[0].training(size)
        object.__setattr__(self, "train_sizes", tuple(sorted(set(self.train_sizes))))
        parse_agents(self.agents)
        check_encoder_spec(self.encoder)
        check_path(self.vocabulary, "vocabulary")

    @property
    def parsed_agents(self) -> tuple[AgentSettings, ...]:
        """The agents, parsed."""
        return parse_agents(self.agents)

    @property
    def all_folds(self) -> tuple[Fold, ...]:
        """The folds."""
        return make_folds(self.episodes, self.test_episodes, self.folds)

    @property
    def design(self) -> SyntheticSettings:
        """The same designs as those of the synthetic experiment at the largest T: its settings."""
        return SyntheticSettings(
            episodes=(self.episodes,),
            agents=self.agents,
            num_options=self.num_options,
            criterion=self.criterion,
            regularization=self.regularization,
            iterations=self.iterations,
            design_for="largest",
            vocabulary=self.vocabulary,
            encoder=self.encoder,
            tokens_per_step=self.tokens_per_step,
            seed=self.seed,
        )

    def as_config(self) -> dict[str, Any]:
        """All settings, JSON-able."""
        config = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        return {**config, "styles": dict(self.styles)}
