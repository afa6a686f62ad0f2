"""Fitting a small language model to short texts: batches of similar length, AdamW, warm-up and cosine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edpbrl_gym.language.perplexity import padded, token_losses

if TYPE_CHECKING:
    import torch

__all__ = ["batches_of", "fit", "rate"]

_WARMUP = 0.05  # share of the steps
_BUCKET = 32  # batches that are sorted by length together
_CLIP = 1.0


def batches_of(rows: Sequence[Sequence[int]], size: int, generator: torch.Generator) -> Iterator[list[list[int]]]:
    """Yield batches of rows without end, epoch after epoch; each epoch holds every row once.

    Rows are shuffled, then sorted by length within buckets of a few batches, which saves padding.
    """
    import torch

    while True:
        order = torch.randperm(len(rows), generator=generator).tolist()
        batches = []
        for start in range(0, len(order), _BUCKET * size):
            bucket = sorted(order[start : start + _BUCKET * size], key=lambda row: len(rows[row]))
            batches += [bucket[first : first + size] for first in range(0, len(bucket), size)]
        for place in torch.randperm(len(batches), generator=generator).tolist():
            yield [list(rows[row]) for row in batches[place]]


def rate(step: int, steps: int) -> float:
    """Return the share of the largest learning rate at a step: linear warm-up, then a cosine to 0."""
    warmup = max(1, round(_WARMUP * steps))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def fit(
    model: Any,
    rows: Sequence[Sequence[int]],
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    generator: torch.Generator,
    progress: bool = False,
) -> int:
    """Train a causal language model in place, by maximum likelihood of the rows' tokens after the first.

    Args:
        model: A causal language model of Hugging Face on the CPU, without dropout if the result is to be repeatable.
        rows: Token ids of each text, the tokens of begin and end included.
        steps: Optimiser steps (AdamW, gradients clipped to norm 1).
        batch_size: Rows of a step; the loss is the mean over their predicted tokens.
        learning_rate: Its largest value; ``rate`` is its course.
        weight_decay: On matrices only.
        generator: Decides the order.
        progress: Show a progress bar on a terminal's stderr.

    Returns:
        The number of predicted tokens in all steps.
    """
    import torch
    from tqdm.auto import tqdm

    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        fused=True,
    )
    tokens, batches = 0, batches_of(rows, batch_size, generator)
    model.train()
    with tqdm(total=steps, desc="train", unit="step", disable=None if progress else True) as bar:
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate * rate(step, steps)
            batch = next(batches)
            count = sum(len(row) - 1 for row in batch)
            loss = token_losses(model, *padded(batch)) / count
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
            optimiser.step()
            optimiser.zero_grad()
            tokens += count
            if step % 20 == 0:
                bar.set_postfix_str(f"loss {loss.item():.2f}", refresh=False)
            bar.update()
    model.eval()
    return tokens
