"""The text-generation environment over many lanes, all in one array."""

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
from edpbrl_gym.envs.text_generation import TextGenerationEnv
from edpbrl_gym.envs.text_model import TextAttributes, TextModel

__all__ = ["TextGenerationVectorEnv"]

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
StepResult = tuple[IntArray, NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]


class TextGenerationVectorEnv(TextAttributes, VectorEnv):
    """``num_envs`` prompts at once; the page of ``TextGenerationEnv`` holds for each lane.

    It gives the same observations, rewards, ends and infos as Gymnasium's ``SyncVectorEnv`` over single environments,
    with one tokenizer and one language model: ``next_token_log_probs`` feeds the new token of every lane in one forward
    pass. Lanes end after different numbers of tokens; to compare them word by word wrap it in ``WordSteps``.

    Args:
        num_envs: Number of lanes.
        model: See ``TextGenerationEnv``, as all arguments up to ``render_mode``.
        encoder: See there.
        words: See there.
        max_tokens: See there.
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
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        model: str | None = None,
        encoder: str = "minilm",
        words: int = 8,
        max_tokens: int = 32,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = "next_step",
        max_episode_steps: int | None = None,
    ) -> None:
        self.num_envs = check_count(num_envs, "num_envs")
        if render_mode is not None and render_mode not in TextGenerationEnv.metadata["render_modes"]:
            raise ValueError(f"Expected render_mode None, 'ansi' or 'rgb_array', got {render_mode!r}.")
        self.model = TextModel(model=model, encoder=encoder, words=words, max_tokens=max_tokens)
        check_limit(max_episode_steps, self.model.horizon)
        self.render_mode = render_mode
        self.autoreset_mode = parse_autoreset_mode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self.model.observation_space()
        self.single_action_space = self.model.action_space()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.state = self.model.new_lanes(self.num_envs)
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
        self.model.restart(self.state, mask)
        if self._decoder is not None:
            self._decoder.forget(np.flatnonzero(mask).tolist())  # the model may have been trained since
        return self.state.tokens.copy(), self._infos(mask)

    def step(self, actions: ArrayLike) -> StepResult:
        """Append one token in each lane.

        Args:
            actions: Token ids, integers of shape (num_envs,); ignored for a lane that begins anew in this step.

        Raises:
            ValueError: If an action is illegal; the message names the lane and why. No lane has moved.
            ResetNeeded: If reset() was never called or, in mode "disabled", a complete lane was not reset.
        """
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,):
            raise ValueError(f"Expected actions of shape ({self.num_envs},), got shape {chosen.shape}.")
        restarting = self.state.ended.copy()
        if self.autoreset_mode is AutoresetMode.DISABLED and restarting.any():
            lanes = np.flatnonzero(restarting).tolist()
            raise ResetNeeded(f'Lanes {lanes} are complete; call reset(options={{"reset_mask": mask}}) first.')
        active = np.flatnonzero(~restarting)
        self.append(active, chosen[active])
        self.model.restart(self.state, restarting)
        terminations = self.state.ended.copy()
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and terminations.any():
            infos = self._final_infos(terminations)
            self.model.restart(self.state, terminations)
        infos.update(self._infos(np.ones(self.num_envs, dtype=np.bool_)))
        truncations = np.zeros(self.num_envs, dtype=np.bool_)
        return self.state.tokens.copy(), np.zeros(self.num_envs), terminations, truncations, infos

    def append(self, lanes: ArrayLike, tokens: ArrayLike) -> None:
        """Append one token in each of the given lanes, none of which is complete, and leave the others alone.

        For wrappers whose step takes several tokens (``WordSteps``); it resets nothing by itself.

        Args:
            lanes: Different lanes, (m,).
            tokens: A legal token for each, (m,).

        Raises:
            ValueError: If a token is illegal; the message names the lane and why. No lane has moved.
            ResetNeeded: If reset() was never called, or a lane is complete.
        """
        if not self._begun:
            raise ResetNeeded("The prompts are not begun yet; call reset() before step().")
        rows, chosen = np.asarray(lanes, dtype=np.int64), np.asarray(tokens)
        if chosen.size and not np.issubdtype(chosen.dtype, np.integer):
            raise ValueError(f"Expected actions as integers, got {chosen.dtype}.")
        if self.state.ended[rows].any():
            raise ResetNeeded(f"Lanes {rows[self.state.ended[rows]].tolist()} are complete; reset them first.")
        for lane, token in zip(rows.tolist(), chosen.tolist(), strict=True):
            self.model.check_action(token, self.state, lane)
        self.model.append(self.state, rows, chosen.astype(np.int64))

    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions of each lane, int8 (num_envs, V); all zero for a complete prompt."""
        return self.model.masks(self.state)

    def next_token_log_probs(self, temperature: float = 1.0) -> NDArray[np.float64]:
        """Log-probabilities of each lane's next action under the environment's language model, (num_envs, V).

        One forward pass over the tokens that are new since the last call, whatever lanes were reset in between; see
        ``TextGenerationEnv.next_token_log_probs``.
        """
        return self._log_probs(temperature)

    def next_token_probabilities(self, temperature: float = 1.0) -> NDArray[np.float64]:
        """``exp(next_token_log_probs())``, (num_envs, V)."""
        return np.exp(self.next_token_log_probs(temperature))

    def render(self) -> tuple[Any, ...] | None:
        """One string ("ansi") or image ("rgb_array") for each lane."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() was called without a render mode; make the environment with render_mode="
                '"ansi" or "rgb_array".'
            )
            return None
        texts = self.model.trajectory_texts(self.state.tokens)
        return tuple(texts if self.render_mode == "ansi" else [self.model.draw(text) for text in texts])

    def _infos(self, mask: BoolArray) -> dict[str, Any]:
        """Gymnasium's vector infos: an array over lanes for each key, and which lanes it holds for under "_key"."""
        texts = np.full(self.num_envs, None, dtype=object)
        texts[mask] = self.model.trajectory_texts(self.state.tokens[mask])
        infos: dict[str, Any] = {}
        for key, value in (
            ("action_mask", np.where(mask[:, None], self.action_masks(), np.int8(0))),
            ("prompt", texts),
            ("step", np.where(mask, self.state.steps, 0)),
            ("word", np.where(mask, self.state.complete_words(), 0)),
        ):
            infos[key], infos[f"_{key}"] = value, mask.copy()
        return infos

    def _final_infos(self, mask: BoolArray) -> dict[str, Any]:
        return final_infos(self.state.tokens, self._infos(mask), mask)
