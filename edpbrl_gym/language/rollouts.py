"""Prompts of all policies for one estimate of the objective, and the embeddings of their truncations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.features import TextEncoder, as_encoder
from edpbrl_gym.language.policies import Policies
from edpbrl_gym.language.sampling import Samples, sample_prompts
from edpbrl_gym.language.settings import ReinforceSettings

if TYPE_CHECKING:
    import torch

__all__ = ["EVALUATING", "PLAYING", "TRAINING", "Rollout", "embed", "random_stream", "roll_out"]

# purposes of random streams, which have separate streams
TRAINING, EVALUATING, PLAYING = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Rollout:
    """M meta-samples of T trajectories of K prompts."""

    samples: list[Samples]  # one for each policy; row m T + t is trajectory t of meta-sample m
    texts: list[list[list[str]]]  # the H truncated prompts of every prompt, texts[q][m T + t][h]
    features: NDArray[np.float32]  # their embeddings, (M, T, K, H, d)


def random_stream(seed: int, purpose: int, iteration: int, policy: int) -> torch.Generator:
    """Return a generator on the CPU for this combination.

    All four numbers decide the seed (the 0 after them keeps the streams of recorded runs), of which torch's CPU
    generator keeps 32 bits: two combinations share a stream with probability 2^-32, and are independent otherwise.
    Since a stream is a function of its use, a resumed run draws the same prompts as an uninterrupted one.
    """
    import torch

    entropy = np.random.SeedSequence([seed, purpose, iteration, policy, 0]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(entropy >> 1))


def embed(encoder: TextEncoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the embeddings of texts, (n, d); equal texts are encoded once, all in one call."""
    row: dict[str, int] = {}
    rows = [row.setdefault(text, len(row)) for text in texts]
    return np.asarray(as_encoder(encoder).encode(list(row)), dtype=np.float32)[rows]


def roll_out(
    policies: Policies,
    encoder: TextEncoder,
    settings: ReinforceSettings,
    *,
    meta_samples: int,
    purpose: int,
    iteration: int = 0,
    base: bool = False,
    episodes: int | None = None,
) -> Rollout:
    """Sample M T prompts from every policy and embed their truncations.

    T is ``episodes``, or that of the settings. ``purpose`` (``TRAINING``, ``EVALUATING``, ``PLAYING``) and the
    iteration name the random streams. With ``base`` every policy's prompts come, with its stream, from the base model.
    """
    trajectories = settings.episodes if episodes is None else episodes
    samples = []
    for q in range(policies.num_options):
        with policies.base_model() if base else policies.policy(q) as language:
            prompts = sample_prompts(
                language,
                meta_samples * trajectories,
                words=settings.words,
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
                generator=random_stream(settings.seed, purpose, iteration, q),
                batch_size=settings.batch_size,
            )
            samples.append(prompts)
    texts = [part.prefixes() for part in samples]
    flat = embed(encoder, [text for policy in texts for prompt in policy for text in prompt])
    features = flat.reshape(policies.num_options, meta_samples, trajectories, settings.words, -1)
    return Rollout(samples, texts, np.moveaxis(features, 0, 2))
