"""REINFORCE on language models: variance of the credits, speed of sampling, memory of K policies: docs/reinforce.md.

    python -m benchmarks.reinforce variance --model FOLDER --batches 24   # a few minutes on one core
    python -m benchmarks.reinforce speed --model FOLDER                   # about a minute of CPU time
    python -m benchmarks.reinforce memory --model FOLDER                  # one to two minutes of CPU time
    python -m benchmarks.reinforce memory --model FOLDER --size gpt2      # GPT-2 124M of random weights: long

Without --model the project's own prompt model is used. Times are CPU time of the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.common import make_parser
from benchmarks.solvers.measures import peak_memory
from edpbrl_gym.features import load_encoder
from edpbrl_gym.features.memo import MemoEncoder
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


def variance(model: str | None, batches: int) -> None:
    """Trace of the covariance of the gradient of all adapters at their start, by credit, from the same batches."""
    policies = make_policies(load_language_model(model, device="cpu"), K, rank=8)
    encoder, settings = MemoEncoder(load_encoder("minilm", cache=False)), ReinforceSettings(seed=SEED)
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
    """CPU seconds of sampling and scoring prompts, their truncations embedded, against the plain loop.

    Both ways stop at the same word budget and embed H truncations of every prompt.
    """
    language, encoder = load_language_model(model, device="cpu"), load_encoder("minilm", cache=False)
    policies, settings = make_policies(language, K, rank=8), ReinforceSettings(seed=SEED)
    roll_out(policies, encoder, settings, meta_samples=1, purpose=PLAYING, episodes=1)  # loads and warms up
    print(
        "| prompts | way | mean words | truncations | prompts a CPU second | a wall-clock second | ratio of CPU time |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for samples, episodes in ((1, 8), (8, 8)):
        found = {}
        for way, run in (("batched", batched), ("plain loop", plain_loop)):
            began, wall = time.process_time(), time.perf_counter()
            texts, prefixes = run(policies, encoder, settings, samples, episodes)
            found[way] = (texts, prefixes, time.process_time() - began, time.perf_counter() - wall)
        for way, (texts, prefixes, seconds, elapsed) in found.items():
            count, words = len(texts), np.mean([len(text.split()) for text in texts])
            print(
                f"| {count} | {way} | {words:.2f} | {prefixes} | {count / seconds:.2f} | {count / elapsed:.2f} "
                f"| {found['plain loop'][2] / seconds:.1f} |",
                flush=True,
            )


def batched(
    policies: Any, encoder: Any, settings: ReinforceSettings, samples: int, episodes: int
) -> tuple[list[str], int]:
    """The library's way; returns the prompts, and how many truncations have an embedding."""
    rollout = roll_out(policies, encoder, settings, meta_samples=samples, purpose=PLAYING, episodes=episodes)
    for q, part in enumerate(rollout.samples):
        with policies.policy(q) as policy, torch.no_grad():
            log_probabilities(policy, part, batch_size=settings.batch_size)
    return [text for part in rollout.samples for text in part.texts], int(np.prod(rollout.features.shape[:-1]))


def plain_loop(
    policies: Any, encoder: Any, settings: ReinforceSettings, samples: int, episodes: int
) -> tuple[list[str], int]:
    """``generate`` for each prompt, one encoder call for each truncation, one forward for each log-probability."""
    torch.manual_seed(SEED)
    texts, embedded = [], 0
    for q in range(K):
        with policies.policy(q) as language, torch.no_grad():
            budget = word_budget(language.rules, settings.words)
            for _ in range(samples * episodes):
                tokens = language.model.generate(
                    torch.tensor([[language.start]]),
                    attention_mask=torch.ones(1, 1, dtype=torch.long),
                    do_sample=True,
                    top_k=0,
                    max_new_tokens=settings.max_tokens,
                    pad_token_id=language.tokenizer.eos_token_id,
                    stopping_criteria=budget,
                )
                logits = language.model(tokens[:, :-1]).logits.log_softmax(-1)
                logits.gather(-1, tokens[:, 1:, None]).sum()
                written = tokens[0, 1:].tolist()
                if language.rules.state(written)[0] > settings.words:
                    written.pop()  # the token that begins word H + 1 is not part of the prompt
                texts.append(language.rules.text(written))
                for prefix in word_prefixes(texts[-1], settings.words):
                    encoder.encode([prefix])
                    embedded += 1
    return texts, embedded


