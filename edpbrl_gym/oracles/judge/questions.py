"""Input and output of a judge: questions, verdicts, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["REASONS", "JudgeQuestion", "Reason", "Usage", "Verdict"]

Reason = Literal["answered", "invalid", "cut", "refused", "failed", "budget"]
REASONS: tuple[Reason, ...] = ("answered", "invalid", "cut", "refused", "failed", "budget")


@dataclass(frozen=True)
class JudgeQuestion:
    """One question for a judge: which of K candidates fits the style best?

    What is shown must be there: texts, or images as picture files or their bytes. The identity, such as "design/3/5"
    (episode 3, step 5), determines with the seed the order of the labels. It is recorded with the answer, so keep it
    free of private text.

    Raises:
        TypeError: A part of another type.
        ValueError: Fewer than 2 or more than 26 candidates, or different numbers of texts and images.
    """

    texts: Sequence[str] | None = None
    images: Sequence[Path | bytes] | None = None
    identity: str = ""

    def __post_init__(self) -> None:
        if self.texts is None and self.images is None:
            raise ValueError("Expected a question with texts or images, got neither")
        if self.texts is not None:
            if isinstance(self.texts, str) or not all(isinstance(text, str) for text in self.texts):
                raise TypeError("Expected the texts of a question as a list of strings")
            object.__setattr__(self, "texts", tuple(self.texts))
        if self.images is not None:
            if not all(isinstance(image, (bytes, Path)) for image in self.images):
                raise TypeError("Expected the images of a question as a list of paths (pathlib.Path) or bytes")
            object.__setattr__(self, "images", tuple(self.images))
        if not isinstance(self.identity, str):
            raise TypeError(f"Expected identity as a string, got {type(self.identity).__name__}")
        sizes = {len(candidates) for candidates in (self.texts, self.images) if candidates is not None}
        if len(sizes) != 1 or not 2 <= min(sizes) <= 26:
            raise ValueError(f"Expected 2 to 26 candidates, as many images as texts where both are given, got {sizes}")

    @property
    def num_options(self) -> int:
        """Number of candidates K."""
        candidates = self.texts if self.texts is not None else self.images
        return len(candidates or ())


@dataclass(frozen=True)
class Usage:
    """Tokens that answers have cost; of these, ``unreported`` are an upper bound where the server told no number."""

    input_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.unreported + other.unreported,
        )

    @property
    def total(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def cost(self, per_million_input: float | None, per_million_output: float | None) -> float | None:
        """Price of the tokens, None if a price is unknown."""
        if per_million_input is None or per_million_output is None:
            return None
        return (self.input_tokens * per_million_input + self.output_tokens * per_million_output) / 1e6


@dataclass(frozen=True)
class Verdict:
    """A judge's verdict on one question.

    The reason is "answered", or why there is no answer: "invalid" (neither the reply nor the one to a reminder names a
    label beyond doubt), "cut" (the reply was cut before its answer was whole), "refused" (the model or the server
    declined), "failed" (no answer after all retries), "budget". Of equal questions in one call, which are asked once,
    the first has the tokens and retries, so that sums are the actual cost.
    """

    choice: int | None  # index of the chosen candidate, None if there is no answer
    reason: Reason
    order: tuple[int, ...] = ()  # order[p] is the candidate with label p, in the look that gave the choice
    consistent: bool | None = None  # whether both looks chose the same candidate; None if one has no answer
    usage: Usage = field(default_factory=Usage)  # in both looks, including failed attempts of earlier runs
    latency: float = 0.0  # seconds from sending to the answer, including retries and reminders, both looks
    retries: int = 0  # in both looks
    reminders: int = 0  # requests that were asked again with a sterner instruction
    cached: bool = False  # whether all answers were in the ledger
