"""Measure REINFORCE on language models: variance of the credits, speed of an iteration's prompts, memory of K policies.

    python benchmarks/reinforce.py variance --model FOLDER --batches 24   # a few minutes on one core
    python benchmarks/reinforce.py speed --model FOLDER                   # about a minute
    python benchmarks/reinforce.py memory --model FOLDER                  # also at GPT-2 124M (random weights)

Without --model the project's own prompt model is used (edpbrl train-prompt-lm). Times are CPU time of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from edpbrl_gym.features import load_encoder
from edpbrl_gym.language.credit import CREDITS, Credit, Rewards
from edpbrl_gym.language.gradient import accumulate_gradient
from edpbrl_gym.language.model import LanguageModel, load_language_model
from edpbrl_gym.language.objective import TruncatedObjective
from edpbrl_gym.language.policies import make_policies
from edpbrl_gym.language.rollouts import PLAYING, TRAINING, roll_out
from edpbrl_gym.language.sampling import log_probabilities, sample_prompts, word_prefixes
from edpbrl_gym.language.settings import ReinforceSettings

K = 4
SEED = 1000  # of development, never of a reported study


class Memo:
    """An encoder that remembers; batches share many short prefixes."""

    def __init__(self, encoder: Any) -> None:
        self.encoder, self.rows = encoder, {}
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint

    def encode(self, texts: list[str], *, progress: bool = False) -> np.ndarray:
        """Return the rows of all texts; only new ones are encoded."""
        new = [text for text in dict.fromkeys(texts) if text not in self.rows]
        if new:
            self.rows.update(zip(new, self.encoder.encode(new), strict=True))
        return np.stack([self.rows[text] for text in texts])


def small_encoder() -> Any:
    """MiniLM without the cache on disk."""
    return load_encoder("minilm", cache=False)


def variance(model: str | None, batches: int) -> None:
    """Trace of the covariance of the gradient of all adapters at their start, by credit, from the same batches."""
    policies = make_policies(load_language_model(model, device="cpu"), K, rank=8)
    encoder, settings = Memo(small_encoder()), ReinforceSettings(seed=SEED)
    credits = {name: Credit(name) for name in CREDITS}
    found: dict[str, list[torch.Tensor]] = {name: [] for name in CREDITS}
    began = time.process_time()
    for batch in range(batches):
        rollout = roll_out(policies, encoder, settings, meta_samples=8, purpose=TRAINING, iteration=batch)
        rewards = Rewards.of(TruncatedObjective(rollout.features, settings.regularization))
        for name, credit in credits.items():
            for parameter in policies.parameters():
                parameter.grad = None
            accumulate_gradient(policies, rollout, credit.weights(rewards), settings, meta_samples=8)
            found[name].append(torch.cat([p.grad.flatten() for p in policies.parameters()]).double())
        print(f"batch {batch + 1}/{batches}, {time.process_time() - began:.0f} s", file=sys.stderr)
        if batch + 1 == batches or (batch + 1) % 4 == 0:
            variance_table(found)


def variance_table(found: dict[str, list[torch.Tensor]]) -> None:
    """Print what the batches so far say."""
    # the first iteration of moving_average has no average yet
    stacks = {name: torch.stack(rows[1:]) for name, rows in found.items()}
    deviations = {name: ((rows - rows.mean(0)) ** 2).sum(1).numpy() for name, rows in stacks.items()}
    paper = deviations["batch_mean"]
    count = len(paper)
    print(f"\nK = {K}, T = 8, M = 8, H = 8, {count} batches; variance of the gradient at the initial parameters")
    print("| credit | variance | batch_mean / it | standard error | signal / noise |")
    print("|---|---|---|---|---|")
    for name, own in deviations.items():
        ratio = paper.sum() / own.sum()
        # delta method on the mean squared deviations, paired by batch
        error = np.std(paper - ratio * own, ddof=1) / np.sqrt(count) / own.mean()
        trace = own.sum() / (count - 1)
        # |mean|^2 of the estimates contains trace / count by chance
        signal = max(float((stacks[name].mean(0) ** 2).sum()) - trace / count, 0.0)
        line = f"| {name} | {trace:.4g} | {ratio:.2f} | {error:.2f} | {np.sqrt(signal / trace):.3f} |"
        print(line, flush=True)


def speed(model: str | None) -> None:
    """CPU seconds of sampling and scoring prompts (their truncations embedded) against the plain loop."""
    language, encoder = load_language_model(model, device="cpu"), small_encoder()
    policies, settings = make_policies(language, K, rank=8), ReinforceSettings(seed=SEED)
    roll_out(policies, encoder, settings, meta_samples=1, purpose=PLAYING, episodes=1)  # loads and warms up
    rows = []
    for samples, episodes in ((1, 8), (8, 8)):
        began, wall = time.process_time(), time.perf_counter()
        rollout = roll_out(policies, encoder, settings, meta_samples=samples, purpose=PLAYING, episodes=episodes)
        for q, part in enumerate(rollout.samples):
            with policies.policy(q) as policy, torch.no_grad():
                log_probabilities(policy, part, batch_size=64)
        count = samples * episodes * K
        rows.append((f"batched, {count} prompts", count, time.process_time() - began, time.perf_counter() - wall))
    began, wall = time.process_time(), time.perf_counter()
    plain_loop(policies, encoder, settings, 8)
    rows.append(("plain loop, 32 prompts", 32, time.process_time() - began, time.perf_counter() - wall))
    plain = rows[-1][1] / rows[-1][2]
    print("| way | prompts a CPU second | times the plain loop | prompts a second of wall-clock time |")
    print("|---|---|---|---|")
    for name, count, seconds, wall in rows:
        print(f"| {name} | {count / seconds:.2f} | {count / seconds / plain:.1f} | {count / wall:.2f} |")


def plain_loop(policies: Any, encoder: Any, settings: ReinforceSettings, episodes: int) -> None:
    """``generate`` for each prompt, one encoder call for each prefix, one forward for each log-probability."""
    torch.manual_seed(SEED)
    for q in range(K):
        with policies.policy(q) as language, torch.no_grad():
            for _ in range(episodes):
                tokens = language.model.generate(
                    torch.tensor([[language.start]]),
                    attention_mask=torch.ones(1, 1, dtype=torch.long),
                    do_sample=True,
                    top_k=0,
                    max_new_tokens=settings.max_tokens,
                    pad_token_id=language.tokenizer.eos_token_id,
                )
                for prefix in word_prefixes(language.rules.text(tokens[0, 1:].tolist()), settings.words):
                    encoder.encode([prefix])
                logits = language.model(tokens[:, :-1]).logits.log_softmax(-1)
                logits.gather(-1, tokens[:, 1:, None]).sum()


def memory(model: str | None) -> None:
    """Bytes of weights, and the growth of the process's peak memory, of one model and of K policies that learn.

    At the size of the small model the peak is mostly what the libraries load on first use; read it at GPT-2's size.
    """
    print("| model | what | weights, MB | peak growth, MB |")
    print("|---|---|---|---|")
    for size in ("own", "gpt2"):
        one = None
        for what in ("one", "adapters", "copies"):
            command = [sys.executable, __file__, "memory-of", "--what", what, "--size", size]
            command += [] if model is None else ["--model", model]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            row = json.loads(done.stdout.strip().splitlines()[-1])
            one = row if one is None else one
            shares = [row[key] / one[key] for key in ("weights", "peak")]
            print(
                f"| {size} ({row['parameters'] / 1e6:.1f} M) | {what} | {row['weights']:.1f} ({shares[0]:.2f}x) "
                f"| {row['peak']:.0f} ({shares[1]:.2f}x) |"
            )


def memory_of(model: str | None, what: str, size: str) -> None:
    """One measurement, in a process of its own: sample and score 16 prompts; K policies also take their gradient."""
    base = load_language_model(model, device="cpu")
    settings = ReinforceSettings(seed=SEED, batch_size=8, max_tokens=16)
    texts = np.random.default_rng(SEED).normal(size=(2, 2, K, 8, 16))  # what embeddings would be, without an encoder
    before = _peak()
    if size == "gpt2":
        base = replace(base, model=random_gpt2(base))
    parameters = sum(p.numel() for p in base.model.parameters())
    if what == "one":
        weights = sum(p.numel() * p.element_size() for p in base.model.parameters())
        for _ in range(K):
            samples = draw(base, settings, 4)
            with torch.no_grad():
                log_probabilities(base, samples, batch_size=8)
    else:
        options: dict[str, Any] = {"rank": 8} if what == "adapters" else {}
        policies = make_policies(base, K, kind=what, **options)
        weights = policies.memory()
        parts = []
        for q in range(K):
            with policies.policy(q) as language:
                parts.append(draw(language, settings, 4))
        rewards = Rewards.of(TruncatedObjective(texts))
        accumulate_gradient(policies, _Drawn(parts), Credit().weights(rewards), settings, meta_samples=2)
    print(json.dumps({"weights": weights / 1e6, "peak": (_peak() - before) / 1e6, "parameters": parameters}))


class _Drawn:
    """The part of a rollout that the gradient reads."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples


