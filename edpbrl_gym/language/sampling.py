"""Sample prompts from a causal language model, and score them so that the gradient of REINFORCE is unbiased.

One distribution is sampled and scored. At each position the next token is drawn from
softmax(logits / temperature) over the tokens that may be written (special tokens other than EOS may not). The prompt
ends, before the drawn token, when that token is EOS or would begin word H + 1: the token itself is not part of the
sample, so all these tokens are one event "stop" with
log p(stop) = logsumexp of their log-probabilities. The cut at ``max_tokens``, and the end after the white space that
completes word H, are forced and have probability one. Hence the probabilities of all outcomes sum to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.language.divergence import DivergedError
from edpbrl_gym.language.model import LanguageModel
from edpbrl_gym.language.samples import Samples
from edpbrl_gym.language.words import WordRules, word_prefixes

if TYPE_CHECKING:
    import torch

__all__ = [
    "Samples",
    "draw_tokens",
    "invert_distribution",
    "log_probabilities",
    "sample_prompts",
    "token_scores",
    "word_prefixes",
]

_KEEP = 0.75  # a batch drops its finished rows when less than this share of its rows is alive


def sample_prompts(
    model: LanguageModel,
    count: int,
    *,
    words: int,
    max_tokens: int,
    temperature: float = 1.0,
    generator: torch.Generator,
    prefix: str = "",
    batch_size: int = 64,
) -> Samples:
    """Draw independent prompts by ancestral sampling with a KV cache.

    Row i uses row i of the generator's first uniforms, by inversion of the distribution function in float64. So the
    draws don't depend on ``batch_size`` (except for the rounding of the model's forward pass, which may differ between
    batch sizes in the last bits).

    Args:
        model: The language model.
        count: n >= 1 prompts.
        words: H, the word budget; the words of ``prefix`` count.
        max_tokens: Maximum number of text tokens, without those of ``prefix``.
        temperature: Divides the logits, > 0.
        generator: A generator on the CPU; (count, max_tokens) uniforms are drawn from it.
        prefix: Text that every prompt begins with.
        batch_size: Maximum number of prompts in one forward pass.

    Raises:
        TypeError: If ``generator`` is no ``torch.Generator``.
        ValueError: If a number is out of range, the prefix has more than H words, or the model's context is too short.
    """
    import torch

    count, batch = check_count(count, "count"), check_count(batch_size, "batch_size")
    words, limit = check_count(words, "words"), check_count(max_tokens, "max_tokens")
    heat = check_number(temperature, "temperature", minimum=0.0, exclusive=True)
    if not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
        raise TypeError(f"Expected generator as a torch.Generator on the CPU, got {generator!r}.")
    start = model.start_tokens(prefix)
    num_words, inside = model.rules.state(start)
    if num_words > words:
        raise ValueError(f"Expected a prefix of at most {words} words, got {num_words}: {prefix!r}.")
    _check_context(model, len(start) + limit - 1)
    uniforms = torch.rand((count, limit), generator=generator, dtype=torch.float64)
    sampler = _Sampler(model, start, words, limit, heat)
    with torch.no_grad(), model.evaluating():
        parts = [sampler.run(part) for part in torch.split(uniforms, batch)]
    tokens, logs, lengths, stopped = (torch.cat(values) for values in zip(*parts, strict=True))
    longest = max(1, int(lengths.max()))
    tokens, logs = tokens[:, :longest], logs[:, :longest]
    before = _states(model.rules, tokens, lengths - stopped.long(), (num_words, inside))
    texts = [
        model.rules.text((*start, *row[: length - stop]))
        for row, length, stop in zip(tokens.tolist(), lengths.tolist(), stopped.tolist(), strict=True)
    ]
    return Samples(tokens, lengths, stopped, texts, logs, *before, start, words, limit, heat)


def log_probabilities(model: LanguageModel, samples: Samples, *, batch_size: int | None = None) -> torch.Tensor:
    """Log-probability of each choice of the samples under ``model``, with gradient, by teacher forcing.

    The distribution is the one that ``sample_prompts`` draws from (same mask, same temperature, the stop as one event);
    under the sampling model the values are those of ``samples.log_probabilities`` up to the rounding of the forward
    pass. The sum of a row is log p(prompt and its way of ending), the score function of REINFORCE.

    Args:
        model: The policy that is scored; its tokenizer must be that of the sampling model.
        samples: The sampled prompts.
        batch_size: Maximum number of rows in one forward pass; None is all at once.

    Returns:
        float32 (n, L) on the model's device, exactly 0 beyond the end of a row.
    """
    import torch

    _check_context(model, len(samples.start) + samples.tokens.shape[1] - 1)
    size = len(samples) if batch_size is None else check_count(batch_size, "batch_size")
    with model.evaluating():
        parts = [_score(model, samples.select(slice(i, i + size))) for i in range(0, len(samples), size)]
    return torch.cat(parts)


def _score(model: LanguageModel, samples: Samples) -> torch.Tensor:
    import torch

    device, start = model.device, torch.tensor(samples.start)
    tokens, mask = samples.tokens.to(device), samples.mask.to(device)
    input_ids = torch.cat([start.to(device).expand(len(samples), -1), tokens[:, :-1]], dim=1)
    attended = torch.cat([torch.ones_like(input_ids[:, : start.numel()], dtype=torch.bool), mask[:, :-1]], dim=1)
    # no cache: it would needlessly keep the keys of the whole batch
    output = model.model(input_ids=input_ids, attention_mask=attended.long(), use_cache=False)
    scores = token_scores(model, output.logits[:, start.numel() - 1 :], samples.temperature)
    total = torch.logsumexp(scores, dim=-1)
    logs = scores.gather(-1, tokens[..., None])[..., 0]
    rows = torch.nonzero(samples.stopped)[:, 0]
    if rows.numel():
        last = samples.lengths[rows] - 1
        stops = _stop_masks(model.rules, samples.num_words[rows, last], samples.inside[rows, last], samples.words)
        stop_index = (rows.to(device), last.to(device))
        stop_logs = torch.logsumexp(scores[stop_index].masked_fill(~stops.to(device), -torch.inf), dim=-1)
        logs = logs.index_put(stop_index, stop_logs)
    # masked separately: beyond the end both may be infinite, and their difference NaN
    return torch.where(mask, logs, 0.0) - torch.where(mask, total, 0.0)


class _Sampler:
    """One batch at a time: the model is fed one new token a row; finished rows leave the batch."""

    def __init__(self, model: LanguageModel, start: tuple[int, ...], words: int, limit: int, temperature: float):
        self.model, self.rules, self.start = model, model.rules, start
        self.words, self.limit, self.temperature = words, limit, temperature

    def run(self, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens (b, limit), their log-probabilities, lengths and whether stopped, for uniforms (b, limit)."""
        import torch
        from transformers import DynamicCache

        number, rules = len(uniforms), self.rules
        tokens = torch.full((number, self.limit), rules.eos)
        logs = torch.zeros((number, self.limit), dtype=torch.float64)
        lengths, stopped = torch.zeros(number, dtype=torch.long), torch.zeros(number, dtype=torch.bool)
        state = rules.state(self.start)
        num_words, inside = np.full(number, state[0], dtype=np.int64), np.full(number, state[1])
        rows = np.arange(number)  # row of each member of the batch
        alive = ~rules.complete(num_words, inside, self.words)
        cache = DynamicCache()
        step_input = torch.tensor([self.start], device=self.model.device)  # the same for all: fed once, then repeated
        for position in range(self.limit):
            if not alive.any():
                break
            output = self.model.model(input_ids=step_input, past_key_values=cache, use_cache=True)
            scores = token_scores(self.model, output.logits[:, -1], self.temperature)
            if position == 0:
                scores = scores.expand(number, -1)
                cache.batch_repeat_interleave(number)
            live = np.flatnonzero(alive)
            index = torch.from_numpy(live)
            choices, log, stop = draw_tokens(
                scores[index.to(scores.device)],
                uniforms[rows[live], position],
                rules=rules,
                num_words=num_words[live],
                inside=inside[live],
                words=self.words,
            )
            targets = torch.from_numpy(rows[live])
            tokens[targets, position], logs[targets, position] = choices, log
            lengths[targets] += 1
            stopped[targets] = stop
            picked = choices.numpy()
            num_words[live], inside[live] = rules.advance(num_words[live], inside[live], picked)
            alive[live] = ~(stop.numpy() | rules.complete(num_words[live], inside[live], self.words))
            if alive.any() and alive.sum() < _KEEP * alive.size:
                keep = np.flatnonzero(alive)
                cache.batch_select_indices(torch.from_numpy(keep).to(scores.device))
                rows, num_words, inside, alive = rows[keep], num_words[keep], inside[keep], alive[keep]
            step_input = tokens[torch.from_numpy(rows), position][:, None].to(scores.device)
        return tokens, logs, lengths, stopped


