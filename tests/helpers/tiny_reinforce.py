"""Policies, an encoder and settings small enough that a run of REINFORCE takes a second."""

from __future__ import annotations

import hashlib

import numpy as np

from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.policies import make_policies
from edpbrl_gym.language.settings import ReinforceSettings

SMALL = "--num-options 2 --words 2 --meta-samples 2 --episodes 2".split()  # options of `edpbrl reproduce reinforce`


class HashEncoder:
    """A random unit vector for every text, the same in every process."""

    name = "hash"
    fingerprint = "hash"

    def __init__(self, dimension=6):
        self.dimension = dimension
        self.calls = []

    def encode(self, texts, *, progress=False):
        self.calls.append(list(texts))
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) for text in texts]
        rows = np.array([np.random.default_rng(seed).normal(size=self.dimension) for seed in seeds])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def tiny_policies(folder, policies=2, **options):
    return make_policies(load_language_model(folder, device="cpu"), policies, **{"rank": 2, "noise": 0.02, **options})


def tiny_settings(**changes):
    chosen = dict(
        iterations=4, meta_samples=4, episodes=2, words=3, max_tokens=6, evaluation_samples=2, learning_rate=0.05
    )
    return ReinforceSettings(**{**chosen, **changes})
