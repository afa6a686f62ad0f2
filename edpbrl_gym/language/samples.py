"""Sampled prompts: the choice at each position, and the prefixes of words that it can change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edpbrl_gym.language.words import word_prefixes

if TYPE_CHECKING:
    import torch

__all__ = ["Samples"]

_ROWWISE = ("tokens", "lengths", "stopped", "log_probabilities", "num_words", "inside")


@dataclass(frozen=True, eq=False)
class Samples:
    """Sampled prompts: one row of choices (tokens, then possibly the stop) for each, on the CPU.

    Attributes:
        tokens: Chosen tokens, int64 (n, L); EOS stands for the stop. Entries beyond the end are undefined.
        lengths: Number of choices of each row, int64 (n,): its text tokens, and one more where ``stopped``.
        stopped: Whether the row ended by the stop event rather than by force, bool (n,).
        texts: The prompts, prefix included, without surrounding white space.
        log_probabilities: Log-probability of each choice when it was drawn, float64 (n, L), 0 beyond the end.
        num_words: Number of words begun before each choice, int64 (n, L).
        inside: Whether the text before the choice ended inside a word, bool (n, L).
        start: Tokens before the first choice: the start token and those of the prefix.
        words: H, the word budget.
        max_tokens: The token budget.
        temperature: The temperature of the draws.
    """

    tokens: torch.Tensor
    lengths: torch.Tensor
    stopped: torch.Tensor
    texts: list[str]
    log_probabilities: torch.Tensor
    num_words: torch.Tensor
    inside: torch.Tensor
    start: tuple[int, ...]
    words: int
    max_tokens: int
    temperature: float

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def mask(self) -> torch.Tensor:
        """Which entries of ``tokens`` are choices, bool (n, L)."""
        import torch

        return torch.arange(self.tokens.shape[1])[None] < self.lengths[:, None]

    @property
    def word(self) -> torch.Tensor:
        """First of the prefixes 1..H that each choice can still change, int64 (n, L).

        Inside word w a choice decides whether w continues, so it changes prefix w and all later ones; outside, it
        changes those from w + 1 on. What came before a choice is fixed, so prefixes below ``word`` don't depend on it.
        """
        import torch

        return torch.where(self.inside, self.num_words, self.num_words + 1).clamp(max=self.words)

    def prefixes(self) -> list[list[str]]:
        """The H truncated prompts of each sample (``word_prefixes``)."""
        return [word_prefixes(text, self.words) for text in self.texts]

    def select(self, rows: Any) -> Samples:
        """Samples of the given rows (indices, a slice or a boolean mask); L stays."""
        import torch

        index = torch.arange(len(self))[rows].reshape(-1)
        rowwise: dict[str, Any] = {name: getattr(self, name)[index] for name in _ROWWISE}
        return replace(self, texts=[self.texts[row] for row in index.tolist()], **rowwise)

    @classmethod
    def concatenate(cls, parts: Sequence[Samples]) -> Samples:
        """All rows of samples that were drawn with the same start, budgets and temperature.

        Raises:
            ValueError: If there are none, or they were drawn in different ways.
        """
        import torch

        if not parts:
            raise ValueError("Expected at least one part of samples, got none.")
        settings = {(part.start, part.words, part.max_tokens, part.temperature) for part in parts}
        if len(settings) > 1:
            raise ValueError(
                f"Expected parts with one start, word budget, token budget and temperature, got {len(settings)} "
                "different settings; score them separately."
            )
        longest = max(part.tokens.shape[1] for part in parts)
        rowwise: dict[str, Any] = {}
        for name in _ROWWISE:
            values = [getattr(part, name) for part in parts]
            if values[0].ndim == 2:
                values = [torch.nn.functional.pad(value, (0, longest - value.shape[1])) for value in values]
            rowwise[name] = torch.cat(values)
        return replace(parts[0], texts=[text for part in parts for text in part.texts], **rowwise)
