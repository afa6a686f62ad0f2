"""The prompt-construction environment over many lanes, all in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Indices
from edpbrl_gym._validation import check_count
from edpbrl_gym.envs.array_lanes import RENDER_MODES
from edpbrl_gym.envs.bases import PromptLanes
from edpbrl_gym.envs.prompt_model import PromptAttributes, PromptModel

__all__ = ["PromptConstructionVectorEnv"]


class PromptConstructionVectorEnv(PromptAttributes, PromptLanes):
    """``num_envs`` prompts at once; each lane behaves as documented in ``PromptConstructionEnv``.

    Unlike separate environments it keeps one copy of the vocabulary, and computes ``trajectory_features`` of all lanes
    in one encoder call. ``num_envs``, ``autoreset_mode`` and ``max_episode_steps`` are described in ``PromptLanes``,
    the other arguments in ``PromptConstructionEnv``.
    """

    metadata: dict[str, Any] = {
        "render_modes": RENDER_MODES,
        "render_fps": 1,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        vocabulary: str | None = None,
        order: Sequence[str] | None = None,
        encoder: str = "minilm",
        split: str | None = None,
        split_seed: int = 0,
        tokens_per_step: int | None = None,
        subset_seed: int = 0,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = "next_step",
        max_episode_steps: int | None = None,
    ) -> None:
        num_envs = check_count(num_envs, "num_envs")
        self._set_render_mode(render_mode)
        model = PromptModel(
            vocabulary=vocabulary,
            order=order,
            encoder=encoder,
            split=split,
            split_seed=split_seed,
            tokens_per_step=tokens_per_step,
            subset_seed=subset_seed,
        )
        PromptLanes.__init__(self, num_envs, model, autoreset_mode=autoreset_mode, max_episode_steps=max_episode_steps)
        self._tokens: Indices = np.full((num_envs, model.horizon), model.padding, dtype=np.int64)
        self._steps: Indices = np.zeros(num_envs, dtype=np.int64)

    def append(self, lanes: ArrayLike, tokens: ArrayLike) -> None:
        """Append one token in each of the given lanes, none of which is complete; others are left alone."""
        rows, actions = np.asarray(lanes, dtype=np.int64), np.asarray(tokens, dtype=np.int64)
        steps = self._steps[rows]
        for index in np.flatnonzero((actions < 0) | (actions >= self.model.sizes[steps])):
            # raises for the first illegal token
            self.model.check_action(int(actions[index]), int(steps[index]), int(rows[index]))
        self._tokens[rows, steps] = actions
        self._steps[rows] += 1

    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions of each lane, int8 (num_envs, V); all zero for a complete prompt."""
        return self.model.masks(self._steps)

    @property
    def _observations(self) -> Indices:
        return self._tokens

    def _complete(self) -> NDArray[np.bool_]:
        return self._steps == self.model.horizon

    def _restart(self, mask: NDArray[np.bool_]) -> None:
        self._tokens[mask] = self.model.padding
        self._steps[mask] = 0

    def _counts(self) -> dict[str, Indices]:
        return {"step": self._steps}

    def _legal_state(self) -> Indices:
        return self._steps.copy()
