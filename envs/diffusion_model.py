"""What the single and the vector diffusion environment share: directions, spaces, noise, denoising, features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats32, Indices
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_count, check_integers, check_number
from edpbrl_gym.diffusion.denoiser import Condition, Denoiser, load_denoiser, model_shape
from edpbrl_gym.diffusion.schedulers import BlockSchedule, check_schedule
from edpbrl_gym.envs.array_lanes import ModelEnvironment
from edpbrl_gym.envs.common import check_jsonable, shared_image_encoder, shared_model
from edpbrl_gym.envs.spaces import LegalDiscrete
from edpbrl_gym.features import ImageEncoder, check_image_encoder_spec

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["GuidanceAttributes", "GuidanceModel"]

Latents = NDArray[np.float32]

_SMALLEST_FRAME = 128  # pixels of a rendered frame, to which small pictures are enlarged
_MAX_SEED = 2**31  # of the noise
_LARGEST = 1e6  # of a latent: "euler" begins with a standard deviation of up to 20,000


def _load(spec: str) -> tuple[Denoiser, dict[str, Any]]:
    arguments = json.loads(spec)
    return load_denoiser(arguments["model"], arguments["conditions"])


class GuidanceModel:
    """Guided denoising of images in blocks, for any number of lanes at once.

    Observations are float32 vectors: the latent (C H W numbers), the predicted clean latent (as many; 0 before the
    first block) and the share of blocks that are done.

    Attributes:
        horizon: Number of blocks B.
        directions: Condition and weight of each action.
        latent: Shape of a latent, (C, H, W).
        model_calls: Number of calls of the diffusion model by this environment; a call serves all lanes.

    The arguments are described in ``DiffusionGuidanceEnv``.
    """

    def __init__(
        self,
        *,
        model: str | None,
        conditions: Sequence[Condition] | None,
        weights: Sequence[float],
        blocks: int,
        steps: int,
        scheduler: str,
        encoder: str,
        num_noises: int | None,
    ) -> None:
        check_jsonable(
            model=model, conditions=conditions, weights=weights, blocks=blocks, steps=steps, num_noises=num_noises
        )
        if model is not None and not isinstance(model, str):
            raise TypeError(f"Expected model as a hub id, a folder's path or None, got {model!r}.")
        if not isinstance(encoder, str):
            raise TypeError(f'Expected encoder as a string such as "strokes", got {encoder!r}.')
        self.encoder_spec = check_image_encoder_spec(encoder)
        self.scheduler, self.steps, self.horizon = check_schedule(scheduler, steps, blocks)
        self.num_noises = None if num_noises is None else check_count(num_noises, "num_noises")
        shape = model_shape(model)
        self.model_spec, self.latent = model, shape.latent
        if conditions is None:
            if shape.classes is None:
                raise ValueError('Expected conditions, texts to guide towards such as ["a cat", "a dog"], got None.')
            conditions = list(range(shape.classes))
        for name, values in (("conditions", conditions), ("weights", weights)):
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"Expected {name} as a list with at least one entry, got {values!r}.")
        self.conditions = [shape.check_condition(condition) for condition in conditions]
        self.weights = [check_number(weight, "a weight") for weight in weights]
        self.directions = [(condition, weight) for condition in self.conditions for weight in self.weights]
        self.model_calls = 0
        self._denoiser: Denoiser | None = None
        self._schedule: BlockSchedule | None = None
        self._encoder: ImageEncoder | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the models out of a pickle; the copy loads them again on first use."""
        return {**self.__dict__, "_denoiser": None, "_schedule": None, "_encoder": None}

    @property
    def size(self) -> int:
        """Numbers of a latent, C H W."""
        return int(np.prod(self.latent))

    def observation_space(self) -> Box:
        """Return a new observation space."""
        high = np.full(2 * self.size + 1, _LARGEST, dtype=np.float32)
        low = -high
        low[-1], high[-1] = 0.0, 1.0
        return Box(low, high, dtype=np.float32)

    def action_space(self) -> LegalDiscrete:
        """Return a new action space, one action for each direction; all are always legal."""
        return LegalDiscrete(len(self.directions), np.arange(len(self.directions)))

    @property
    def denoiser(self) -> Denoiser:
        """The frozen diffusion model, loaded on first use."""
        if self._denoiser is None:
            self._load()
        assert self._denoiser is not None
        return self._denoiser

    @property
    def schedule(self) -> BlockSchedule:
        """The denoising steps; the model is loaded on first use."""
        if self._schedule is None:
            self._load()
        assert self._schedule is not None
        return self._schedule

    def _load(self) -> None:
        spec = json.dumps({"model": self.model_spec, "conditions": self.conditions})
        self._denoiser, config = shared_model(_load, spec, self.model_spec or "")
        self._schedule = BlockSchedule(self.scheduler, config, steps=self.steps, blocks=self.horizon)

    @property
    def encoder(self) -> ImageEncoder:
        """The image encoder, loaded on first use."""
        if self._encoder is None:
            self._encoder = shared_image_encoder(self.encoder_spec)
        return self._encoder

    def draw_seed(self, rng: np.random.Generator) -> int:
        """Draw the seed of an episode's noise."""
        return int(rng.integers(self.num_noises or _MAX_SEED))

    def check_seed(self, seed: Any) -> int:
        """Return the seed of a noise if there is such a noise, else a ValueError."""
        number = check_count(seed, "noise_seed", minimum=0)
        limit = self.num_noises or _MAX_SEED
        if number >= limit:
            raise ValueError(f"Expected noise_seed in 0..{limit - 1}, got {number}.")
        return number

    def noise(self, seeds: ArrayLike) -> Latents:
        """Initial latents of noise seeds (n,), shape (n, C, H, W)."""
        last = (self.num_noises or _MAX_SEED) - 1
        numbers = check_integers(seeds, "noise seeds", shape=("n",), low=0, high=last)
        latents = np.empty((len(numbers), *self.latent), dtype=np.float32)
        for row, seed in zip(latents, numbers.tolist(), strict=True):
            row[:] = generator(seed, "diffusion noise").standard_normal(self.latent, dtype=np.float32)
        return latents * np.float32(self.schedule.noise_scale)

    def start(self, seeds: ArrayLike) -> Floats32:
        """First observations of episodes from noise seeds (n,)."""
        latents = self.noise(seeds)
        return self.join(latents, np.zeros_like(latents), np.zeros(len(latents), dtype=np.int64))

    def advance(self, observations: ArrayLike, actions: ArrayLike) -> Floats32:
        """Observations after one more block in the directions ``actions`` (n,), none of them complete."""
        latents, _, done = self.split(observations)
        chosen = np.asarray(actions, dtype=np.int64)
        weights = np.array([weight for _, weight in self.directions])[chosen]
        before = self.denoiser.calls
        after, clean = self.denoiser.advance(self.schedule, latents, done, chosen // len(self.weights), weights)
        self.model_calls += self.denoiser.calls - before
        return self.join(after, clean, done + 1)

    def join(self, latents: Latents, clean: Latents, done: Indices) -> Floats32:
        """Observations (n, 2 C H W + 1) of latents, predicted clean latents and numbers of blocks that are done."""
        count = len(latents)
        share = (done / self.horizon).astype(np.float32)[:, None]
        return np.concatenate([latents.reshape(count, -1), clean.reshape(count, -1), share], axis=1)

    def split(self, observations: ArrayLike) -> tuple[Latents, Latents, Indices]:
        """Latents, predicted clean latents and numbers of blocks done of observations; the inverse of ``join``.

        Raises:
            ValueError: If the observations are not of this environment.
        """
        rows = np.asarray(observations, dtype=np.float32)
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.shape[1] != 2 * self.size + 1:
            raise ValueError(
                f"Expected observations of shape (n, {2 * self.size + 1}), latent, predicted clean latent and the "
                f"share of blocks done, got {np.shape(observations)}."
            )
        shape = (len(rows), *self.latent)
        latents, clean = rows[:, : self.size].reshape(shape), rows[:, self.size : -1].reshape(shape)
        return latents, clean, np.rint(rows[:, -1] * self.horizon).astype(np.int64)

    def check_action(self, action: int, lane: int | None = None) -> None:
        """Raise a ValueError for an action that is no direction."""
        if not 0 <= action < len(self.directions):
            where = "" if lane is None else f" in lane {lane}"
            raise ValueError(f"Expected an action in 0..{len(self.directions) - 1}, got {action}{where}.")

    def masks(self, done: Indices) -> NDArray[np.int8]:
        """Legal actions after so many blocks (n,): all, and none of a complete episode; int8 (n, A)."""
        open_lanes = (np.asarray(done) < self.horizon).astype(np.int8)
        return np.repeat(open_lanes[:, None], len(self.directions), axis=1)

    def describe(self, actions: Sequence[int]) -> str:
        """The directions of actions as text, such as "7 x 2, 7 x 2, 1 x 2"."""
        return ", ".join(f"{self.directions[a][0]} x {self.directions[a][1]:g}" for a in actions)

    def trajectory_images(self, observations: ArrayLike) -> NDArray[np.uint8]:
        """Predicted clean images, uint8 of shape (n, height, width, 3)."""
        _, clean, _ = self.split(observations)
        return self.denoiser.images(clean)

    def trajectory_features(self, observations: ArrayLike) -> Floats32:
        """Encodings of the predicted clean images, shape (n, d); one call of the encoder for all lanes."""
        return self.encoder.encode_images(pictures(self.trajectory_images(observations)))

    def frame(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """An image as it is rendered: small ones are enlarged by whole factors, pixel by pixel."""
        factor = max(1, -(-_SMALLEST_FRAME // min(image.shape[:2])))
        return image.repeat(factor, axis=0).repeat(factor, axis=1)


def pictures(images: NDArray[np.uint8]) -> list[Image]:
    """Pillow images of an array (n, height, width, 3)."""
    from PIL import Image

    return [Image.fromarray(image) for image in images]


class GuidanceAttributes(ModelEnvironment):
    """The interface of diffusion environments for wrappers and agents, delegated to the model."""

    model: GuidanceModel

    @property
    def encoder(self) -> ImageEncoder:
        """The image encoder; loaded on first use."""
        return self.model.encoder

    def trajectory_images(self, observations: ArrayLike) -> NDArray[np.uint8]:
        """Predicted clean images, uint8 of shape (n, height, width, 3)."""
        return self.model.trajectory_images(observations)

    def trajectory_features(self, observations: ArrayLike) -> Floats32:
        """Encodings of the predicted clean images, shape (n, d)."""
        return self.model.trajectory_features(observations)