def draw_tokens(
    scores: torch.Tensor,
    uniforms: torch.Tensor,
    *,
    rules: WordRules,
    num_words: np.ndarray,
    inside: np.ndarray,
    words: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw the next choice of each of b texts.

    Args:
        scores: Tempered logits (b, V) as ``token_scores`` gives them.
        uniforms: One number of [0, 1) for each text, float64 (b,).
        rules: What the tokens do to the words.
        num_words: Words that have begun, (b,).
        inside: Whether the text ends inside a word, (b,).
        words: H, the word budget.

    Returns:
        The choices (EOS for the stop), their log-probabilities in float64, and which are the stop; (b,) on the CPU.

    Raises:
        DivergedError: If the scores of a text are no distribution (NaN or infinite).
    """
    import torch

    logs = torch.log_softmax(scores.double(), dim=-1)
    if bool(torch.isnan(logs[:, rules.eos]).any()):  # one bad score makes its whole row NaN
        raise DivergedError(
            "Expected finite scores of the next token from the language model, got NaN or infinite ones; its weights "
            "have diverged or are damaged"
        )
    tokens = invert_distribution(logs.exp(), uniforms.to(logs.device)).cpu()
    over = num_words + rules.started(tokens.numpy(), inside) > words
    stop = torch.from_numpy(over) | (tokens == rules.eos)
    log = logs.gather(-1, tokens.to(logs.device)[:, None])[:, 0].cpu()
    stop_rows = torch.nonzero(stop)[:, 0]
    if stop_rows.numel():
        masks = _stop_masks(rules, num_words[stop.numpy()], inside[stop.numpy()], words).to(logs.device)
        stop_logs = logs[stop_rows.to(logs.device)].masked_fill(~masks, -torch.inf)
        log[stop_rows] = torch.logsumexp(stop_logs, dim=-1).cpu()
    return torch.where(stop, rules.eos, tokens), log, stop


def invert_distribution(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Draw an index from each row of ``probabilities`` (b, V) by uniforms of [0, 1), (b,).

    It is the first whose cumulative sum exceeds the uniform. Entries of probability zero are never drawn, even if
    rounding leaves the sum of a row off 1.
    """
    import torch

    sums = probabilities.cumsum(dim=-1)
    total = sums[:, -1]
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(sums, target[:, None], right=True)[:, 0]


def token_scores(model: LanguageModel, logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Tempered logits (..., V) in float32, -inf for the tokens that may never be written."""
    import torch

    scores = logits[..., : model.rules.size].float() / temperature
    return scores.masked_fill(model.never_written(logits.device), -torch.inf)


def _stop_masks(rules: WordRules, num_words: Any, inside: Any, words: int) -> torch.Tensor:
    """Which tokens are the stop in each state, bool (m, V)."""
    import torch

    pairs = zip(num_words.tolist(), inside.tolist(), strict=True)
    return torch.from_numpy(np.stack([rules.stop_mask(*pair, words) for pair in pairs]))


def _states(
    rules: WordRules, tokens: torch.Tensor, lengths: torch.Tensor, start: tuple[int, bool]
) -> tuple[torch.Tensor, torch.Tensor]:
    """State (num_words, inside) before each choice, (n, L); constant beyond the text."""
    import torch

    number, positions = tokens.shape
    num_words = np.zeros((number, positions), dtype=np.int64)
    inside = np.zeros((number, positions), dtype=np.bool_)
    state = np.full(number, start[0], dtype=np.int64), np.full(number, start[1])
    choices, texts = tokens.numpy(), lengths.numpy()
    for position in range(positions):
        num_words[:, position], inside[:, position] = state
        following = rules.advance(*state, choices[:, position])
        unfinished = position < texts
        state = np.where(unfinished, following[0], state[0]), np.where(unfinished, following[1], state[1])
    return torch.from_numpy(num_words), torch.from_numpy(inside)


def _check_context(model: LanguageModel, length: int) -> None:
    limit = model.context_length
    if limit is not None and length > limit:
        raise ValueError(
            f"Expected at most the model's {limit} tokens of context, got {length} (start, prefix and max_tokens); "
            "lower max_tokens or shorten the prefix."
        )
