"""What the single and the vector prompt environment share: vocabulary, spaces, masks, texts and features."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats32, Indices
from edpbrl_gym._validation import check_count
from edpbrl_gym.envs.bases import PromptEnvironment, WritingModel
from edpbrl_gym.envs.common import check_encoder_argument, check_jsonable, check_observations
from edpbrl_gym.envs.spaces import LegalDiscrete
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary, load_vocabulary

__all__ = ["PromptAttributes", "PromptModel"]


class PromptModel(WritingModel):
    """Prompt construction over a vocabulary, for any number of lanes at once.

    Observations are integer arrays (n, H): the token chosen at each step, and V (the padding) where none is chosen yet.

    Args:
        vocabulary: Name of a built-in vocabulary ("images", "interiors") or folder of token files; None: "images".
        order: File names (without .txt) in the order of the steps; None is the vocabulary's own order.
        encoder: What ``load_encoder`` takes, such as "minilm". Loaded on first use of a feature.
        split: "train" or "test" keeps that part of every file; None keeps all.
        split_seed: Seed of the split.
        tokens_per_step: Draw a sub-vocabulary of at most this many tokens per step; None keeps all.
        subset_seed: Seed of that draw.

    Raises:
        TypeError: If an argument is of a wrong type or can't be written to the environment's spec as JSON.
        ValueError: If an argument is out of range, ``split`` or ``encoder`` is unknown, or the vocabulary can't be
            loaded.
    """

    def __init__(
        self,
        *,
        vocabulary: str | None = None,
        order: Sequence[str] | None = None,
        encoder: str = "minilm",
        split: str | None = None,
        split_seed: int = 0,
        tokens_per_step: int | None = None,
        subset_seed: int = 0,
    ) -> None:
        check_jsonable(
            vocabulary=vocabulary,
            order=order,
            encoder=encoder,
            split=split,
            split_seed=split_seed,
            tokens_per_step=tokens_per_step,
            subset_seed=subset_seed,
        )
        if vocabulary is not None and not isinstance(vocabulary, str):
            raise TypeError(f"Expected vocabulary as a folder's path or None, got {vocabulary!r}.")
        self.encoder_spec = check_encoder_argument(encoder)
        check_count(split_seed, "split_seed", minimum=0)
        check_count(subset_seed, "subset_seed", minimum=0)
        if split not in (None, "train", "test"):
            raise ValueError(f'Expected split to be "train", "test" or None, got {split!r}.')
        words = load_vocabulary(vocabulary, order=order)
        if split is not None:
            words = words.split(split_seed)[0 if split == "train" else 1]
        if tokens_per_step is not None:
            words = words.subset(check_count(tokens_per_step, "tokens_per_step"), subset_seed)
        self.vocabulary: Vocabulary = words
        self.sizes: Indices = np.array(words.sizes, dtype=np.int64)
        self.horizon = int(self.sizes.size)
        self.padding = int(self.sizes.max())
        self.offsets: Indices = np.concatenate(([0], np.cumsum(self.sizes)))
        self._masks: NDArray[np.int8] = (np.arange(self.padding) < np.append(self.sizes, 0)[:, None]).astype(np.int8)
        self.mdp = PromptMDP(tuple(int(size) for size in self.sizes))
        self._features: Floats32 | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the model and the features out of a pickle; the copy loads them again on first use."""
        return {**self.__dict__, "_encoder": None, "_features": None}

    def action_space(self) -> LegalDiscrete:
        """Return a new action space over 0..V-1; every step allows the actions below the size of the smallest file."""
        return LegalDiscrete(self.padding, np.arange(self.sizes.min()))

    def use_encoder(self, encoder: TextEncoder) -> None:
        """Take a live encoder, see the base class; features computed before are computed again with it."""
        super().use_encoder(encoder)
        self._features = None

    @property
    def features(self) -> Floats32:
        """Embedding of every token alone, shape (N, d), in the row order of the MDP; computed on first use."""
        if self._features is None:
            self._features = self.encoder.encode(self.vocabulary.all_tokens)
        return self._features

    def masks(self, steps: ArrayLike) -> NDArray[np.int8]:
        """Legal actions at each lane's step, int8 of shape (n, V); all zero for a complete prompt."""
        return self._masks[np.asarray(steps, dtype=np.int64)]

    def mdp_step(self, observations: ArrayLike) -> Indices:
        """Number of tokens chosen so far, shape (n,), H for a complete prompt."""
        return self._num_chosen(self._lanes(observations))

    def mdp_state(self, observations: ArrayLike) -> Indices:
        """State of the MDP, shape (n,): the step, as the prompt MDP's state is its step."""
        return self.mdp_step(observations)

    def checked(self, observations: ArrayLike) -> Indices:
        """Return observations, one or many, as integers (n, H), else a ValueError."""
        lanes = self._lanes(observations)
        outside = (lanes >= self.sizes) & (np.arange(self.horizon) < self._num_chosen(lanes)[:, None])
        if outside.any():
            self.vocabulary.prompt(lanes[int(np.argmax(outside.any(axis=1)))])  # raises
        return lanes

    def texts(self, observations: Indices) -> list[str]:
        """``trajectory_texts`` of checked observations."""
        tokens, steps = self.vocabulary.tokens, self._num_chosen(observations)
        lanes = zip(observations.tolist(), steps.tolist(), strict=True)
        return [SEPARATOR.join(map(operator.getitem, tokens, lane[:step])) for lane, step in lanes]

    def state_texts(self, observations: ArrayLike) -> list[str]:
        """Token chosen last in each lane."""
        tokens = self.vocabulary.all_tokens
        return [tokens[row] for row in self._last_rows(observations)]

    def state_features(self, observations: ArrayLike) -> Floats32:
        """Embedding of the token chosen last in each lane, shape (n, d)."""
        return self.features[self._last_rows(observations)]

    def check_action(self, action: int, step: int, lane: int | None = None) -> None:
        """Raise a ValueError that says what the step allows if ``action`` isn't among it."""
        size = int(self.sizes[step])
        if not 0 <= action < size:
            where = "" if lane is None else f" in lane {lane}"
            raise ValueError(
                f"Expected an action in 0..{size - 1} at step {step} ({self.vocabulary.names[step]!r} has {size} "
                f"tokens){where}, got {action}; use info['action_mask'] or action_masks() to see what is legal."
            )

    def _lanes(self, observations: ArrayLike) -> Indices:
        return check_observations(observations, self.horizon, self.padding, length="H")

    def _num_chosen(self, lanes: Indices) -> Indices:
        return np.asarray((lanes != self.padding).sum(axis=1))

    def _last_rows(self, observations: ArrayLike) -> Indices:
        lanes = self._lanes(observations)
        steps = self.mdp_step(lanes)
        if (steps == 0).any():
            raise ValueError(
                f"Expected at least one chosen token in every lane, lane {int(np.argmin(steps))} has none; "
                "ask for state features after a step."
            )
        return self.offsets[steps - 1] + lanes[np.arange(len(lanes)), steps - 1]


class PromptAttributes(PromptEnvironment):
    """What wrappers and agents ask of a prompt environment, answered by its ``PromptModel``."""

    model: PromptModel

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens of each step."""
        return self.model.vocabulary

    @property
    def mdp(self) -> PromptMDP:
        """The prompt MDP: state = step, action = token."""
        return self.model.mdp

    @property
    def features(self) -> Floats32:
        """Token embeddings, shape (N, d); computed on first use."""
        return self.model.features

    def mdp_state(self, observations: ArrayLike) -> Indices:
        """MDP state of each lane's observation, shape (n,)."""
        return self.model.mdp_state(observations)

    def mdp_step(self, observations: ArrayLike) -> Indices:
        """Step of each lane's observation, shape (n,)."""
        return self.model.mdp_step(observations)

    def state_texts(self, observations: ArrayLike) -> list[str]:
        """Token chosen last, one for each lane."""
        return self.model.state_texts(observations)

    def state_features(self, observations: ArrayLike) -> Floats32:
        """Embeddings of the tokens chosen last, shape (n, d)."""
        return self.model.state_features(observations)
