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
        questions: Questions that the user answers, each about complete prompts.
        num_options: K, prompts of a question.
        answers: What the user says to a question: the best prompt, the three best in order, or all in order.
        mode: The user takes the best option, or samples from the softmax.
        scale: Inverse temperature of the sampled mode.
        population: Random prompts of kept words, on which the learnt tastes are judged and the percentiles are based.
        vocabulary: Built-in vocabulary (images, interiors) or folder of token files, one per step, in alphabetical
            order (None: images).
        encoder: Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, package.module:Class.
        seed: Seed of all draws.
    """

    text: str = "A cosy winter evening, warm candle light behind frosted windows"
    questions: int = 20
    num_options: int = 9
    answers: Literal["best", "partial", "ranking"] = "best"
    mode: Literal["argmax", "sampled"] = "argmax"
    scale: float = 20.0
    population: int = 200
    vocabulary: str | None = None
    encoder: str = "minilm"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("Expected a text that describes a taste, got an empty one")
        check_count(self.questions, "questions")
        check_count(self.num_options, "num_options (K)", minimum=2)
        check_choice_of(self.answers, "answers", ("best", "partial", "ranking"))
        if self.answers == "partial":
            check_count(self.num_options, "num_options (K) of partial rankings", minimum=4)
        check_count(self.population, "population", minimum=10)
        check_count(self.seed, "seed", minimum=0)
        check_number(self.scale, "scale", minimum=0.0, exclusive=True)
        check_choice_of(self.mode, "mode", ("argmax", "sampled"))
        check_encoder_spec(self.encoder)
        check_path(self.vocabulary, "vocabulary")

    def as_config(self) -> dict[str, Any]:
        """All settings, JSON-able."""
        return asdict(self)
