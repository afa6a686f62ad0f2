"""Base classes of the environments that write prompts: their model, single environments, and lanes in one array."""

from __future__ import annotations

import copy
import operator
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.spaces import MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats32, Indices
from edpbrl_gym.envs.common import (
    check_complete,
    check_lane_actions,
    check_limit,
    final_infos,
    first_seed,
    lane_infos,
    lanes_to_reset,
    parse_autoreset_mode,
    shared_encoder,
)
from edpbrl_gym.envs.spaces import LegalDiscrete
from edpbrl_gym.features import TextEncoder

__all__ = ["PromptEnvironment", "PromptLanes", "SinglePrompt", "WritingModel"]

StepResult = tuple[Indices, NDArray[np.float64], Booleans, Booleans, dict[str, Any]]

RENDER_MODES = ["ansi", "rgb_array"]


class WritingModel:
    """How prompts are written, for any number of lanes at once.

    Observations are integer arrays (n, horizon): the action of each step, and ``padding`` where none is taken yet.

    Attributes:
        encoder_spec: What ``load_encoder`` takes.
        horizon: The longest episode.
        padding: Number of actions.
    """

    encoder_spec: str
    horizon: int
    padding: int
    _encoder: TextEncoder | None = None

    def observation_space(self) -> MultiDiscrete:
        """Return a new observation space, ``MultiDiscrete([V + 1] * horizon)``."""
        return MultiDiscrete(np.full(self.horizon, self.padding + 1, dtype=np.int64))

    @abstractmethod
    def action_space(self) -> LegalDiscrete:
        """Return a new action space over 0..V-1."""

    @property
    def encoder(self) -> TextEncoder:
        """The text encoder, loaded on first use."""
        if self._encoder is None:
            self._encoder = shared_encoder(self.encoder_spec)
        return self._encoder

    def use_encoder(self, encoder: TextEncoder) -> None:
        """Use a live encoder instead of loading the one that ``encoder`` names; it must give the same embeddings."""
        self._encoder = encoder

    @abstractmethod
    def trajectory_texts(self, observations: ArrayLike) -> list[str]:
        """Partial prompt of each lane, "" where nothing is written yet."""

    def trajectory_features(self, observations: ArrayLike) -> Floats32:
        """Embedding of each partial prompt, shape (n, d); one encoder call for all lanes."""
        return self.encoder.encode(self.trajectory_texts(observations))

    def draw(self, text: str, width: int = 512, height: int = 192) -> NDArray[np.uint8]:
        """Draw a prompt as black text on white, uint8 of shape (height, width, 3).

        Text that doesn't fit is cut, with an ellipsis; a warning names each character missing from all fonts, once.
        """
        from PIL import Image, ImageDraw

        from edpbrl_gym.rendering.lettering import letterings

        image = Image.new("RGB", (width, height), "white")
        (lettering,) = letterings([text], [12])
        pencil, step, margin = ImageDraw.Draw(image), lettering.line_height, 12
        lines = lettering.lines(text, width - 2 * margin, (height - 2 * margin) // step)
        for number, line in enumerate(lines):
            lettering.draw(pencil, (margin, margin + number * step), line, "black")
        return np.array(image, dtype=np.uint8)


class PromptEnvironment:
    """The interface of prompt environments for wrappers and agents, delegated to the model.

    ``spec.max_episode_steps``, which Gymnasium's wrappers ask for, is the longest possible episode. It depends on the
    arguments (steps of the vocabulary, token budget), so it can't be set in the registry, where it would also add a
    ``TimeLimit``, which marks the last step as truncated though the episode terminates.
    """

    model: Any
    render_mode: str | None
    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """The spec of ``gymnasium.make``, with the longest episode; None for an environment made without it."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None and spec.max_episode_steps is None:
            spec = copy.copy(spec)
            spec.max_episode_steps = int(self.model.horizon)
        self._spec = spec

    @property
    def encoder(self) -> TextEncoder:
        """The text encoder; loaded on first use."""
        encoder: TextEncoder = self.model.encoder
        return encoder

    def trajectory_texts(self, observations: ArrayLike) -> list[str]:
        """Partial prompts, one for each lane."""
        texts: list[str] = self.model.trajectory_texts(observations)
        return texts

    def trajectory_features(self, observations: ArrayLike) -> Floats32:
        """Embeddings of the partial prompts, shape (n, d)."""
        features: Floats32 = self.model.trajectory_features(observations)
        return features

    def _set_render_mode(self, mode: str | None) -> None:
        if mode is not None and mode not in RENDER_MODES:
            raise ValueError(f"Expected render_mode None or one of {RENDER_MODES}, got {mode!r}.")
        self.render_mode = mode

    def _rendered(self, texts: list[str]) -> list[Any] | None:
        """The texts, or images of them, by the render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() was called without a render mode; make the environment with render_mode="
                '"ansi" or "rgb_array".'
            )
            return None
        return list(texts) if self.render_mode == "ansi" else [self.model.draw(text) for text in texts]


