"""Train the prompt language model that ships with the package, or another one on one's own vocabulary.

GPT-2's architecture (Radford et al., 2019) at about one million parameters, a byte-level BPE of its own, one epoch over
prompts composed from a vocabulary, AdamW with warm-up and a cosine to zero. Minutes on a CPU, no network.

    python -m release.models.prompt_lm                  # the one that ships, in ./prompt-lm
    python -m release.models.prompt_lm --quick          # a much smaller one in half a minute
    python -m release.models.prompt_lm --vocabulary my_words --prompts 100000 --out my-model

The output is an ordinary Hugging Face folder with its record, ``training.json``. Seed, settings, vocabulary, package
versions and number of torch threads decide every byte of the weights on one kind of machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym import __version__
from edpbrl_gym._compat import declare_torchvision_schemas
from edpbrl_gym._files import replacing_folder
from edpbrl_gym._validation import check_count
from edpbrl_gym.features.base import hash_file
from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from release.models.corpus import compose_corpus
from release.models.folders import TRAINING_FILE, check_free

if TYPE_CHECKING:
    import torch

__all__ = ["DEFAULT", "QUICK", "Settings", "measure_perplexity", "train", "train_tokenizer"]

KIND = "edpbrl prompt language model"
END_OF_TEXT = "<|endoftext|>"  # begins and ends every text, as in GPT-2
IGNORED = -100  # target of a padded position
_CODE = ("corpus", "phrasing", "prompt_lm")  # modules that decide the weights
_PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
_POSITIONS = 128  # tokens of context; more where the prompts of a vocabulary are longer
_SAMPLE_TOKENS = 64  # tokens of a sample for the record, at most
_WARMUP = 0.05  # share of the steps
_BUCKET = 32  # batches that are sorted by length together, which saves padding
_CLIP = 1.0  # norm of a gradient, at most


@dataclass(frozen=True)
class Settings:
    """What decides the model.

    Attributes:
        prompts: Training prompts.
        held_out: Prompts with unseen combinations that the perplexity is measured on, at most.
        tokens_per_step: Use at most so many tokens of each step of the vocabulary; None for all.
        steps: Optimiser steps; None for one epoch.
        batch_size: Prompts of a step.
        learning_rate: Its largest value.
        weight_decay: AdamW's, on matrices only.
        vocabulary_size: Tokens of the BPE at most.
        width: Width of the model (``n_embd``).
        layers: Transformer blocks.
        heads: Attention heads; they divide the width.
        initial_scale: Standard deviation of the initial weights; GPT-2's 0.02 is for larger widths.
        samples: Prompts drawn from the trained model for the record.
    """

    prompts: int = 72_000
    held_out: int = 2_000
    tokens_per_step: int | None = 250
    steps: int | None = None
    batch_size: int = 16
    learning_rate: float = 5e-3
    weight_decay: float = 0.01
    vocabulary_size: int = 4_608
    width: int = 128
    layers: int = 3
    heads: int = 4
    initial_scale: float = 0.06
    samples: int = 20

    @property
    def optimiser_steps(self) -> int:
        """The steps that are done: ``steps``, or those of one epoch."""
        return self.steps if self.steps is not None else math.ceil(self.prompts / self.batch_size)


DEFAULT = Settings()
QUICK = Settings(
    prompts=12_000,
    held_out=500,
    tokens_per_step=50,
    learning_rate=6e-3,
    vocabulary_size=1_024,
    width=64,
    layers=2,
    heads=2,
    initial_scale=0.08,
)


def train(
    out: str | os.PathLike[str],
    *,
    vocabulary: Vocabulary | str | os.PathLike[str] | None = None,
    settings: Settings = DEFAULT,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, Any]:
    """Train a model, write its folder when everything is done, and return its record.

    Args:
        out: A folder that does not exist yet.
        vocabulary: A vocabulary, or what ``load_vocabulary`` takes: a built-in name, a folder, None.
        settings: All sizes.
        seed: Seed of corpus, weights, order and samples; global random state is neither read nor changed.
        progress: Show a progress bar on a terminal's stderr.

    Raises:
        ValueError: Something is at ``out``, or the vocabulary is too small.
        FileNotFoundError: The vocabulary's folder is missing.
    """
    import torch

    started, cpu_started = time.perf_counter(), time.process_time()
    folder, seed = check_free(out), check_count(seed, "seed", minimum=0)
    words = vocabulary if isinstance(vocabulary, Vocabulary) else load_vocabulary(vocabulary)
    if settings.tokens_per_step is not None:
        words = words.subset(settings.tokens_per_step, seed)
    corpus = compose_corpus(words, train=settings.prompts, held_out=settings.held_out, seed=seed)
    tokenizer = train_tokenizer(corpus.train, settings.vocabulary_size)
    rows = _framed(tokenizer, corpus.train)
    longest = max(len(row) for row in [*rows, *_framed(tokenizer, corpus.held_out)])
    tokenizer.model_max_length = max(_POSITIONS, 32 * math.ceil(longest / 32))
    model = _new_model(tokenizer, settings, seed)
    tokens = _fit(model, rows, settings, _generator(seed, 1), progress)
    per_token, per_word = measure_perplexity(model, tokenizer, corpus.held_out)
    report = {
        "folder": folder.name,
        "perplexity_held_out": per_token,
        "perplexity_held_out_per_word": per_word,
        "perplexity_train": measure_perplexity(model, tokenizer, corpus.train[: len(corpus.held_out)])[0],
        "prompts": len(corpus.train),
        "held_out": len(corpus.held_out),
        "steps": settings.optimiser_steps,
        "tokens": tokens,
        "vocabulary_size": len(tokenizer),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "samples": _draw(model, tokenizer, settings.samples, _generator(seed, 2)),
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
    }
    record: dict[str, Any] = {
        "kind": KIND,
        "format": 2,
        "seed": seed,
        "settings": asdict(settings),
        "vocabulary_fingerprint": words.fingerprint,
        "corpus_fingerprint": corpus.fingerprint,
        "report": report,
        "torch_threads": torch.get_num_threads(),
        "code": {name: hash_file(Path(__file__).with_name(f"{name}.py")) for name in _CODE},
        "versions": {
            "python": sys.version.split()[0],
            "edpbrl-gym": __version__,
            **{name: metadata.version(name) for name in _PACKAGES},
        },
    }
    with replacing_folder(folder) as part:
        model.save_pretrained(part)
        _save_tokenizer(tokenizer, part)
        record["fingerprint"] = load_language_model(part, device="cpu").fingerprint
        record["files"] = {
            path.name: {"bytes": path.stat().st_size, "sha256": hash_file(path)} for path in sorted(part.iterdir())
        }
        text = json.dumps(record, indent=2, ensure_ascii=False)
        (part / TRAINING_FILE).write_text(text + "\n", encoding="utf-8")
    return record


def _generator(seed: int, stream: int) -> torch.Generator:
    """A generator with a stream of its own: 0 weights, 1 order, 2 samples."""
    import torch

    state = np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


# ------------------------------------------------------------------ the tokenizer


def train_tokenizer(texts: Sequence[str], vocabulary_size: int) -> Any:
    """Return a fast Hugging Face tokenizer with GPT-2's conventions, trained on the texts.

    Byte-level byte-pair encoding: every text can be written, a word after a space begins with that space, and
    ``END_OF_TEXT`` (id 0) is the token of begin, end and padding. Merges are counted over all texts, so that their
    order does not matter.

    Args:
        texts: What to learn the merges from.
        vocabulary_size: Tokens at most, the 256 bytes and ``END_OF_TEXT`` included; few texts give fewer.

    Raises:
        ValueError: A size that does not hold the bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    size = check_count(vocabulary_size, "vocabulary_size", minimum=257)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    declare_torchvision_schemas()
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )


