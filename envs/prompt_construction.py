"""The prompt-construction environment: a text-to-image prompt, one vocabulary file at a time."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats32, Indices
from edpbrl_gym._validation import check_count
from edpbrl_gym.envs.base import FromModel, LegalDiscrete, PromptLanes, SingleLane, WritingModel
from edpbrl_gym.envs.common import check_encoder_argument, check_jsonable, check_observations
from edpbrl_gym.features import TextEncoder, embed_tokens
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary import SEPARATOR, load_vocabulary

__all__ = ["PromptConstructionEnv", "PromptConstructionVectorEnv", "PromptModel"]


class PromptModel(WritingModel):
    """Prompt construction over a vocabulary, for any number of lanes at once.

    Observations are integer arrays (n, H): the token chosen at each step, and V (the padding) where none is chosen yet.
    The arguments are described in ``PromptConstructionEnv``.

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
        self.vocabulary = words
        self.sizes: Indices = np.array(words.sizes, dtype=np.int64)
        self.horizon = int(self.sizes.size)
        self.padding = int(self.sizes.max())
        self.offsets: Indices = np.concatenate(([0], np.cumsum(self.sizes)))
        self._masks: NDArray[np.int8] = (np.arange(self.padding) < np.append(self.sizes, 0)[:, None]).astype(np.int8)
        self.mdp = PromptMDP(tuple(int(size) for size in self.sizes))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the model and the features out of a pickle; the copy loads them again on first use."""
        return {name: value for name, value in self.__dict__.items() if name not in ("encoder", "features")}

    def action_space(self) -> LegalDiscrete:
        """Return a new action space over 0..V-1; every step allows the actions below the size of the smallest file."""
        return LegalDiscrete(self.padding, np.arange(self.sizes.min()))

    def use_encoder(self, encoder: TextEncoder) -> None:
        super().use_encoder(encoder)
        self.__dict__.pop("features", None)  # those computed before are computed again with it

    @cached_property
    def features(self) -> Floats32:
        """Embedding of every token alone, shape (N, d), in the row order of the MDP; computed on first use."""
        return embed_tokens(self.vocabulary, self.encoder)

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
        lanes = self._lanes(observations)
        outside = (lanes >= self.sizes) & (np.arange(self.horizon) < self._num_chosen(lanes)[:, None])
        if outside.any():
            self.vocabulary.prompt(lanes[int(np.argmax(outside.any(axis=1)))])  # raises
        return lanes

    def texts(self, observations: Indices) -> list[str]:
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


class _PromptAttributes:
    """What wrappers and agents ask of a prompt environment."""

    trajectory_texts = FromModel()
    vocabulary = FromModel()
    mdp = FromModel()
    features = FromModel()
    mdp_state = FromModel()
    mdp_step = FromModel()
    state_texts = FromModel()
    state_features = FromModel()


class PromptConstructionVectorEnv(_PromptAttributes, PromptLanes):
    """``num_envs`` prompts at once; each lane behaves as documented in ``PromptConstructionEnv``.

    Unlike separate environments it keeps one copy of the vocabulary, and computes ``trajectory_features`` of all lanes
    in one encoder call. ``render_mode``, ``autoreset_mode`` and ``max_episode_steps`` are described in ``ArrayLanes``,
    the other arguments in ``PromptConstructionEnv``.
    """

    model_class = PromptModel

    def _make_lanes(self) -> None:
        self._tokens: Indices = np.full((self.num_envs, self.model.horizon), self.model.padding, dtype=np.int64)
        self._steps: Indices = np.zeros(self.num_envs, dtype=np.int64)

    def action_masks(self) -> NDArray[np.int8]:
        return self.model.masks(self._steps)

    @property
    def _observations(self) -> Indices:
        return self._tokens

    def _complete(self) -> Booleans:
        return np.asarray(self._steps == self.model.horizon)

    def _take(self, lanes: Indices, actions: Indices) -> None:
        steps = self._steps[lanes]
        sizes = self.model.sizes[steps]
        illegal = np.flatnonzero((actions < 0) | (actions >= sizes))
        if illegal.size:
            first = illegal[0]
            step, size = int(steps[first]), int(sizes[first])
            raise ValueError(
                f"Expected an action in 0..{size - 1} at step {step} ({self.model.vocabulary.names[step]!r} has {size} "
                f"tokens){self._where(lanes[first])}, got {actions[first]}; use info['action_mask'] or action_masks() "
                "to see what is legal."
            )
        self._tokens[lanes, steps] = actions
        self._steps[lanes] += 1

    def _restart(self, mask: Booleans) -> None:
        self._tokens[mask] = self.model.padding
        self._steps[mask] = 0

    def _counts(self) -> dict[str, Indices]:
        return {"step": self._steps}

    def _legal_state(self) -> Indices:
        return self._steps.copy()


class PromptConstructionEnv(_PromptAttributes, SingleLane):
    """Write a text-to-image prompt by choosing one token from each file of a vocabulary.

    ## Description
    A prompt such as "a lighthouse on a cliff, at dusk, oil on canvas, ..." is built in H steps. Step h offers the
    tokens of the h-th file of a vocabulary folder (built in: bases, ambient, style, composition, lighting, detail), and
    the chosen token is appended after a comma. Nothing is random: the same actions give the same prompt. The state that
    matters for planning is the step alone, so ``env.unwrapped.mdp`` is a ``PromptMDP``; what a person compares is
    either the whole partial prompt (``trajectory_features``) or the last token (``state_features``).

    The paper draws the base of every prompt at random; here the base is an action like the others, so a design may
    choose it, and a uniform first action is the paper's setting.

    Making the environment loads no model. ``env.unwrapped.features``, ``.encoder`` and the two feature methods load
    the text encoder on first use.

    ## Action Space
    ``Discrete(V)``, V the size of the largest file: the index of a token in the file of the current step. Files differ
    in size, so a step with fewer than V tokens allows the first of these actions only, as ``info["action_mask"]`` and
    ``env.unwrapped.action_masks()`` say. An action beyond them is a ``ValueError``. ``env.action_space.sample()``
    without a mask draws from the actions that are legal at every step (below the size of the smallest file); to draw
    from all tokens of the step use ``env.action_space.sample(info["action_mask"])``. For algorithms that know no masks
    the wrapper ``LegalActions`` lets every action play a legal one.

    ## Observation Space
    ``MultiDiscrete([V + 1] * H)``: the token index chosen at each step, and V where nothing is chosen yet.

    ## Starting State
    The empty prompt: V everywhere.

    ## Rewards
    Always 0: the reward is what is to be learned. Wrap the environment in ``PreferenceQuery`` (1 for the preferred
    lane) or ``LearnedReward`` (theta . phi(prompt)).

    ## Episode End
    - Termination: all H tokens are chosen; ``env.spec.max_episode_steps`` is H.
    - Truncation: never. (In an environment made from the spec of another, Gymnasium's ``TimeLimit`` reports truncated
      along with terminated at the last step.)

    ## Information
    ``reset()`` and ``step()`` return a dict with
    - ``action_mask``: int8 (V,), 1 for the actions that the next step allows; all 0 for a complete prompt.
    - ``prompt``: the partial prompt as text, "" at the start.
    - ``step``: number of tokens chosen so far.

    ## Arguments
    ```python
    import gymnasium
    import edpbrl_gym

    gymnasium.make("edpbrl/PromptConstruction-v0", tokens_per_step=20)
    gymnasium.make("edpbrl_gym:edpbrl/PromptConstruction-v0")  # imports edpbrl_gym by itself, also in a spawned process
    gymnasium.make_vec("edpbrl/PromptConstruction-v0", num_envs=8)  # all lanes in one array
    ```

    All arguments are plain names, path strings, numbers and lists, so ``env.spec.to_json()`` works.
    - ``vocabulary=None``: "images" or "interiors", or a folder with one UTF-8 .txt file per step, one token per line
      ("./NAME" where the name is a built-in one's); None is "images".
    - ``order=None``: file names without ".txt" in the order of the steps.
    - ``encoder="minilm"``: the text encoder for features, as ``edpbrl_gym.features.load_encoder`` takes it.
    - ``split=None``: "train" or "test" keeps 75% or the other 25% of every file; ``split_seed=0`` seeds it.
    - ``tokens_per_step=None``: draw at most this many tokens for each step; ``subset_seed=0`` seeds the draw.
    - ``render_mode=None``: "ansi" (the prompt so far as text) or "rgb_array" (that text drawn as an image).
    - the vector environment also takes ``autoreset_mode="next_step"`` | "same_step" | "disabled".

    ## References
    "Efficient Personalization of Generative Models via Optimal Experimental Design" (ED-PBRL), prompt-construction MDP.

    ## Version History
    * v0: Initial version
    """

    lanes_class = PromptConstructionVectorEnv
