"""The diffusion environment: an image, refined block by block in chosen directions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats32, Indices
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_count, check_integers, check_number
from edpbrl_gym.diffusion.denoiser import Condition, Denoiser, load_denoiser, model_shape
from edpbrl_gym.diffusion.schedulers import BlockSchedule, check_schedule
from edpbrl_gym.envs.base import ArrayLanes, FromModel, LegalDiscrete, SingleLane
from edpbrl_gym.envs.common import LaneInfos, check_jsonable, lane_infos, shared_image_encoder, shared_model
from edpbrl_gym.features import ImageEncoder, check_image_encoder_spec

__all__ = ["DiffusionGuidanceEnv", "DiffusionGuidanceVectorEnv", "GuidanceModel"]

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
        model: str | None = None,
        conditions: Sequence[Condition] | None = None,
        weights: Sequence[float] = (2.0,),
        blocks: int = 5,
        steps: int = 10,
        scheduler: str = "ddim",
        encoder: str = "strokes",
        num_noises: int | None = None,
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

    def __getstate__(self) -> dict[str, Any]:
        """Leave the models out of a pickle; the copy loads them again on first use."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_loaded", "encoder")}

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

    @cached_property
    def _loaded(self) -> tuple[Denoiser, BlockSchedule]:
        spec = json.dumps({"model": self.model_spec, "conditions": self.conditions})
        denoiser, config = shared_model(_load, spec, self.model_spec or "")
        return denoiser, BlockSchedule(self.scheduler, config, steps=self.steps, blocks=self.horizon)

    @property
    def denoiser(self) -> Denoiser:
        """The frozen diffusion model, loaded on first use."""
        return self._loaded[0]

    @property
    def schedule(self) -> BlockSchedule:
        """The denoising steps; the model is loaded on first use."""
        return self._loaded[1]

    @cached_property
    def encoder(self) -> ImageEncoder:
        """The image encoder, loaded on first use."""
        return shared_image_encoder(self.encoder_spec)

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
        from PIL import Image

        return self.encoder.encode_images([Image.fromarray(image) for image in self.trajectory_images(observations)])

    def frame(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """An image as it is rendered: small ones are enlarged by whole factors, pixel by pixel."""
        factor = max(1, -(-_SMALLEST_FRAME // min(image.shape[:2])))
        return image.repeat(factor, axis=0).repeat(factor, axis=1)


class DiffusionGuidanceVectorEnv(ArrayLanes):
    """``num_envs`` images at once; each lane behaves as documented in ``DiffusionGuidanceEnv``.

    A step of all lanes costs one call of the diffusion model per denoising step, whatever their number. Results may
    differ from those of single environments in the last digits, as sums are rounded in another order.

    Lane i draws its noise as a single environment with the seed + i does. With ``shared_noise`` = K the lanes i K to
    i K + K - 1 begin from the same noise, that of lane i K: the options of a question then differ by their directions
    only; lanes of a group that are reset without the others (``reset_mask``) get a new noise of their own.
    ``reset(options={"noise_seed": n})`` begins all lanes from the n-th noise, or from one each (a list).

    ``ArrayLanes`` describes ``render_mode``, ``autoreset_mode`` and ``max_episode_steps``, ``DiffusionGuidanceEnv`` the
    other arguments.

    Raises:
        ValueError: If ``shared_noise`` doesn't divide ``num_envs``, or another argument is out of range.
    """

    model_class = GuidanceModel
    text = "directions"
    trajectory_images = FromModel()

    def __init__(self, num_envs: int = 1, *, shared_noise: int = 1, **arguments: Any) -> None:
        num_envs = check_count(num_envs, "num_envs")
        self.shared_noise = check_count(shared_noise, "shared_noise")
        if num_envs % self.shared_noise:
            raise ValueError(f"Expected shared_noise as a divisor of num_envs = {num_envs}, got {shared_noise}.")
        super().__init__(num_envs, **arguments)

    def _make_lanes(self) -> None:
        count, model = self.num_envs, self.model
        self._states: Floats32 = np.zeros((count, 2 * model.size + 1), dtype=np.float32)
        self._actions: Indices = np.full((count, model.horizon), -1, dtype=np.int64)
        self._steps: Indices = np.zeros(count, dtype=np.int64)
        self._noise_seeds: Indices = np.zeros(count, dtype=np.int64)
        self._generators: list[np.random.Generator | None] = [None] * count  # of each lane, made when needed

    def action_masks(self) -> NDArray[np.int8]:
        return self.model.masks(self._steps)

    @property
    def _observations(self) -> Floats32:
        return self._states

    def _complete(self) -> Booleans:
        return np.asarray(self._steps == self.model.horizon)

    def _take(self, lanes: Indices, actions: Indices) -> None:
        known = len(self.model.directions)
        illegal = np.flatnonzero((actions < 0) | (actions >= known))
        if illegal.size:
            action, lane = actions[illegal[0]], lanes[illegal[0]]
            raise ValueError(f"Expected an action in 0..{known - 1}, got {action}{self._where(lane)}.")
        if not len(lanes):
            return
        self._states[lanes] = self.model.advance(self._states[lanes], actions)
        self._actions[lanes, self._steps[lanes]] = actions
        self._steps[lanes] += 1

    def _begin(self, mask: Booleans, seed: int | Sequence[int | None] | None, options: dict[str, Any]) -> None:
        for lane in np.flatnonzero(mask).tolist():
            lane_seed = seed[lane] if isinstance(seed, Sequence) else None if seed is None else int(seed) + lane
            if lane_seed is not None:
                self._generators[lane] = seeding.np_random(lane_seed)[0]
        chosen = options.get("noise_seed")
        if chosen is None:
            self._restart(mask)
            return
        seeds = [chosen] * self.num_envs if np.ndim(chosen) == 0 else list(chosen)
        if len(seeds) != self.num_envs:
            raise ValueError(f"Expected one noise_seed, or one for each of {self.num_envs} lanes, got {len(seeds)}.")
        self._noise_seeds[mask] = [self.model.check_seed(seeds[lane]) for lane in np.flatnonzero(mask)]
        self._start(mask)

    def _restart(self, mask: Booleans) -> None:
        groups = np.arange(self.num_envs) // self.shared_noise
        for group in np.unique(groups[mask]).tolist():
            lanes = mask & (groups == group)
            self._noise_seeds[lanes] = self.model.draw_seed(self._generator(group * self.shared_noise))
        self._start(mask)

    def _start(self, mask: Booleans) -> None:
        if mask.any():
            self._states[mask] = self.model.start(self._noise_seeds[mask])
        self._actions[mask] = -1
        self._steps[mask] = 0

    def _generator(self, lane: int) -> np.random.Generator:
        if (known := self._generators[lane]) is None:
            known = self._generators[lane] = seeding.np_random()[0]
        return known

    def _described(self, actions: Indices, steps: Indices) -> list[str]:
        return [self.model.describe(row[:step].tolist()) for row, step in zip(actions, steps, strict=True)]

    def _texts(self) -> list[str]:
        return self._described(self._actions, self._steps)

    def _frames(self) -> list[NDArray[np.uint8]]:
        return [self.model.frame(image) for image in self.model.trajectory_images(self._states)]

    def _counts(self) -> dict[str, Indices]:
        return {"step": self._steps, "noise_seed": self._noise_seeds}

    def _infos(self, mask: Booleans) -> LaneInfos:
        texts = partial(self._described, self._actions[mask], self._steps[mask])
        masks = partial(self.model.masks, self._steps.copy())
        return lane_infos(mask, texts, masks, self._counts(), text=self.text)


class DiffusionGuidanceEnv(SingleLane):
    """Refine an image with a frozen diffusion model, choosing the direction of guidance block by block.

    ## Description
    A deterministic sampler turns noise into an image in ``steps`` denoising steps, which are cut into ``blocks``. For
    every block an action chooses what the model is guided towards, a text or a class, and how strongly. Only the
    initial noise is random: given it, the same actions give the same image. There is no table of states
    (``env.unwrapped.mdp``): design agents that need one don't apply, the agents "deep" and "enumerated" do.

    What a person compares is the image that the model predicts after each block (``trajectory_images``), through its
    encoding (``trajectory_features``).

    Making the environment reads the model's configuration only. The model is loaded by the first ``reset()``, the image
    encoder by the first features.

    ## Action Space
    ``Discrete(A)``: condition ``a // len(weights)`` with weight ``a % len(weights)``; see
    ``env.unwrapped.model.directions``. The guided output of the model is u + w (c - u), with u and c its outputs
    without and with the condition. All actions are legal at every step.

    ## Observation Space
    ``Box((2 C H W + 1,), float32)``: the latent and the predicted clean latent (0 before the first block), in
    -1e6..1e6, and the share of blocks that are done, in 0..1. ``env.unwrapped.model.split(observations)`` takes them
    apart.

    ## Starting State
    Noise. ``reset(seed=...)`` seeds its draw; ``reset(options={"noise_seed": n})`` begins from the n-th noise.

    ## Rewards
    Always 0: the reward is what is to be learned. Wrap the environment in ``PreferenceQuery`` (1 for the preferred
    lane) or ``LearnedReward`` (theta . phi(image)).

    ## Episode End
    - Termination: all blocks are done; ``env.spec.max_episode_steps`` is their number.
    - Truncation: never.

    ## Information
    ``reset()`` and ``step()`` return a dict with
    - ``action_mask``: int8 (A,), all 1, and all 0 at the end.
    - ``directions``: the directions so far as text.
    - ``step``: number of blocks done.
    - ``noise_seed``: number of the noise.

    ## Arguments
    ```python
    import gymnasium
    import edpbrl_gym

    gymnasium.make("edpbrl/DiffusionGuidance-v0", conditions=[0, 1, 7, 8])  # digits, by the package's model
    gymnasium.make_vec("edpbrl/DiffusionGuidance-v0", num_envs=8, shared_noise=4)
    gymnasium.make(
        "edpbrl/DiffusionGuidance-v0",
        model="CompVis/stable-diffusion-v1-4",
        conditions=["a lighthouse in warm light", "a lighthouse in fog"],
        weights=[4.0, 8.0],
        steps=50,
        encoder="open_clip:ViT-L-14/openai",
    )
    ```

    - ``model=None``: hub id or folder of a diffusers pipeline: one like Stable Diffusion 1.x (text conditions), or one
      of pixels with class embeddings, of which the last means "no class"; None is
      such a model of 8 x 8 digits that ships with the package.
    - ``conditions=None``: list of texts or classes; None: all classes.
    - ``weights=(2.0,)``: list of guidance weights.
    - ``blocks=5``: number of blocks B; ``steps=10``: number of denoising steps, a multiple of B.
    - ``scheduler="ddim"``: "ddim" (eta = 0), "euler", "dpm", "deis" or "unipc", all deterministic given the noise.
    - ``encoder="strokes"``: the image encoder, as ``edpbrl_gym.features.load_image_encoder`` takes it.
    - ``num_noises=None``: begin from one of so many noises, 0..num_noises - 1; None: any of 2**31.
    - ``render_mode=None``: "rgb_array" (the predicted image, at least 128 pixels wide) or "ansi" (the directions).
    - the vector environment also takes ``autoreset_mode="next_step"`` | "same_step" | "disabled" and
      ``shared_noise=1``: as many neighbouring lanes begin from the same noise.

    ## References
    "Efficient Personalization of Generative Models via Optimal Experimental Design" (ED-PBRL), iterative refinement in
    diffusion models. Song, Meng and Ermon (2021), "Denoising diffusion implicit models". Ho and Salimans (2022),
    "Classifier-free diffusion guidance".

    ## Version History
    * v0: Initial version
    """

    lanes_class = DiffusionGuidanceVectorEnv
    trajectory_images = FromModel()
