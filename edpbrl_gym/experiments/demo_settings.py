"""Settings of the demo; light to import, since the command line takes its options from here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from edpbrl_gym._validation import check_choice_of, check_count, check_number, check_path
from edpbrl_gym.features import check_encoder_spec

__all__ = ["DemoSettings"]


@dataclass(frozen=True)
class DemoSettings:
    """Settings that decide the numbers of the demo.

    Attributes:
        text: Taste of the simulated user in words; theta* is its embedding.
        episodes: T, episodes that the user answers (one question for each step of a prompt).
        num_options: K, options of a question.
        criterion: Optimality criterion of the design: D, A or V.
        prior: Prior belief about the taste: near words of the vocabulary (`VocabularyPrior` of the train tokens), where
            their embeddings vary (a Gaussian prior), or none (ridge). The design, which needs a Gaussian prior, uses
            embeddings for words.
        regularization: Lambda of the design's prior, and of embeddings and ridge (1 / mean variance).
        iterations: Maximum number of iterations of the design.
        mode: The user takes the best option, or samples from the softmax.
        scale: Inverse temperature of the sampled mode.
        population: Random held-out prompts that the percentiles refer to.
        vocabulary: Built-in vocabulary (images, interiors) or folder of token files, one per step, in alphabetical
            order (None: images).
        encoder: Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, package.module:Class.
        seed: Seed of all draws.
    """

    text: str = "A cosy winter evening, warm candle light behind frosted windows"
    episodes: int = 20
    num_options: int = 4
    criterion: Literal["V", "A", "D"] = "D"
    prior: Literal["words", "embeddings", "ridge"] = "words"
    regularization: float = 0.1
    iterations: int = 200
    mode: Literal["argmax", "sampled"] = "argmax"
    scale: float = 20.0
    population: int = 200
    vocabulary: str | None = None
    encoder: str = "minilm"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("Expected a text that describes a taste, got an empty one")
        check_count(self.episodes, "episodes (T)")
        check_count(self.num_options, "num_options (K)", minimum=2)
        check_count(self.iterations, "iterations")
        check_count(self.population, "population", minimum=10)
        check_count(self.seed, "seed", minimum=0)
        check_choice_of(self.prior, "prior", ("words", "embeddings", "ridge"))
        check_number(self.regularization, "regularization (lambda)", minimum=0.0, exclusive=self.prior != "ridge")
        check_number(self.scale, "scale", minimum=0.0, exclusive=True)
        check_choice_of(self.criterion, "criterion", ("V", "A", "D"))
        check_choice_of(self.mode, "mode", ("argmax", "sampled"))
        check_encoder_spec(self.encoder)
        check_path(self.vocabulary, "vocabulary")

    def as_config(self) -> dict[str, Any]:
        """All settings, JSON-able."""
        return asdict(self)
