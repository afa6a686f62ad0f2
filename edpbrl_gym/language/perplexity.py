"""How well a language model predicts texts: the negative log-likelihood, per token and per word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["IGNORED", "Perplexity", "framed", "measure_perplexity", "padded", "token_losses"]

IGNORED = -100  # target of a padded place


@dataclass(frozen=True)
class Perplexity:
    """What a model needed to predict texts.

    Attributes:
        nats: Sum of -log p over all predicted tokens, the end of each text included.
        tokens: Number of predicted tokens (each text's tokens and its end).
        words: Number of words (separated by white space); ends are no words.
    """

    nats: float
    tokens: int
    words: int

    @property
    def per_token(self) -> float:
        """exp(nats / tokens): depends on the tokenizer, so compare it only between models that share one."""
        return math.exp(self.nats / self.tokens)

    @property
    def per_word(self) -> float:
        """exp(nats / words): the same texts have the same words under every tokenizer."""
        return math.exp(self.nats / self.words)


def framed(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text between the tokens of begin and end."""
    if not texts:
        return []
    inner = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [[tokenizer.bos_token_id, *ids, tokenizer.eos_token_id] for ids in inner]


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, each (n, longest - 1), of rows of token ids; padding is on the right.

    Attention is causal, so no token sees the padding behind it and no mask is needed: padded inputs are 0, padded
    targets ``IGNORED``.
    """
    import torch

    width = max(len(row) for row in rows) - 1
    inputs = torch.zeros(len(rows), width, dtype=torch.long)
    targets = torch.full((len(rows), width), IGNORED, dtype=torch.long)
    for place, row in enumerate(rows):
        ids = torch.tensor(row, dtype=torch.long)
        inputs[place, : len(row) - 1] = ids[:-1]
        targets[place, : len(row) - 1] = ids[1:]
    return inputs, targets


def token_losses(model: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of -log p of the targets, a scalar with gradient; ``IGNORED`` targets count nothing."""
    from torch.nn import functional

    logits = model(input_ids=inputs, use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")


def measure_perplexity(model: Any, tokenizer: Any, texts: Sequence[str], *, batch_size: int = 64) -> Perplexity:
    """Return how well ``model`` predicts ``texts``, each from its begin to its end by itself.

    Args:
        model: A causal language model of Hugging Face.
        tokenizer: Its tokenizer.
        texts: At least one text.
        batch_size: Texts at once; it changes the time and rounding only.

    Raises:
        ValueError: No text.
    """
    import torch

    if not texts:
        raise ValueError("Expected at least one text to measure a perplexity on, got none")
    rows = sorted(framed(tokenizer, texts), key=len)
    nats = 0.0
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for start in range(0, len(rows), batch_size):
            inputs, targets = padded(rows[start : start + batch_size])
            nats += float(token_losses(model, inputs.to(model.device), targets.to(model.device)))
    model.train(was_training)
    return Perplexity(nats, sum(len(row) - 1 for row in rows), sum(len(text.split()) for text in texts))
