"""What goes into a judge and what comes out: questions, verdicts, tokens."""

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
        texts: the K candidates as texts; needed where texts are shown.
        images: the K candidates as picture files or their bytes; needed where images are shown.
        identity: what the question is called, such as "design/3/5" (episode 3, step 5). With the seed it decides the
            order of the labels, and it is recorded with the answer, so keep it short and free of private text.

    Raises:
        TypeError: texts that are no strings, images that are neither paths nor bytes, an identity that is no string.
        ValueError: neither texts nor images, fewer than 2 or more than 26 candidates, or unlike numbers of both.
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
        sizes = {len(shown) for shown in (self.texts, self.images) if shown is not None}
        if len(sizes) != 1 or not 2 <= min(sizes) <= 26:
            raise ValueError(f"Expected 2 to 26 candidates, as many images as texts where both are given, got {sizes}")

    @property
    def num_options(self) -> int:
        """Candidates in the question, K."""
        shown = self.texts if self.texts is not None else self.images
        return len(shown or ())


@dataclass(frozen=True)
class Usage:
    """Tokens that answers have cost.

    Attributes:
        input_tokens: tokens read by the model.
        output_tokens: tokens written by the model.
        unreported: of both, those that are an upper bound of ours, because the server reported no count or because
            a request that it may have billed got no answer.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0

    def __add__(self, other: Usage) -> Usage:
        """The sum of both."""
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
        """Price of the tokens, None where a price is not known."""
        if per_million_input is None or per_million_output is None:
            return None
        return (self.input_tokens * per_million_input + self.output_tokens * per_million_output) / 1e6


@dataclass(frozen=True)
class Verdict:
    """What a judge made of one question.

    Attributes:
        choice: index of the chosen candidate in the question as it was given, None where there is no answer.
        reason: "answered"; or why there is no answer: "invalid" (an answer that names no label in the agreed form),
            "refused" (the model or the server declined), "failed" (no answer after all retries), "budget".
        order: order[p] is the index of the candidate that label p named (of the look that gave the choice).
        consistent: whether both looks chose the same candidate, or one that looks the same; None without a second look,
            or where one has no answer.
        usage: tokens of this question, both looks, attempts of earlier runs that failed included. Of equal questions in
            one call, which are asked once, the first has the tokens and retries, so that sums are what was paid.
        latency: seconds from the first sending of the question to its answer, retries included, both looks.
        retries: how often it was sent again, both looks.
        cached: whether nothing was asked now: all of it was in the ledger.
    """

    choice: int | None
    reason: Reason
    order: tuple[int, ...] = ()
    consistent: bool | None = None
    usage: Usage = field(default_factory=Usage)
    latency: float = 0.0
    retries: int = 0
    cached: bool = False