def _save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write its two files; transformers 4 and 5 both know its class by this name."""
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["tokenizer_class"] = "PreTrainedTokenizerFast"
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


# ------------------------------------------------------------------ the model and its training


def _new_model(tokenizer: Any, settings: Settings, seed: int) -> Any:
    """An untrained GPT-2 with seeded weights; dropout is 0, as no prompt is seen often."""
    import torch

    declare_torchvision_schemas()
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    end = tokenizer.eos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=tokenizer.model_max_length,
        n_embd=settings.width,
        n_layer=settings.layers,
        n_head=settings.heads,
        initializer_range=settings.initial_scale,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own approximation in one kernel
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=end,
        eos_token_id=end,
    )
    with torch.random.fork_rng(devices=[]):  # the library draws weights from the global state
        torch.default_generator.set_state(_generator(seed, 0).get_state())
        model: Any = GPT2LMHeadModel(config)
    model.generation_config = GenerationConfig(
        bos_token_id=end, eos_token_id=end, pad_token_id=end, do_sample=True, max_new_tokens=_SAMPLE_TOKENS
    )
    return model


def _framed(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text between the tokens of begin and end."""
    if not texts:
        return []
    inner = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [[tokenizer.bos_token_id, *ids, tokenizer.eos_token_id] for ids in inner]


