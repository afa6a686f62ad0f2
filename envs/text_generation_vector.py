"""The text-generation environment over many lanes, all in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Indices
from edpbrl_gym._validation import check_count
from edpbrl_gym.envs.array_lanes import RENDER_MODES
from edpbrl_gym.envs.bases import PromptLanes
from edpbrl_gym.envs.text_model import Lanes, TextAttributes, TextModel

__all__ = ["TextGenerationVectorEnv"]


class TextGenerationVectorEnv(TextAttributes, PromptLanes):
    """``num_envs`` prompts at once; the page of ``TextGenerationEnv`` holds for each lane.

    With one tokenizer and one language model: ``next_token_log_probs`` feeds the new token of every lane in one forward
    pass. Lanes end after different numbers of tokens; to compare them word by word wrap it in ``WordSteps``. Arguments
    that ``TextGenerationEnv`` has too are described there, those of all lanes in ``PromptLanes``.
    """

    metadata: dict[str, Any] = {
        "render_modes": RENDER_MODES,
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
        num_envs = check_count(num_envs, "num_envs")
        self._set_render_mode(render_mode)
        PromptLanes.__init__(
            self,
            num_envs,
            TextModel(model=model, encoder=encoder, words=words, max_tokens=max_tokens),
            autoreset_mode=autoreset_mode,
            max_episode_steps=max_episode_steps,
        )
        self.state = self.model.new_lanes(num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Indices, dict[str, Any]]:
        """Begin empty prompts, see the base class; the language model's cache of these lanes is dropped."""
        observations, infos = super().reset(seed=seed, options=options)
        if self._decoder is not None:
            self._decoder.forget(np.flatnonzero(infos["_step"]).tolist())  # the model may have been trained since
        return observations, infos

    def append(self, lanes: ArrayLike, tokens: ArrayLike) -> None:
        """Append one token in each of the given lanes, none of which is complete, and leave the others alone.

        For wrappers whose step takes several tokens (``WordSteps``); it resets no lane.

        Args:
            lanes: Different lanes, (m,).
            tokens: A legal token for each, (m,).

        Raises:
            ValueError: If a token is illegal; the message names the lane and why. No lane has moved.
            ResetNeeded: If reset() was never called, or a lane is complete.
        """
        self._check_was_reset()
        rows, actions = np.asarray(lanes, dtype=np.int64), np.asarray(tokens)
        if actions.size and not np.issubdtype(actions.dtype, np.integer):
            raise ValueError(f"Expected actions as integers, got {actions.dtype}.")
        if self.state.ended[rows].any():
            raise ResetNeeded(f"Lanes {rows[self.state.ended[rows]].tolist()} are complete; reset them first.")
        for index in np.flatnonzero(~self.model.legal(self.state, rows, actions)):
            self.model.check_action(int(actions[index]), self.state, int(rows[index]))  # raises
        self.model.append(self.state, rows, actions.astype(np.int64))

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

    @property
    def _observations(self) -> Indices:
        return self.state.tokens

    def _complete(self) -> NDArray[np.bool_]:
        return self.state.ended

    def _restart(self, mask: NDArray[np.bool_]) -> None:
        self.model.restart(self.state, mask)

    def _counts(self) -> dict[str, Indices]:
        return {"step": self.state.steps, "word": self.state.complete_words()}

    def _legal_state(self) -> Lanes:
        return self.state.copy()