def word_budget(rules: Any, words: int) -> Any:
    """Stops ``generate`` where the word budget ends a prompt."""
    from transformers import StoppingCriteria, StoppingCriteriaList

    class Budget(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
            states = [rules.state(row[1:].tolist()) for row in input_ids]
            return torch.tensor(
                [num_words > words or bool(rules.complete(num_words, inside, words)) for num_words, inside in states]
            )

    return StoppingCriteriaList([Budget()])


def memory(model: str | None, size: str) -> None:
    """Bytes of weights, and the growth of the process's peak memory, in one iteration at the default settings.

    That is M x T = 64 prompts of every policy, 32 tokens at most, batches of 64. "frozen" is one model that samples and
    scores all K x 64 prompts; "learning" is one model that also takes its full gradient on them; adapters and copies
    are K policies that learn. At the size of the small model the peak is mostly what the libraries load on first use.
    """
    print("| model | what | weights, MB | peak growth, MB | times learning's |")
    print("|---|---|---|---|---|", flush=True)
    reference = None
    for what in ("learning", "frozen", "adapters", "copies"):
        command = [sys.executable, "-m", "benchmarks.reinforce", "memory-of", "--what", what, "--size", size]
        command += [] if model is None else ["--model", model]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout.strip().splitlines()[-1])
        reference = row if reference is None else reference
        shares = [row[key] / reference[key] for key in ("weights", "peak")]
        print(
            f"| {size} ({row['parameters'] / 1e6:.1f} M) | {what} | {row['weights']:.1f} | {row['peak']:.0f} "
            f"| {shares[0]:.2f} (weights), {shares[1]:.2f} (peak) |",
            flush=True,
        )


def memory_of(model: str | None, what: str, size: str) -> None:
    """One measurement, in a process of its own."""
    base = load_language_model(model, device="cpu")
    settings = ReinforceSettings(seed=SEED)
    shape = (settings.meta_samples, settings.episodes, K, settings.words, 384)
    texts = np.random.default_rng(SEED).normal(size=shape)  # what embeddings would be, without an encoder
    weights = Credit(settings.credit).weights(Rewards.of(TruncatedObjective(texts), Credit(settings.credit).parts))
    before = peak_memory()
    if size == "gpt2":
        base = replace(base, model=random_gpt2(base))
    parameters = sum(p.numel() for p in base.model.parameters())
    count = settings.meta_samples * settings.episodes
    if what in ("frozen", "learning"):
        held = sum(p.numel() * p.element_size() for p in base.model.parameters())
        base.model.requires_grad_(what == "learning")
        parts = [draw(base, settings, count) for _ in range(K)]
        for q, samples in enumerate(parts):
            own = torch.from_numpy(np.array(weights[:, :, q])).reshape(count, -1).gather(1, samples.word - 1)
            for start in range(0, count, settings.batch_size):
                rows = slice(start, start + settings.batch_size)
                with torch.set_grad_enabled(what == "learning"):
                    loss = -(log_probabilities(base, samples.select(rows)) * own[rows].float()).sum()
                if what == "learning":
                    loss.backward()
        learnt = list(base.model.parameters())
    else:
        options: dict[str, Any] = {"rank": 8} if what == "adapters" else {}
        policies = make_policies(base, K, kind=what, **options)
        held, learnt, parts = policies.memory(), policies.parameters(), []
        for q in range(K):
            with policies.policy(q) as language:
                parts.append(draw(language, settings, count))
        accumulate_gradient(policies, _Drawn(parts), weights, settings, meta_samples=settings.meta_samples)
    if what != "frozen":
        torch.optim.SGD(learnt, lr=settings.learning_rate).step()
    print(json.dumps({"weights": held / 1e6, "peak": (peak_memory() - before) / 1e6, "parameters": parameters}))


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


def main() -> None:
    """Run one of the measurements."""
    parser = make_parser(__doc__)
    parser.add_argument("part", choices=["variance", "speed", "memory", "memory-of"])
    parser.add_argument("--model", help="folder or hub id of a language model")
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--what", default="frozen", choices=["frozen", "learning", "adapters", "copies"])
    parser.add_argument("--size", default="own", choices=["own", "gpt2"])
    arguments = parser.parse_args()
    if arguments.part == "variance":
        variance(arguments.model, arguments.batches)
    elif arguments.part == "speed":
        speed(arguments.model)
    elif arguments.part == "memory":
        memory(arguments.model, arguments.size)
    else:
        memory_of(arguments.model, arguments.what, arguments.size)


if __name__ == "__main__":
    main()
