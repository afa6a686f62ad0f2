"""Prompts from a trained policy: a Stable-Baselines3 model that learned to write for a taste proposes candidates."""

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
from edpbrl_gym.personalize.search import Prompt, pick
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary

__all__ = ["PromptPolicy", "policy_prompts", "save_policy"]

_MARK = "edpbrl_gym"  # attribute of the saved model that says where it was trained
_INSTALL = 'pip install "edpbrl-gym[rl]"'
_BATCH = 1024  # prompts that the policy writes at once


def save_policy(model: Any, path: str | os.PathLike[str], env: Any) -> Path:
    """Save a PPO or MaskablePPO with a note of the vocabulary and the encoder that it was trained with.

    ``PromptPolicy`` then refuses another vocabulary, which the sizes alone would not always betray.

    Args:
        model: The trained model.
        path: File to write; ".zip" is appended where it is missing, as Stable-Baselines3 does.
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
    setattr(model, _MARK, note)
    target = Path(path)
    target = target if target.suffix == ".zip" else target.with_name(f"{target.name}.zip")
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as part, open(part, "wb") as file:
        model.save(file)
    return target


class PromptPolicy:
    """A trained PPO or MaskablePPO on ``edpbrl/PromptConstruction-v0``, from its file.

    Such a file holds pickled Python objects: load only files from people you trust.

    Args:
        path: A .zip of ``save_policy`` or of the model's own ``save``.
        vocabulary: The vocabulary of its environment (split and subset included).

    Attributes:
        noted: What ``save_policy`` noted, or None for a file without a note: then only the sizes could be compared.

    Raises:
        FileNotFoundError: There is no such file.
        ModuleNotFoundError: Stable-Baselines3 isn't installed.
        ValueError: It is no PPO or MaskablePPO, or it was trained on another vocabulary.
    """

    def __init__(self, path: str | os.PathLike[str], vocabulary: Vocabulary) -> None:
        source = Path(path)
        if not source.is_file():
            raise FileNotFoundError(
                f"Expected a trained policy at {source}, found none; train one with examples/personalize_policy.py"
            )
        self.vocabulary = vocabulary
        model = _load(source)
        self.noted: dict[str, Any] | None = getattr(model, _MARK, None)
        if self.noted is not None and self.noted["vocabulary_fingerprint"] != vocabulary.fingerprint:
            raise ValueError(
                f"Expected the vocabulary on which {source} was trained ({_flags(self.noted['arguments'])}), got "
                "another one; give the same options here"
            )
        self._padding = max(vocabulary.sizes)
        seen = np.asarray(getattr(model.observation_space, "nvec", ())).tolist()
        count = int(getattr(model.action_space, "n", -1))
        if seen != [self._padding + 1] * vocabulary.horizon or count != self._padding:
            raise ValueError(
                f"Expected a policy for {vocabulary.horizon} steps with up to {self._padding} tokens, as this "
                f"vocabulary has, got one for {len(seen)} steps with up to {count} tokens in {source}; give the "
                "vocabulary and the split on which it was trained"
            )
        self._policy = model.policy
        self._masked = type(model).__name__ == "MaskablePPO"

    def probabilities(self, observations: NDArray[np.int64], step: int) -> NDArray[np.float64]:
        """Return the probabilities of the step's tokens, shape (n, tokens of the step), for observations (n, H).

        A PPO knows no masks: its illegal actions stand for legal ones, as in its training behind ``LegalActions``.
        """
        import torch

        with torch.no_grad():
            tensors, _ = self._policy.obs_to_tensor(observations)
            found = self._policy.get_distribution(tensors).distribution.probs.double().cpu().numpy()
        size = self.vocabulary.sizes[step]
        if self._masked:
            legal = found[:, :size]
        else:
            stands_for = legal_actions(np.arange(self._padding) < size)
            legal = np.stack([np.bincount(stands_for, weights=row, minlength=size) for row in found])
        total = legal.sum(axis=1, keepdims=True)
        # without its masks a policy may put everything on tokens that the step hasn't got
        return np.where(total > 0, legal / np.where(total > 0, total, 1.0), 1.0 / legal.shape[1])

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the tokens of ``count`` prompts, shape (count, H), each drawn from the policy's probabilities."""
        done = []
        for start in range(0, check_count(count, "count"), _BATCH):
            tokens = np.full((min(_BATCH, count - start), self.vocabulary.horizon), self._padding, dtype=np.int64)
            for step in range(self.vocabulary.horizon):
                cumulative = np.cumsum(self.probabilities(tokens, step), axis=1)
                drawn = (cumulative < rng.random((len(tokens), 1)) * cumulative[:, -1:]).sum(axis=1)
                tokens[:, step] = np.minimum(drawn, self.vocabulary.sizes[step] - 1)
            done.append(tokens)
        return np.concatenate(done)


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
        policy: Writes the candidates.
        encoder: The encoder with which theta was estimated.
        theta: The taste, shape (d,).
        rng: Of the draws.
        count: Prompts wanted; fewer come back where fewer different ones were drawn.
        samples: Candidates that are drawn.
        base: Text in place of the first token that the policy chose; the policy's later choices were made after its
            own first token (train on a vocabulary whose first step is the base alone to have them made after it).
        per_base: At most so many of the prompts begin with the same token; without effect with a fixed ``base``.

    Returns:
        The best of the candidates, best first.

    Raises:
        ValueError: theta's dimension isn't the encoder's, or a count is below 1.
    """
    taste = check_array(
        theta, "theta", shape=(encoder.dimension,), hint=f"it must have been estimated with {encoder.name}"
    )
    check_count(count, "count")
    check_count(per_base, "per_base")
    drawn = policy.sample(check_count(samples, "samples"), rng)
    texts: dict[str, tuple[int, ...]] = {}
    for chosen in drawn.tolist():
        words = [policy.vocabulary.tokens[step][token] for step, token in enumerate(chosen)]
        if base is not None:
            words[0] = base.strip()
        texts.setdefault(SEPARATOR.join(words), tuple(chosen if base is None else chosen[1:]))
    candidates = list(texts)
    scores = encoder.encode(candidates).astype(np.float64) @ taste
    tokens = list(texts.values())
    keep = pick(scores, tokens, count, per_base if base is None else None)
    return [Prompt(candidates[index], float(scores[index]), tokens[index]) for index in keep]


def _load(source: Path) -> Any:
    """The model of a file, PPO or MaskablePPO by what the file says."""
    try:
        from sb3_contrib import MaskablePPO
        from stable_baselines3 import PPO
        from stable_baselines3.common.policies import ActorCriticPolicy
        from stable_baselines3.common.save_util import load_from_zip_file
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Expected Stable-Baselines3 to load a policy, got no package {error.name!r}; run: {_INSTALL}",
            name=error.name,
        ) from error
    try:
        data, _, _ = load_from_zip_file(source, device="cpu")
        kind = (data or {}).get("policy_class")
        masked = isinstance(kind, type) and kind.__module__.startswith("sb3_contrib")
        if not (isinstance(kind, type) and (masked or issubclass(kind, ActorCriticPolicy))):
            raise ValueError(f"a policy of the class {getattr(kind, '__name__', kind)}")
        return (MaskablePPO if masked else PPO).load(source, device="cpu")
    except Exception as error:  # zip, JSON, pickle and torch all have their own
        text = " ".join(str(error).split())[:200]
        raise ValueError(
            f"Expected a PPO or MaskablePPO saved by Stable-Baselines3 in {source}, got {text or type(error).__name__}"
        ) from error


def _flags(arguments: Mapping[str, Any]) -> str:
    """The options of ``edpbrl personalize`` that give the vocabulary of an environment's arguments."""
    names = {"vocabulary": "--vocabulary", "split": "--split", "split_seed": "--seed"}
    names |= {"tokens_per_step": "--tokens-per-step", "subset_seed": "--subset-seed"}
    found = [f"{flag} {arguments[name]}" for name, flag in names.items() if arguments.get(name) is not None]
    return " ".join(found) or "the whole built-in one"