def draw(language: LanguageModel, settings: ReinforceSettings, count: int) -> Any:
    """Some prompts."""
    return sample_prompts(
        language,
        count,
        words=settings.words,
        max_tokens=settings.max_tokens,
        generator=torch.Generator().manual_seed(1),
    )


def random_gpt2(base: LanguageModel) -> Any:
    """GPT-2 of 124 million random weights, with the given model's tokenizer in the first of its rows."""
    from transformers import GPT2Config, GPT2LMHeadModel  # after loading a model: that mends a broken torchvision

    end = base.tokenizer.eos_token_id
    return GPT2LMHeadModel(GPT2Config(bos_token_id=end, eos_token_id=end)).eval()


def _peak() -> float:
    """Peak resident memory of this process, bytes (Linux counts kB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["variance", "speed", "memory", "memory-of"])
    parser.add_argument("--model", help="folder or hub id of a language model")
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--what", default="one", choices=["one", "adapters", "copies"])
    parser.add_argument("--size", default="own", choices=["own", "gpt2"])
    arguments = parser.parse_args()
    if arguments.part == "variance":
        variance(arguments.model, arguments.batches)
    elif arguments.part == "speed":
        speed(arguments.model)
    elif arguments.part == "memory":
        memory(arguments.model)
    else:
        memory_of(arguments.model, arguments.what, arguments.size)


if __name__ == "__main__":
    main()
