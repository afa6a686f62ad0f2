"""How well a linear model of the next step predicts embeddings of partial prompts: docs/adaptive.md.

OMP_NUM_THREADS=2 python -m benchmarks.next_step    # about two minutes on two cores
"""

from __future__ import annotations

import numpy as np

from edpbrl_gym.features import load_encoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.planners import ComposedFeatures
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

SPLITS = (3, 4)
PROMPTS = (60, 100, 140, 200, 300)
HELD_OUT = 150


def explained(words: Vocabulary, model: ComposedFeatures, prompts: np.ndarray, memo: MemoEncoder) -> list[float]:
    """Share of the variance of held-out prompts (n, H) that the model explains, for each step after the first."""
    texts = [[words.prompt(row[: end + 1]) for row in prompts.tolist()] for end in range(prompts.shape[1])]
    shares = []
    for step in range(1, prompts.shape[1]):
        target = memo.encode(texts[step]).astype(float)
        predicted = model.tokens(step)[prompts[:, step]] + model.offsets(prompts[:, :step])
        rest, whole = target - predicted, target - target.mean(axis=0)
        shares.append(1.0 - float(np.vdot(rest, rest) / np.vdot(whole, whole)))
    return shares


def main() -> None:
    """Print the shares for models that were fitted on more and more prompts."""
    encoder = load_encoder("minilm", cache=False)
    for split in SPLITS:
        words, _ = load_vocabulary(None).split(split)
        memo = MemoEncoder(encoder)
        rows = memo.encode(words.all_tokens).astype(float)
        rng = np.random.default_rng(99 + split)
        prompts = np.stack([rng.integers(size, size=HELD_OUT) for size in words.sizes], axis=1)
        for count in PROMPTS:
            model = ComposedFeatures(words, rows, memo, prompts=count, seed=split)
            shares = explained(words, model, prompts, memo)
            steps = "  ".join(f"{share:.3f}" for share in shares)
            print(f"split {split}, {count:3d} prompts: {steps}, mean {np.mean(shares):.4f}", flush=True)


if __name__ == "__main__":
    main()
