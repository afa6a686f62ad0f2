"""Prompts of all policies for one estimate of the objective, and the embeddings of their truncations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.features import TextEncoder
from edpbrl_gym.language.policy_set import Policies
from edpbrl_gym.language.sampling import Samples, sample_prompts
from edpbrl_gym.language.settings import ReinforceSettings

if TYPE_CHECKING:
    import torch

__all__ = ["EVALUATING", "PLAYING", "TRAINING", "Rollout", "embed", "mixed_precision", "random_stream", "roll_out"]

# purposes of random streams, which have separate streams
TRAINING, EVALUATING, PLAYING = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Rollout:
    """M meta-samples of T trajectories of K prompts.

    Attributes:
        samples: One for each policy; row m T + t is trajectory t of meta-sample m.
        texts: The H truncated prompts of every prompt, ``texts[q][m T + t][h]``.
        features: Their embeddings, float32 (M, T, K, H, d).
    """

    samples: list[Samples]
    texts: list[list[list[str]]]
    features: NDArray[np.float32]


def random_stream(seed: int, purpose: int, iteration: int, policy: int, process: int) -> torch.Generator:
    """Return a generator on the CPU for this combination.

    All five numbers decide the seed, of which torch's CPU generator keeps 32 bits: two different combinations have the
    same stream with probability 2^-32, and are independent otherwise. Since a stream is a function of its use, a run
    resumed from a checkpoint draws the same prompts as an uninterrupted one.
    """
    import torch

    entropy = np.random.SeedSequence([seed, purpose, iteration, policy, process]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(entropy >> 1))


def mixed_precision(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Context of the forward passes: bfloat16 autocast on CUDA for "bf16", nothing for "float32".

    Raises:
        ValueError: If "bf16" is asked for on another device.
    """
    if precision == "float32":
        return nullcontext()
    if device.type != "cuda":
        raise ValueError(f"Expected a model on CUDA for precision 'bf16', got one on {device}; use 'float32' there")
    import torch

    return torch.autocast("cuda", dtype=torch.bfloat16)


def embed(encoder: TextEncoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the embeddings of texts, (n, d); equal texts are encoded once, all in one call."""
    row: dict[str, int] = {}
    rows = [row.setdefault(text, len(row)) for text in texts]
    return np.asarray(encoder.encode(list(row)), dtype=np.float32)[rows]


def roll_out(
    policies: Policies,
    encoder: TextEncoder,
    settings: ReinforceSettings,
    *,
    meta_samples: int,
    purpose: int,
    iteration: int = 0,
    process: int = 0,
    base: bool = False,
    episodes: int | None = None,
) -> Rollout:
    """Sample M T prompts from every policy and embed their truncations.

    Args:
        policies: The K policies.
        encoder: Embeds the truncated prompts.
        settings: Words, tokens, temperature, batch size, precision and seed are used.
        meta_samples: M.
        purpose: Which random streams: ``TRAINING``, ``EVALUATING`` or ``PLAYING``.
        iteration: Part of the stream.
        process: Part of the stream.
        base: Sample every policy's prompts, with its stream, from the base model.
        episodes: T; None is that of the settings.
    """
    trajectories = settings.episodes if episodes is None else episodes
    samples = []
    for q in range(policies.num_options):
        with policies.base_model() if base else policies.policy(q) as language:
            with mixed_precision(settings.precision, language.device):
                prompts = sample_prompts(
                    language,
                    meta_samples * trajectories,
                    words=settings.words,
                    max_tokens=settings.max_tokens,
                    temperature=settings.temperature,
                    generator=random_stream(settings.seed, purpose, iteration, q, process),
                    batch_size=settings.batch_size,
                )
            samples.append(prompts)
    texts = [part.prefixes() for part in samples]
    flat = embed(encoder, [text for policy in texts for prompt in policy for text in prompt])
    features = flat.reshape(policies.num_options, meta_samples, trajectories, settings.words, -1)
    return Rollout(samples, texts, np.moveaxis(features, 0, 2))
