"""A small run of the experiment with a language model as the user, for its tests."""

from __future__ import annotations

import numpy as np

from edpbrl_gym.experiments.llm.settings import STYLES as ALL_STYLES
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.features import save_precomputed
from edpbrl_gym.oracles.judge import JudgeSettings
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.small_vocabulary import write_vocabulary

STYLES = {"sunny": "Sunny style: bright light", "night": "Night style: dark, moonlight"}
EPISODES, STEPS, OPTIONS = 6, 3, 3
QUESTIONS = EPISODES * STEPS  # of one arm


def save_embeddings(folder, encoder):
    """Write a small vocabulary, and the embeddings of all its partial prompts and of the styles; return both paths."""
    words = write_vocabulary(folder / "words")
    tokens = load_vocabulary(words).tokens
    texts = [*STYLES.values(), *ALL_STYLES.values(), *(token for step in tokens for token in step)]
    prefixes = [""]
    for step in tokens:
        prefixes = [f"{prefix}, {token}".removeprefix(", ") for prefix in prefixes for token in step]
        texts += prefixes
    texts = list(dict.fromkeys(texts))
    path = folder / "embeddings.npz"
    save_precomputed(path, texts, np.asarray(encoder.encode(texts)))
    return words, path


def small_settings(words, embeddings, **more) -> LLMSettings:
    """Two styles, two arms, six episodes; two folds of one test episode."""
    given = {
        "styles": STYLES, "episodes": EPISODES, "train_sizes": (2, 5), "test_episodes": 1, "folds": 2,
        "num_options": OPTIONS, "iterations": 5, "lambdas": (1.0, 100.0), "vocabulary": str(words),
        "encoder": f"precomputed:{embeddings}", "seed": 1000,
    }  # fmt: skip
    return LLMSettings(**(given | more))


def judge_settings(base_url, **more) -> JudgeSettings:
    """A judge at a local server that reads texts."""
    given = {"model": "local", "style": "any", "base_url": base_url, "show": "texts", "concurrency": 3}
    return JudgeSettings(**(given | more))
