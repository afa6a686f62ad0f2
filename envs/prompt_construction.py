"""The prompt-construction environment: a text-to-image prompt, one vocabulary file at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from edpbrl_gym.envs.array_lanes import RENDER_MODES, integer_action
from edpbrl_gym.envs.bases import SinglePrompt
from edpbrl_gym.envs.prompt_model import PromptAttributes, PromptModel

__all__ = ["PromptConstructionEnv"]


class PromptConstructionEnv(PromptAttributes, SinglePrompt):
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

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 1}

    def __init__(
        self,
        vocabulary: str | None = None,
        order: Sequence[str] | None = None,
        encoder: str = "minilm",
        split: str | None = None,
        split_seed: int = 0,
        tokens_per_step: int | None = None,
        subset_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        self._set_render_mode(render_mode)
        self._use_model(
            PromptModel(
                vocabulary=vocabulary,
                order=order,
                encoder=encoder,
                split=split,
                split_seed=split_seed,
                tokens_per_step=tokens_per_step,
                subset_seed=subset_seed,
            )
        )
        self._tokens: list[int] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Begin an empty prompt; the environment has no options."""
        super().reset(seed=seed)
        self._tokens = []
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        """Append the chosen token.

        Args:
            action: Index of a token of the current step.

        Raises:
            ValueError: If the action is illegal at this step; the message says what was allowed.
            TypeError: If the action is not an integer.
            ResetNeeded: If the prompt is complete or was never started.
        """
        if self._tokens is None or len(self._tokens) == self.model.horizon:
            state = "not started yet" if self._tokens is None else f"complete ({self.model.horizon} tokens)"
            raise ResetNeeded(f"The prompt is {state}; call reset() before step().")
        token = integer_action(action)
        self.model.check_action(token, len(self._tokens))
        self._tokens.append(token)
        return self._observation(), 0.0, len(self._tokens) == self.model.horizon, False, self._info()

    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions of the current step, int8 (V,); the method that MaskablePPO asks."""
        return self.model.masks([len(self._tokens or ())])[0]

    def _text(self) -> str:
        return self.model.vocabulary.prompt(self._tokens) if self._tokens else ""

    def _observation(self) -> NDArray[np.int64]:
        observation = np.full(self.model.horizon, self.model.padding, dtype=np.int64)
        if self._tokens:
            observation[: len(self._tokens)] = self._tokens
        return observation

    def _info(self) -> dict[str, Any]:
        return {
            "action_mask": self.action_masks(),
            "prompt": self._text(),
            "step": len(self._tokens or ()),
        }
