"""A small language model of prompts, trained from nothing in minutes on a CPU: the default of ``edpbrl reproduce``.

GPT-2's architecture (Radford et al., 2019) at about one million parameters, a byte-level BPE of its own, one epoch
over prompts composed from a vocabulary, AdamW with warm-up and a cosine to zero. It writes prompts in the vocabulary's
words; it knows nothing else of the language.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym import __version__
from edpbrl_gym._compat import declare_torchvision_schemas
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.features._hashing import hash_file
from edpbrl_gym.language.corpus import Corpus, compose_corpus
from edpbrl_gym.language.fitting import fit
from edpbrl_gym.language.folders import KIND, TRAINING_FILE, check_replaceable, replacing_model
from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.perplexity import Perplexity, framed, measure_perplexity
from edpbrl_gym.language.tokenizer import save_tokenizer, train_tokenizer
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    import torch

__all__ = ["DEFAULT", "QUICK", "PromptLMSettings", "TrainingReport", "train_prompt_lm"]

_POSITIONS = 128
_SAMPLE_TOKENS = 64
_PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
_CODE = ("corpus", "phrasing", "tokenizer", "perplexity", "fitting", "training")  # modules that decide the weights


@dataclass(frozen=True)
class PromptLMSettings:
    """What decides the model; ``DEFAULT`` and ``QUICK`` are two of them.

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
        samples: Prompts drawn from the trained model for the report.
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

    def __post_init__(self) -> None:
        for name in ("prompts", "held_out", "batch_size", "width", "layers", "heads", "samples"):
            check_count(getattr(self, name), name)
        for name in ("steps", "tokens_per_step"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        check_count(self.vocabulary_size, "vocabulary_size", minimum=257)
        check_number(self.learning_rate, "learning_rate", minimum=0.0, exclusive=True)
        check_number(self.initial_scale, "initial_scale", minimum=0.0, exclusive=True)
        check_number(self.weight_decay, "weight_decay", minimum=0.0)
        if self.width % self.heads:
            raise ValueError(f"Expected heads to divide the width, got {self.heads} heads and width {self.width}")

    @property
    def optimiser_steps(self) -> int:
        """The steps that are done: ``steps``, or those of one epoch."""
        return self.steps if self.steps is not None else math.ceil(self.prompts / self.batch_size)


DEFAULT = PromptLMSettings()
QUICK = PromptLMSettings(
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


@dataclass(frozen=True)
class TrainingReport:
    """What came of a training.

    Attributes:
        folder: Where the model lies.
        perplexity_held_out: Per token, on prompts with combinations that no training prompt has.
        perplexity_held_out_per_word: The same per word, comparable between tokenizers.
        perplexity_train: Per token, on as many training prompts: the gap is what was memorised.
        prompts: Training prompts.
        held_out: Held-out prompts; fewer than asked for where a small vocabulary has no more.
        steps: Optimiser steps.
        tokens: Predicted tokens of the training, in all steps.
        vocabulary_size: Tokens that the tokenizer has.
        parameters: Parameters of the model.
        seconds: Time of everything, corpus and report included.
        cpu_seconds: Time of all cores.
        samples: Prompts drawn from the model, not chosen.
    """

    folder: Path
    perplexity_held_out: float
    perplexity_held_out_per_word: float
    perplexity_train: float
    prompts: int
    held_out: int
    steps: int
    tokens: int
    vocabulary_size: int
    parameters: int
    seconds: float
    cpu_seconds: float
    samples: tuple[str, ...]

    def summary(self) -> str:
        """Return the figures as a few lines of text."""
        return (
            f"{self.parameters:,} parameters, {self.vocabulary_size:,} tokens in the vocabulary\n"
            f"{self.prompts:,} prompts, {self.steps:,} steps, {self.tokens:,} tokens, {self.seconds:.0f} s "
            f"({self.cpu_seconds:.0f} s of CPU)\n"
            f"perplexity on {self.held_out:,} held-out prompts {self.perplexity_held_out:.2f} per token, "
            f"{self.perplexity_held_out_per_word:.1f} per word "
            f"({self.perplexity_train:.2f} per token on training prompts)"
        )


def train_prompt_lm(
    out: str | os.PathLike[str],
    *,
    vocabulary: Vocabulary | str | os.PathLike[str] | None = None,
    prompts: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    settings: PromptLMSettings = DEFAULT,
    progress: bool = False,
) -> TrainingReport:
    """Train a prompt language model and write it as an ordinary Hugging Face folder.

    The folder appears when everything is done, or not at all; an earlier model of ours is replaced. Its
    ``training.json`` is the record: settings, seed, code, figures, and size and sha256 of every other file. Seed,
    settings, vocabulary, package versions and number of torch threads decide every byte of the weights on one kind of
    machine. Global random state is neither read nor changed.

    Args:
        out: The folder.
        vocabulary: A vocabulary, or what ``load_vocabulary`` takes: a built-in name, a folder, None.
        prompts: Training prompts, in place of the settings' number.
        steps: Optimiser steps, in place of the settings' (one epoch).
        seed: Seed of corpus, weights, order and samples.
        settings: All other sizes.
        progress: Show a progress bar on a terminal's stderr.

    Raises:
        ValueError: Sizes that make no sense, a vocabulary that is too small, or something else at ``out``.
        FileNotFoundError: The vocabulary's folder is missing.
    """
    import torch

    started, cpu_started = time.perf_counter(), time.process_time()
    folder = Path(out).expanduser()
    seed = check_count(seed, "seed", minimum=0)
    given = {"prompts": prompts, "steps": steps}
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    check_replaceable(folder)
    words = vocabulary if isinstance(vocabulary, Vocabulary) else load_vocabulary(vocabulary)
    if settings.tokens_per_step is not None:
        words = words.subset(settings.tokens_per_step, seed)
    corpus = compose_corpus(words, train=settings.prompts, held_out=settings.held_out, seed=seed)
    tokenizer = train_tokenizer(corpus.train, settings.vocabulary_size)
    rows = framed(tokenizer, corpus.train)
    tokenizer.model_max_length = _positions([*rows, *framed(tokenizer, corpus.held_out)])
    model = _new_model(tokenizer, settings, seed)
    tokens = fit(
        model,
        rows,
        steps=settings.optimiser_steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        generator=_generator(seed, 1),
        progress=progress,
    )
    held_out = measure_perplexity(model, tokenizer, corpus.held_out)
    report = TrainingReport(
        folder=folder,
        perplexity_held_out=held_out.per_token,
        perplexity_held_out_per_word=held_out.per_word,
        perplexity_train=_on_training(model, tokenizer, corpus).per_token,
        prompts=len(corpus.train),
        held_out=len(corpus.held_out),
        steps=settings.optimiser_steps,
        tokens=tokens,
        vocabulary_size=len(tokenizer),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        samples=tuple(_draw(model, tokenizer, settings.samples, _generator(seed, 2))),
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu_started,
    )
    document = {
        "kind": KIND,
        "format": 2,
        "seed": seed,
        "settings": asdict(settings),
        "vocabulary_fingerprint": words.fingerprint,
        "corpus_fingerprint": corpus.fingerprint,
        "report": {**asdict(report), "folder": folder.name},
        "torch_threads": torch.get_num_threads(),
        "code": {name: hash_file(Path(__file__).with_name(f"{name}.py")) for name in _CODE},
        "versions": {
            "python": sys.version.split()[0],
            "edpbrl-gym": __version__,
            **{name: metadata.version(name) for name in _PACKAGES},
        },
    }
    with replacing_model(folder) as part:
        model.save_pretrained(part)
        save_tokenizer(tokenizer, part)
        document["fingerprint"] = load_language_model(part, device="cpu").fingerprint
        document["files"] = {
            path.name: {"bytes": path.stat().st_size, "sha256": hash_file(path)} for path in sorted(part.iterdir())
        }
        text = json.dumps(document, indent=2, ensure_ascii=False)
        (part / TRAINING_FILE).write_text(text + "\n", encoding="utf-8")
    return report


def _generator(seed: int, stream: int) -> torch.Generator:
    """Return a generator with a stream of its own: 0 weights, 1 order, 2 samples."""
    import torch

    state = np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


def _positions(rows: Sequence[Sequence[int]]) -> int:
    """Return the context length: 128 tokens, more where the prompts of a vocabulary are longer."""
    longest = max(len(row) for row in rows)
    return max(_POSITIONS, 32 * math.ceil(longest / 32))


def _new_model(tokenizer: Any, settings: PromptLMSettings, seed: int) -> Any:
    """Return an untrained GPT-2 with seeded weights; dropout is 0, as no prompt is seen often."""
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
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=end, eos_token_id=end, pad_token_id=end, do_sample=True, max_new_tokens=_SAMPLE_TOKENS
    )
    return model


def _on_training(model: Any, tokenizer: Any, corpus: Corpus) -> Perplexity:
    return measure_perplexity(model, tokenizer, corpus.train[: len(corpus.held_out)])


def _draw(model: Any, tokenizer: Any, count: int, generator: torch.Generator) -> list[str]:
    """Return prompts sampled token by token from the model's own distribution (temperature 1)."""
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