def _batches(rows: Sequence[list[int]], size: int, generator: torch.Generator) -> Iterator[list[list[int]]]:
    """Batches without end, epoch after epoch; each epoch holds every row once, similar lengths together."""
    import torch

    while True:
        order = torch.randperm(len(rows), generator=generator).tolist()
        batches = []
        for start in range(0, len(order), _BUCKET * size):
            bucket = sorted(order[start : start + _BUCKET * size], key=lambda row: len(rows[row]))
            batches += [bucket[first : first + size] for first in range(0, len(bucket), size)]
        for number in torch.randperm(len(batches), generator=generator).tolist():
            yield [rows[row] for row in batches[number]]


def _rate(step: int, steps: int) -> float:
    """Share of the largest learning rate at a step: linear warm-up, then a cosine to 0."""
    warmup = max(1, round(_WARMUP * steps))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _losses(model: Any, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Sum of -log p of every token after the first, with gradient.

    Padding is on the right, where causal attention never looks; padded targets count nothing.
    """
    import torch
    from torch.nn import functional

    width = max(len(row) for row in rows) - 1
    inputs = torch.zeros(len(rows), width, dtype=torch.long)
    targets = torch.full((len(rows), width), IGNORED, dtype=torch.long)
    for number, row in enumerate(rows):
        ids = torch.tensor(row, dtype=torch.long)
        inputs[number, : len(row) - 1] = ids[:-1]
        targets[number, : len(row) - 1] = ids[1:]
    logits = model(input_ids=inputs, use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")


def _fit(model: Any, rows: Sequence[list[int]], settings: Settings, generator: torch.Generator, progress: bool) -> int:
    """Train in place by maximum likelihood; returns the number of predicted tokens of all steps."""
    import torch
    from tqdm.auto import tqdm

    steps = settings.optimiser_steps
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        fused=True,
    )
    tokens, batches = 0, _batches(rows, settings.batch_size, generator)
    model.train()
    for step in tqdm(range(steps), desc="train", unit="step", disable=None if progress else True):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * _rate(step, steps)
        batch = next(batches)
        count = sum(len(row) - 1 for row in batch)
        (_losses(model, batch) / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimiser.step()
        optimiser.zero_grad()
        tokens += count
    model.eval()
    return tokens


# ------------------------------------------------------------------ its figures


def measure_perplexity(
    model: Any, tokenizer: Any, texts: Sequence[str], *, batch_size: int = 64
) -> tuple[float, float]:
    """Return the perplexity per token, ends of texts included, and per word (separated by white space).

    That per token depends on the tokenizer; the same texts have the same words under every tokenizer.
    """
    import torch

    rows = sorted(_framed(tokenizer, texts), key=len)
    with torch.no_grad():
        nats = sum(float(_losses(model, rows[i : i + batch_size])) for i in range(0, len(rows), batch_size))
    tokens, words = sum(len(row) - 1 for row in rows), sum(len(text.split()) for text in texts)
    return math.exp(nats / tokens), math.exp(nats / words)


def _draw(model: Any, tokenizer: Any, count: int, generator: torch.Generator) -> list[str]:
    """Prompts sampled token by token from the model's own distribution (temperature 1)."""
    import torch

    end = tokenizer.eos_token_id
    ids = torch.full((count, 1), end)
    done = torch.zeros(count, dtype=torch.bool)
    for _ in range(_SAMPLE_TOKENS):
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[:, -1]
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
        drawn[done] = end
        ids = torch.cat([ids, drawn[:, None]], dim=1)
        done |= drawn == end
        if done.all():
            break
    texts: list[str] = tokenizer.batch_decode(ids, skip_special_tokens=True)
    return texts


def main() -> None:
    """Read the command line, train, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 tokens of each step, a sixth of the parameters")
    parser.add_argument("--prompts", type=int, help="training prompts (72000, quick: 12000)")
    parser.add_argument("--steps", type=int, help="optimiser steps (one pass over the prompts)")
    parser.add_argument("--vocabulary", help="built-in vocabulary or folder of token files, one a step (images)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything")
    parser.add_argument("--out", type=Path, default=Path("prompt-lm"), help="folder of the model, which must not exist")
    given = parser.parse_args()
    changes = {"prompts": given.prompts, "steps": given.steps}
    settings = replace(QUICK if given.quick else DEFAULT, **{k: v for k, v in changes.items() if v is not None})
    record = train(given.out, vocabulary=given.vocabulary, settings=settings, seed=given.seed, progress=True)
    print(json.dumps(record["report"], indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
