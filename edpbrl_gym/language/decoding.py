"""Next-token logits of many growing texts, each step at the cost of its new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edpbrl_gym._validation import check_count
from edpbrl_gym.language.model import LanguageModel

if TYPE_CHECKING:
    import torch

__all__ = ["PrefixDecoder"]


class PrefixDecoder:
    """Keep the keys and values of n texts, so that only new tokens go through the model.

    The key and value of token p of a text are in slot p of the text's row. For a longer text only the new tokens are
    fed; a text that was cut or replaced keeps the common beginning and is fed from there on, so texts grow and restart
    independently. A call feeds only the texts that changed, in one forward pass.
    """

    def __init__(self, model: LanguageModel, lanes: int) -> None:
        self.model = model
        self.lanes = check_count(lanes, "lanes")
        self._texts: list[list[int]] = [[] for _ in range(self.lanes)]
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []  # keys and values (n, heads, capacity, size)
        self._capacity = 0
        self._logits: torch.Tensor | None = None

    def logits(self, texts: Sequence[Sequence[int]], rows: Sequence[int] | None = None) -> torch.Tensor:
        """Logits of the next token of each text, float32 (len(texts), V).

        Args:
            texts: Tokens of each text, its start token first.
            rows: Which of the n texts these are, without repetition; None is all.

        Raises:
            ValueError: If the numbers don't fit, a text is empty, or one exceeds the model's context.
        """
        import torch

        index = list(range(self.lanes)) if rows is None else [int(row) for row in rows]
        self._check(texts, index)
        known = [self._known(row, text) for row, text in zip(index, texts, strict=True)]
        changed = [i for i, (text, count) in enumerate(zip(texts, known, strict=True)) if count < len(text)]
        if changed:
            with torch.no_grad(), self.model.evaluating():
                self._feed([index[i] for i in changed], [list(texts[i]) for i in changed], [known[i] for i in changed])
        assert self._logits is not None
        return self._logits[index]

    def forget(self, rows: Sequence[int] | None = None) -> None:
        """Drop the cache of the given rows (None: all); needed after the model's weights have changed."""
        for row in range(self.lanes) if rows is None else rows:
            self._texts[row] = []

    def _check(self, texts: Sequence[Sequence[int]], index: list[int]) -> None:
        if len(texts) != len(index) or len(set(index)) != len(index) or not set(index) <= set(range(self.lanes)):
            raise ValueError(
                f"Expected one text for each of the rows, different ones of 0..{self.lanes - 1}, got {len(texts)} "
                f"texts for rows {index}."
            )
        if any(not len(text) for text in texts):
            raise ValueError("Expected texts that begin with the start token, got an empty one.")
        longest, limit = max((len(text) for text in texts), default=0), self.model.context_length
        if limit is not None and longest > limit:
            raise ValueError(f"Expected at most the model's {limit} tokens of context, got a text of {longest}.")

    def _known(self, row: int, text: Sequence[int]) -> int:
        """Number of tokens of the text that need not be fed: all, or at most all but the last."""
        cached = self._texts[row]
        if len(cached) == len(text) and all(a == b for a, b in zip(cached, text, strict=True)):
            return len(text)
        shared = 0
        for old, new in zip(cached, text, strict=False):
            if old != new:
                break
            shared += 1
        return min(shared, len(text) - 1)  # the logits are those of the last token, which is always fed

    def _feed(self, rows: list[int], texts: list[list[int]], known: list[int]) -> None:
        """Run the new tokens of the given rows through the model and store the results."""
        import torch

        device = self.model.device
        new = [text[cached:] for text, cached in zip(texts, known, strict=True)]
        past, width = max(known), max(len(tokens) for tokens in new)
        # padded on the right, so that padding still attends to a token (an empty row would give NaN)
        input_ids = torch.tensor([tokens + [0] * (width - len(tokens)) for tokens in new], device=device)
        counts = torch.tensor([len(tokens) for tokens in new], device=device)
        cached = torch.tensor(known, device=device)
        columns = torch.arange(width, device=device)[None]
        mask = torch.cat([torch.arange(past, device=device)[None] < cached[:, None], columns < counts[:, None]], dim=1)
        positions = cached[:, None] + torch.minimum(columns, counts[:, None] - 1)
        cache = self._cache(rows, past)
        output = self.model.model(
            input_ids=input_ids,
            attention_mask=mask.long(),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        )
        self._store(cache, rows, positions, past, columns < counts[:, None])
        logits = output.logits[torch.arange(len(rows), device=device), counts - 1].float()
        if self._logits is None:
            self._logits = logits.new_zeros((self.lanes, logits.shape[-1]))
        self._logits[rows] = logits
        for row, text in zip(rows, texts, strict=True):
            self._texts[row] = text

    def _cache(self, rows: list[int], past: int) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        if past:
            for number, (keys, values) in enumerate(self._layers):
                cache.update(keys[rows, :, :past], values[rows, :, :past], number)
        return cache

    def _store(self, cache: Any, rows: list[int], positions: torch.Tensor, past: int, valid: torch.Tensor) -> None:
        """Write the new keys and values of the valid columns into their slots."""
        import torch

        self._grow(cache, int(positions.max()) + 1)
        which, place = torch.nonzero(valid, as_tuple=True)
        lane, slot = torch.tensor(rows, device=valid.device)[which], positions[which, place]
        for (keys, values), layer in zip(self._layers, cache.layers, strict=True):
            keys[lane, :, slot] = layer.keys[which, :, past + place]
            values[lane, :, slot] = layer.values[which, :, past + place]

    def _grow(self, cache: Any, size: int) -> None:
        """Make room for ``size`` tokens in every row, at least doubling what there is."""
        import torch

        if size <= self._capacity:
            return
        capacity = max(size, 2 * self._capacity, 16)
        extra = capacity - self._capacity
        if not self._layers:
            self._layers = [
                (_empty_like(layer.keys, self.lanes), _empty_like(layer.values, self.lanes)) for layer in cache.layers
            ]
        self._layers = [
            (torch.nn.functional.pad(keys, (0, 0, 0, extra)), torch.nn.functional.pad(values, (0, 0, 0, extra)))
            for keys, values in self._layers
        ]
        self._capacity = capacity


def _empty_like(part: torch.Tensor, lanes: int) -> torch.Tensor:
    """An empty cache of ``lanes`` texts, with the layer's heads and size."""
    return part.new_zeros((lanes, part.shape[1], 0, part.shape[3]))
