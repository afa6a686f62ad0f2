"""The prompt-construction environment over many lanes, all in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_count
from edpbrl_gym.envs.common import check_limit, final_infos, first_seed, lanes_to_reset, parse_autoreset_mode
from edpbrl_gym.envs.prompt_construction import PromptConstructionEnv
from edpbrl_gym.envs.prompt_model import PromptAttributes, PromptModel

__all__ = ["PromptConstructionVectorEnv"]

IntArray = NDArray[np.int64]
StepResult = tuple[IntArray, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class PromptConstructionVectorEnv(PromptAttributes, VectorEnv):
    """``num_envs`` prompts at once; the page of ``PromptConstructionEnv`` holds for each lane.

    It gives the same observations, rewards, ends and infos as Gymnasium's ``SyncVectorEnv`` over single environments,
    without their K copies of the vocabulary, and answers ``trajectory_features`` for all lanes in one encoder call.

    Args:
        num_envs: Number of lanes.
        vocabulary: See ``PromptConstructionEnv``, as all arguments up to ``render_mode``.
        order: See there.
        encoder: See there.
        split: See there.
        split_seed: See there.
        tokens_per_step: See there.
        subset_seed: See there.
        render_mode: See there.
        autoreset_mode: What happens after a lane's last step: "next_step" (its next step ignores the action and
            returns the empty prompt), "same_step" (the same step returns it; the complete prompt is in
            ``infos["final_obs"]`` and ``infos["final_info"]``) or "disabled" (call
            ``reset(options={"reset_mask": mask})``).
        max_episode_steps: What the spec of such lanes says when they are made anew from it: the longest episode, or
            more. Less is a ValueError, as these lanes don't cut episodes short.
    """

    metadata: dict[str, Any] = {
        "render_modes": ["ansi", "rgb_array"],
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
        if render_mode is not None and render_mode not in PromptConstructionEnv.metadata["render_modes"]:
            raise ValueError(f"Expected render_mode None, 'ansi' or 'rgb_array', got {render_mode!r}.")
        self.model = PromptModel(
            vocabulary=vocabulary,
            order=order,
            encoder=encoder,
            split=split,
            split_seed=split_seed,
            tokens_per_step=tokens_per_step,
            subset_seed=subset_seed,
        )
        check_limit(max_episode_steps, self.model.horizon)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = parse_autoreset_mode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self.model.observation_space()
        self.single_action_space = self.model.action_space()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._tokens = self._empty(self.num_envs)
        self._steps: IntArray = np.zeros(self.num_envs, dtype=np.int64)
        self._done = np.zeros(self.num_envs, dtype=np.bool_)
        self._begun = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[IntArray, dict[str, Any]]:
        """Begin empty prompts in all lanes, or in those of ``options["reset_mask"]`` (boolean, (num_envs,)).

        As in Gymnasium's own vector environments the seed may be a list with one for each lane. Nothing is random here.
        """
        super().reset(seed=first_seed(seed, self.num_envs))
        mask = lanes_to_reset(options, self.num_envs, begun=self._begun)
        self._begun = True
        self._restart(mask)
        return self._tokens.copy(), self._infos(mask)

    def step(self, actions: ArrayLike) -> StepResult:
        """Append one token in each lane.

        Args:
            actions: Token indices, integers of shape (num_envs,); ignored for a lane that begins anew in this step.

        Raises:
            ValueError: If an action is illegal; the message names the lane and what was allowed. No lane has moved.
            ResetNeeded: If reset() was never called or, in mode "disabled", a complete lane was not reset.
        """
        chosen = self._check_actions(actions)
        restarting = self._done.copy()
        if self.autoreset_mode is AutoresetMode.DISABLED and restarting.any():
            lanes = np.flatnonzero(restarting).tolist()
            raise ResetNeeded(f'Lanes {lanes} are complete; call reset(options={{"reset_mask": mask}}) first.')
        active = np.flatnonzero(~restarting)
        for lane in active[(chosen[active] < 0) | (chosen[active] >= self.model.sizes[self._steps[active]])]:
            self.model.check_action(int(chosen[lane]), int(self._steps[lane]), int(lane))
        self._tokens[active, self._steps[active]] = chosen[active]
        self._steps[active] += 1
        self._restart(restarting)
        terminations = self._steps == self.model.horizon
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            if terminations.any():
                infos = self._final_infos(terminations)
                self._restart(terminations)
        else:
            self._done = terminations.copy()
        infos.update(self._infos(np.ones(self.num_envs, dtype=np.bool_)))
        truncations = np.zeros(self.num_envs, dtype=np.bool_)
        return self._tokens.copy(), np.zeros(self.num_envs), terminations, truncations, infos

    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions of each lane, int8 (num_envs, V); all zero for a complete prompt."""
        return self.model.masks(self._steps)

    def render(self) -> tuple[Any, ...] | None:
        """One string ("ansi") or image ("rgb_array") for each lane."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() was called without a render mode; make the environment with render_mode="
                '"ansi" or "rgb_array".'
            )
            return None
        texts = self.model.trajectory_texts(self._tokens)
        return tuple(texts if self.render_mode == "ansi" else [self.model.draw(text) for text in texts])

    def _empty(self, lanes: int) -> IntArray:
        return np.full((lanes, self.model.horizon), self.model.padding, dtype=np.int64)

    def _restart(self, mask: NDArray[np.bool_]) -> None:
        self._tokens[mask] = self.model.padding
        self._steps[mask] = 0
        self._done[mask] = False

    def _check_actions(self, actions: ArrayLike) -> IntArray:
        if not self._begun:
            raise ResetNeeded("The prompts are not begun yet; call reset() before step().")
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,) or not np.issubdtype(chosen.dtype, np.integer):
            raise ValueError(
                f"Expected actions as integers of shape ({self.num_envs},), got {chosen.dtype} of shape {chosen.shape}."
            )
        return chosen.astype(np.int64)

    def _infos(self, mask: NDArray[np.bool_]) -> dict[str, Any]:
        """Gymnasium's vector infos: an array over lanes for each key, and which lanes it holds for under "_key"."""
        texts = np.full(self.num_envs, None, dtype=object)
        texts[mask] = self.model.trajectory_texts(self._tokens[mask])
        masks = np.where(mask[:, None], self.action_masks(), np.int8(0))
        steps = np.where(mask, self._steps, 0)
        infos: dict[str, Any] = {}
        for key, value in (("action_mask", masks), ("prompt", texts), ("step", steps)):
            infos[key], infos[f"_{key}"] = value, mask.copy()
        return infos

    def _final_infos(self, mask: NDArray[np.bool_]) -> dict[str, Any]:
        return final_infos(self._tokens, self._infos(mask), mask)
