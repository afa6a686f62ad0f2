"""Settings of the experiment: the paper's numbers, checked, and written to config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.experiments.llm.folds import Fold, make_folds
from edpbrl_gym.experiments.llm.styles import STYLES
from edpbrl_gym.experiments.settings import AgentSettings, SyntheticSettings, parse_agents
from edpbrl_gym.features import check_encoder_spec

__all__ = ["LLMSettings"]


@dataclass(frozen=True)
class LLMSettings:
    """What decides the numbers besides the judge and the images; the defaults are the paper's.

    Attributes:
        styles: Name and guidance text of each style.
        agents: Who asks, ``name[,option=value...]``; the last one is the baseline of the differences.
        episodes: T; every arm asks T episodes of H questions, the same for all styles.
        train_sizes: Numbers of training episodes at which the estimate is judged.
        test_episodes: Held-out episodes of a fold.
        folds: Test windows, from the end of the episodes backwards.
        lambdas: Of the paper's ridge estimates.
        num_options: K.
        criterion: Of the designs: "V" (the paper's), "A" or "D".
        regularization: lambda of the designs.
        iterations: Frank-Wolfe iterations at most.
        image_seed: Of the images, where there are any; all of them share it, so equal prompts look the same.
        vocabulary: Folder; None is the built-in one. Questions use its 75% train part.
        encoder: Text encoder of the features.
        tokens_per_step: Use at most so many tokens of every step; None: all.
        seed: Seed of everything but the judge.

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
        for name, guidance in self.styles.items():
            if not name.strip() or not guidance.strip():
                raise ValueError(f"Expected a name and a guidance text for every style, got {name!r}: {guidance!r}")
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
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**found, "styles": dict(self.styles)}