class SinglePrompt(PromptEnvironment, gymnasium.Env):
    """A single environment that writes a prompt; subclasses give ``reset`` and ``step``."""

    def _use_model(self, model: Any) -> None:
        self.model = model
        self.observation_space = model.observation_space()
        self.action_space = model.action_space()

    @abstractmethod
    def _text(self) -> str:
        """The prompt so far."""

    def render(self) -> Any:
        """The prompt so far: a string for "ansi", an uint8 image (height, width, 3) for "rgb_array"."""
        frames = self._rendered([self._text()])
        return None if frames is None else frames[0]

    @staticmethod
    def _token(action: Any) -> int:
        try:
            return operator.index(action)
        except TypeError:
            raise TypeError(f"Expected an integer action, got {type(action).__name__}: {action!r}.") from None


class PromptLanes(PromptEnvironment, VectorEnv):
    """Prompts in ``num_envs`` lanes, in one array.

    It gives the same observations, rewards, ends and infos as Gymnasium's ``SyncVectorEnv`` over single environments.

    Args:
        num_envs: Number of lanes.
        model: How their prompts are written.
        autoreset_mode: What happens after a lane's last step: "next_step" (its next step ignores the action and
            returns the empty prompt), "same_step" (the same step returns it; the complete prompt is in
            ``infos["final_obs"]`` and ``infos["final_info"]``) or "disabled" (call
            ``reset(options={"reset_mask": mask})``).
        max_episode_steps: At least the longest episode, as in the spec of such lanes. Less is a ValueError, as these
            lanes don't cut episodes short.
    """

    def __init__(
        self, num_envs: int, model: Any, *, autoreset_mode: str | AutoresetMode, max_episode_steps: int | None
    ) -> None:
        check_limit(max_episode_steps, model.horizon)
        self.num_envs = num_envs
        self.model = model
        self.autoreset_mode = parse_autoreset_mode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = model.observation_space()
        self.single_action_space = model.action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._was_reset = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Indices, dict[str, Any]]:
        """Begin empty prompts in all lanes, or in those of ``options["reset_mask"]`` (boolean, (num_envs,)).

        As in Gymnasium's own vector environments the seed may be a list with one for each lane. Nothing is random here.
        """
        super().reset(seed=first_seed(seed, self.num_envs))
        mask = lanes_to_reset(options, self.num_envs, was_reset=self._was_reset)
        self._was_reset = True
        self._restart(mask)
        return self._observations.copy(), self._infos(mask)

    def step(self, actions: ArrayLike) -> StepResult:
        """Append one token in each lane.

        Args:
            actions: Integers of shape (num_envs,); ignored for a lane that restarts in this step.

        Raises:
            ValueError: If an action is illegal; the message names the lane and why. No lane has moved.
            ResetNeeded: If reset() was never called or, in mode "disabled", a complete lane was not reset.
        """
        self._check_was_reset()
        tokens = check_lane_actions(actions, self.num_envs)
        restarting = self._complete().copy()
        check_complete(restarting, self.autoreset_mode)
        active = np.flatnonzero(~restarting)
        self.append(active, tokens[active])
        self._restart(restarting)
        terminations = self._complete().copy()
        infos: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and terminations.any():
            infos = final_infos(self._observations, self._infos(terminations), terminations)
            self._restart(terminations)
        infos.update(self._infos(np.ones(self.num_envs, dtype=np.bool_)))
        truncations = np.zeros(self.num_envs, dtype=np.bool_)
        return self._observations.copy(), np.zeros(self.num_envs), terminations, truncations, infos

    @abstractmethod
    def append(self, lanes: ArrayLike, tokens: ArrayLike) -> None:
        """Append one token in each of the given lanes, none of which is complete; others are left alone."""

    @abstractmethod
    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions of each lane, int8 (num_envs, V); all zero for a complete prompt."""

    def render(self) -> tuple[Any, ...] | None:
        """One string ("ansi") or image ("rgb_array") for each lane."""
        frames = self._rendered(self.model.trajectory_texts(self._observations))
        return None if frames is None else tuple(frames)

    @property
    @abstractmethod
    def _observations(self) -> Indices:
        """Observations of all lanes, not to be written to."""

    @abstractmethod
    def _complete(self) -> Booleans:
        """Lanes whose prompt is complete."""

    @abstractmethod
    def _restart(self, mask: Booleans) -> None:
        """Begin empty prompts in the masked lanes."""

    @abstractmethod
    def _counts(self) -> dict[str, Indices]:
        """Entries of the infos besides the mask and the prompt, (num_envs,) each."""

    def _check_was_reset(self) -> None:
        if not self._was_reset:
            raise ResetNeeded("The prompts are not started yet; call reset() before step().")

    def _infos(self, mask: Booleans) -> dict[str, Any]:
        texts = self.model.trajectory_texts(self._observations[mask])
        return lane_infos(mask, texts, self.action_masks(), self._counts())
