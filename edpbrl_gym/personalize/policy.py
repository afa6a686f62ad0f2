"""Prompts from a trained policy: a Stable-Baselines3 model trained for a taste proposes the candidates."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._base_environment import base_environment
from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_array, check_count
from edpbrl_gym.envs.wrappers.legal_actions import legal_actions
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.personalize.policy_file import NOTE, read_policy
from edpbrl_gym.personalize.search import Prompt, pick
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary

__all__ = ["PromptPolicy", "policy_prompts", "save_policy"]

_BATCH = 1024  # prompts per batch of the policy


def save_policy(model: Any, path: str | os.PathLike[str], env: Any) -> Path:
    """Save a PPO or MaskablePPO with a note of the vocabulary and the encoder of its training.

    ``PromptPolicy`` then rejects any other vocabulary, even one of the same sizes.

    Args:
        model: The trained model.
        path: File to write; ".zip" is appended if missing, as Stable-Baselines3 does.
        env: The environment of the training, wrapped or not.

    Returns:
        The file.
    """
    base = base_environment(env)
    spec = getattr(base, "spec", None)
    note = {
        "vocabulary_fingerprint": base.vocabulary.fingerprint,
        "encoder": base.encoder.name,
        "encoder_fingerprint": base.encoder.fingerprint,
        "arguments": dict(spec.kwargs) if spec is not None else {},
    }
    setattr(model, NOTE, note)
    target = Path(path)
    target = target if target.suffix == ".zip" else target.with_name(f"{target.name}.zip")
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary, open(temporary, "wb") as file:
        model.save(file)
    return target


class PromptPolicy:
    """A trained PPO or MaskablePPO on ``edpbrl/PromptConstruction-v0``, from its file.

    Such a file contains pickled Python objects. They are not read: the network is made again from its weights and the
    file's plain text (`policy_file`), so the file may come from anybody. Stable-Baselines3 is not needed.

    Args:
        path: A .zip of ``save_policy`` or of the model's own ``save``.
        vocabulary: The vocabulary of its environment (after split and subset).

    Attributes:
        note: The note of ``save_policy``, or None for a file without one: then only the sizes are compared.

    Raises:
        FileNotFoundError: There is no such file.
        ModuleNotFoundError: torch isn't installed.
        ValueError: The model is not a PPO or MaskablePPO with "MlpPolicy", or it was trained on another vocabulary.
    """

    def __init__(self, path: str | os.PathLike[str], vocabulary: Vocabulary) -> None:
        source = Path(path)
        if not source.is_file():
            raise FileNotFoundError(
                f"Expected a trained policy at {source}, found none; train one with examples/personalize_policy.py"
            )
        self.vocabulary = vocabulary
        self._policy = read_policy(source)
        self.note: dict[str, Any] | None = self._policy.note
        if self.note is not None and self.note["vocabulary_fingerprint"] != vocabulary.fingerprint:
            raise ValueError(
                f"Expected the vocabulary on which {source} was trained ({_flags(self.note['arguments'])}), got "
                "another one; give the same options here"
            )
        self._padding = max(vocabulary.sizes)
        horizon, rest = divmod(self._policy.inputs, self._policy.actions + 1)
        if rest or (horizon, self._policy.actions) != (vocabulary.horizon, self._padding):
            raise ValueError(
                f"Expected a policy for {vocabulary.horizon} steps with up to {self._padding} tokens, as this "
                f"vocabulary has, got one for {horizon} steps with up to {self._policy.actions} tokens in {source}; "
                "give the vocabulary and the split on which it was trained"
            )

    def probabilities(self, observations: NDArray[np.int64], step: int) -> NDArray[np.float64]:
        """Return the probabilities of the step's tokens, shape (n, tokens of the step), for observations (n, H).

        PPO has no action masks: its illegal actions stand for legal ones, as in its training with ``LegalActions``.
        """
        probabilities = self._policy.probabilities(observations, self._padding + 1)
        size = self.vocabulary.sizes[step]
        if self._policy.masked:
            legal = probabilities[:, :size]
        else:
            stands_for = legal_actions(np.arange(self._padding) < size)
            legal = np.stack([np.bincount(stands_for, weights=row, minlength=size) for row in probabilities])
        total = legal.sum(axis=1, keepdims=True)
        # a policy without masks may put all probability on tokens that do not exist at this step
        return np.where(total > 0, legal / np.where(total > 0, total, 1.0), 1.0 / legal.shape[1])

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the tokens of ``count`` prompts, shape (count, H), each drawn from the policy's probabilities."""
        batches = []
        for start in range(0, check_count(count, "count"), _BATCH):
            tokens = np.full((min(_BATCH, count - start), self.vocabulary.horizon), self._padding, dtype=np.int64)
            for step in range(self.vocabulary.horizon):
                cumulative = np.cumsum(self.probabilities(tokens, step), axis=1)
                tokens_of_step = (cumulative < rng.random((len(tokens), 1)) * cumulative[:, -1:]).sum(axis=1)
                tokens[:, step] = np.minimum(tokens_of_step, self.vocabulary.sizes[step] - 1)
            batches.append(tokens)
        return np.concatenate(batches)


def policy_prompts(
    policy: PromptPolicy,
    encoder: TextEncoder,
    theta: ArrayLike,
    rng: np.random.Generator,
    *,
    count: int = 10,
    samples: int = 256,
    base: str | None = None,
    per_base: int = 1,
) -> list[Prompt]:
    """Let a policy write prompts and rank them by theta . phi(prompt).

    Args:
        policy: Policy that writes the candidates.
        encoder: The encoder with which theta was estimated.
        theta: The taste, shape (d,).
        rng: Source of randomness.
        count: Number of prompts; fewer are returned if fewer different ones are drawn.
        samples: Number of candidates to draw.
        base: Text that replaces the first token; the policy has still chosen the later tokens after its own first one
            (to avoid this, train on a vocabulary whose first step is the base alone).
        per_base: Maximum number of prompts with the same first token; without effect with a fixed ``base``.

    Returns:
        The best of the candidates, best first.

    Raises:
        ValueError: Theta's dimension isn't the encoder's, or a count is below 1.
    """
    taste = check_array(
        theta, "theta", shape=(encoder.dimension,), hint=f"it must have been estimated with {encoder.name}"
    )
    check_count(count, "count")
    check_count(per_base, "per_base")
    drawn_tokens = policy.sample(check_count(samples, "samples"), rng)
    texts: dict[str, tuple[int, ...]] = {}
    for prompt_tokens in drawn_tokens.tolist():
        words = [policy.vocabulary.tokens[step][token] for step, token in enumerate(prompt_tokens)]
        if base is not None:
            words[0] = base.strip()
        texts.setdefault(SEPARATOR.join(words), tuple(prompt_tokens if base is None else prompt_tokens[1:]))
    candidates = list(texts)
    scores = encoder.encode(candidates).astype(np.float64) @ taste
    tokens = list(texts.values())
    keep = pick(scores, tokens, count, per_base if base is None else None)
    return [Prompt(candidates[index], float(scores[index]), tokens[index]) for index in keep]


def _flags(arguments: Mapping[str, Any]) -> str:
    """Options of ``edpbrl personalize`` for the vocabulary of an environment's arguments."""
    names = {"vocabulary": "--vocabulary", "split": "--split", "split_seed": "--seed"}
    names |= {"tokens_per_step": "--tokens-per-step", "subset_seed": "--subset-seed"}
    flags = [f"{flag} {arguments[name]}" for name, flag in names.items() if arguments.get(name) is not None]
    return " ".join(flags) or "the whole built-in one"
