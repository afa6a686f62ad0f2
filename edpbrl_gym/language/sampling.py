"""Sample prompts from a causal language model, and score them so that the gradient of REINFORCE is unbiased.

One distribution is sampled and scored. At each position the next token is drawn from
softmax(logits / temperature) over the tokens that may be written (special tokens other than EOS may not). The prompt
ends, before the drawn token, when that token is EOS or would begin word H + 1: the token itself is not part of the
sample, so all these tokens are one event "stop" with
log p(stop) = logsumexp of their log-probabilities. The cut at ``max_tokens``, and the end after the white space that
completes word H, are forced and have probability one. Hence the probabilities of all outcomes sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.language.model import LanguageModel
from edpbrl_gym.language.training_log import DivergedError
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
]

_KEEP = 0.75  # a batch drops its finished rows when less than this share of its rows is alive
_ROWWISE = ("tokens", "lengths", "stopped", "log_probabilities", "num_words", "inside")


@dataclass(frozen=True, eq=False)
class Samples:
    """Sampled prompts: one row of choices (tokens, then possibly the stop) for each, on the CPU."""

    tokens: torch.Tensor  # chosen tokens, int64 (n, L); EOS stands for the stop, entries beyond the end are undefined
    lengths: torch.Tensor  # choices of each row, int64 (n,): its text tokens, and one more where ``stopped``
    stopped: torch.Tensor  # whether the row ended by the stop event rather than by force, bool (n,)
    texts: list[str]  # the prompts, prefix included, without surrounding white space
    log_probabilities: torch.Tensor  # of each choice when it was drawn, float64 (n, L), 0 beyond the end
    num_words: torch.Tensor  # words begun before each choice, int64 (n, L)
    inside: torch.Tensor  # whether the text before the choice ended inside a word, bool (n, L)
    start: tuple[int, ...]  # tokens before the first choice: the start token and those of the prefix
    words: int  # H, the word budget
    max_tokens: int  # the token budget
    temperature: float  # of the draws

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
    begun, _ = model.rules.state(start)
    if begun > words:
        raise ValueError(f"Expected a prefix of at most {words} words, got {begun}: {prefix!r}.")
    _check_context(model, len(start) + limit - 1)
    uniforms = torch.rand((count, limit), generator=generator, dtype=torch.float64)
    with torch.no_grad(), model.evaluating():
        parts = [_sample(model, start, words, limit, heat, part) for part in torch.split(uniforms, batch)]
    tokens, logs, num_words, inside, lengths, stopped = (torch.cat(values) for values in zip(*parts, strict=True))
    longest = max(1, int(lengths.max()))
    tokens, logs, num_words, inside = (values[:, :longest] for values in (tokens, logs, num_words, inside))
    texts = [
        model.rules.text((*start, *row[: length - stop]))
        for row, length, stop in zip(tokens.tolist(), lengths.tolist(), stopped.tolist(), strict=True)
    ]
    return Samples(tokens, lengths, stopped, texts, logs, num_words, inside, start, words, limit, heat)


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


def _sample(
    model: LanguageModel, start: tuple[int, ...], words: int, limit: int, temperature: float, uniforms: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Draw one batch: the model is fed one new token a row; finished rows leave the batch.

    For uniforms (b, limit): tokens, their log-probabilities, the state before each; lengths, whether stopped.
    """
    import torch
    from transformers import DynamicCache

    number, rules = len(uniforms), model.rules
    tokens = torch.full((number, limit), rules.eos)
    logs = torch.zeros((number, limit), dtype=torch.float64)
    words_before = torch.zeros((number, limit), dtype=torch.long)
    inside_before = torch.zeros((number, limit), dtype=torch.bool)
    lengths, stopped = torch.zeros(number, dtype=torch.long), torch.zeros(number, dtype=torch.bool)
    state = rules.state(start)
    num_words, inside = np.full(number, state[0], dtype=np.int64), np.full(number, state[1])
    rows = np.arange(number)  # row of each member of the batch
    alive = ~rules.complete(num_words, inside, words)
    cache = DynamicCache()
    step_input = torch.tensor([start], device=model.device)  # the same for all: fed once, then repeated
    for position in range(limit):
        if not alive.any():
            break
        output = model.model(input_ids=step_input, past_key_values=cache, use_cache=True)
        scores = token_scores(model, output.logits[:, -1], temperature)
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
            words=words,
        )
        targets = torch.from_numpy(rows[live])
        tokens[targets, position], logs[targets, position] = choices, log
        words_before[targets, position] = torch.from_numpy(num_words[live])
        inside_before[targets, position] = torch.from_numpy(inside[live])
        lengths[targets] += 1
        stopped[targets] = stop
        picked = choices.numpy()
        num_words[live], inside[live] = rules.advance(num_words[live], inside[live], picked)
        alive[live] = ~(stop.numpy() | rules.complete(num_words[live], inside[live], words))
        if alive.any() and alive.sum() < _KEEP * alive.size:
            keep = np.flatnonzero(alive)
            cache.batch_select_indices(torch.from_numpy(keep).to(scores.device))
            rows, num_words, inside, alive = rows[keep], num_words[keep], inside[keep], alive[keep]
        step_input = tokens[torch.from_numpy(rows), position][:, None].to(scores.device)
    return tokens, logs, words_before, inside_before, lengths, stopped


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
    return scores.masked_fill(model.never_written.to(logits.device), -torch.inf)


def _stop_masks(rules: WordRules, num_words: Any, inside: Any, words: int) -> torch.Tensor:
    """Which tokens are the stop in each state, bool (m, V)."""
    import torch

    pairs = zip(num_words.tolist(), inside.tolist(), strict=True)
    return torch.from_numpy(np.stack([rules.stop_mask(*pair, words) for pair in pairs]))


def _check_context(model: LanguageModel, length: int) -> None:
    limit = model.context_length
    if limit is not None and length > limit:
        raise ValueError(
            f"Expected at most the model's {limit} tokens of context, got {length} (start, prefix and max_tokens); "
            "lower max_tokens or shorten the prefix."
        )
