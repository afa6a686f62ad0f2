"""Input and output of a judge: questions, verdicts, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["REASONS", "JudgeQuestion", "Reason", "Usage", "Verdict"]

Reason = Literal["answered", "invalid", "refused", "failed", "budget"]
REASONS: tuple[Reason, ...] = ("answered", "invalid", "refused", "failed", "budget")


@dataclass(frozen=True)
class JudgeQuestion:
    """One question for a judge: which of K candidates fits the style best?

    Attributes:
        texts: The K candidates as texts; required if texts are shown.
        images: The K candidates as picture files or their bytes; required if images are shown.
        identity: Identity of the question, such as "design/3/5" (episode 3, step 5). Together with the seed it
            determines the order of the labels. It is recorded with the answer, so keep it short and free of private
            text.

    Raises:
        TypeError: Texts that are not strings, images that are neither paths nor bytes, or an identity that is not a
            string.
        ValueError: Neither texts nor images, fewer than 2 or more than 26 candidates, or different numbers of texts and
            images.
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
    """Tokens that answers have cost.

    Attributes:
        input_tokens: Number of tokens read by the model.
        output_tokens: Number of tokens written by the model.
        unreported: Number of these tokens that the server did not report. They are an upper bound, for an answer
            without a count or a request without an answer that may have been billed.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0

    def __add__(self, other: Usage) -> Usage:
        """The sum of two usages."""
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

    Attributes:
        choice: Index of the chosen candidate in the question, None if there is no answer.
        reason: "answered"; or why there is no answer: "invalid" (the answer names no label in the required form),
            "refused" (the model or the server declined), "failed" (no answer after all retries), "budget".
        order: order[p] is the index of the candidate with label p (in the look that gave the choice).
        consistent: Whether both looks chose the same candidate, or one with the same text or image; None without a
            second look, or if one has no answer.
        usage: Tokens of this question in both looks, including failed attempts of earlier runs. Of equal questions in
            one call, which are asked once, the first has the tokens and retries, so that sums are the actual cost.
        latency: Seconds from the first sending of the question to its answer, including retries, both looks.
        retries: Number of retries, both looks.
        cached: Whether all answers were in the ledger, so that nothing was asked.
    """

    choice: int | None
    reason: Reason
    order: tuple[int, ...] = ()
    consistent: bool | None = None
    usage: Usage = field(default_factory=Usage)
    latency: float = 0.0
    retries: int = 0
    cached: bool = False
