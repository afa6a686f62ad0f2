"""Base classes of the environments that write prompts: their model, single environments, and lanes in one array."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import MultiDiscrete
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats32, Indices
from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym.envs.array_lanes import ArrayLanes, ModelEnvironment
from edpbrl_gym.envs.common import shared_encoder
from edpbrl_gym.envs.infos import LaneInfos, lane_infos
from edpbrl_gym.envs.spaces import LegalDiscrete
from edpbrl_gym.features import TextEncoder

__all__ = ["PromptEnvironment", "PromptLanes", "SinglePrompt", "WritingModel"]


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
    def checked(self, observations: ArrayLike) -> Indices:
        """Return observations, one or many, as integers (n, horizon), else a ValueError."""

    @abstractmethod
    def texts(self, observations: Indices) -> list[str]:
        """``trajectory_texts`` of checked observations."""

    def trajectory_texts(self, observations: ArrayLike) -> list[str]:
        """Partial prompt of each lane, "" where nothing is written yet."""
        return self.texts(self.checked(observations))

    def trajectory_features(self, observations: ArrayLike) -> Floats32:
        """Embedding of each partial prompt, shape (n, d); one encoder call for all lanes."""
        return self.encoder.encode(self.trajectory_texts(observations))

    def draw(self, text: str, width: int = 512, height: int = 192) -> NDArray[np.uint8]:
        """Draw a prompt as black text on white, uint8 of shape (height, width, 3).

        Text that doesn't fit is cut, with an ellipsis; a warning names each character missing from all fonts, once.
        """
        check_installed(Need("PIL", "pictures of prompts"))
        from PIL import Image, ImageDraw

        from edpbrl_gym.rendering.lettering import letterings

        image = Image.new("RGB", (width, height), "white")
        (lettering,) = letterings([text], [12])
        pencil, step, margin = ImageDraw.Draw(image), lettering.line_height, 12
        lines = lettering.lines(text, width - 2 * margin, (height - 2 * margin) // step)
        for number, line in enumerate(lines):
            lettering.draw(pencil, (margin, margin + number * step), line, "black")
        return np.array(image, dtype=np.uint8)


class PromptEnvironment(ModelEnvironment):
    """The interface of prompt environments for wrappers and agents, delegated to the model."""

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

    def _frames(self, texts: list[str]) -> list[NDArray[np.uint8]]:
        return [self.model.draw(text) for text in texts]


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
        frames = self._rendered([self._text()], self._frames)
        return None if frames is None else frames[0]


class PromptLanes(PromptEnvironment, ArrayLanes):
    """Prompts in ``num_envs`` lanes, in one array; see ``ArrayLanes`` for the arguments."""

    @abstractmethod
    def append(self, lanes: ArrayLike, tokens: ArrayLike) -> None:
        """Append one token in each of the given lanes, none of which is complete; others are left alone."""

    def render(self) -> tuple[Any, ...] | None:
        """One string ("ansi") or image ("rgb_array") for each lane."""
        frames = self._rendered(self.model.trajectory_texts(self._observations), self._frames)
        return None if frames is None else tuple(frames)

    @abstractmethod
    def _counts(self) -> dict[str, Indices]:
        """Entries of the infos besides the mask and the prompt, (num_envs,) each."""

    @abstractmethod
    def _legal_state(self) -> Any:
        """A copy of what the model's ``masks`` takes."""

    def _take(self, lanes: Indices, actions: Indices) -> None:
        self.append(lanes, actions)

    def _infos(self, mask: Booleans) -> LaneInfos:
        texts = partial(self.model.texts, self._observations[mask])
        return lane_infos(mask, texts, partial(self.model.masks, self._legal_state()), self._counts())
