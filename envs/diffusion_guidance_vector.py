"""The diffusion environment over many lanes, all in one array."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans, Floats32, Indices
from edpbrl_gym._validation import check_count
from edpbrl_gym.diffusion.denoiser import Condition
from edpbrl_gym.envs.array_lanes import RENDER_MODES, ArrayLanes
from edpbrl_gym.envs.diffusion_model import GuidanceAttributes, GuidanceModel
from edpbrl_gym.envs.infos import LaneInfos, lane_infos

__all__ = ["DiffusionGuidanceVectorEnv"]


class DiffusionGuidanceVectorEnv(GuidanceAttributes, ArrayLanes):
    """``num_envs`` images at once; each lane behaves as documented in ``DiffusionGuidanceEnv``.

    A step of all lanes costs one call of the diffusion model per denoising step, whatever their number. Results may
    differ from those of single environments in the last digits, as sums are rounded in another order.

    Lane i draws its noise as a single environment with the seed + i does. With ``shared_noise`` = K the lanes i K to
    i K + K - 1 begin from the same noise, that of lane i K: the options of a question then differ by their directions
    only; lanes of a group that are reset without the others (``reset_mask``) get a new noise of their own.
    ``reset(options={"noise_seed": n})`` begins all lanes from the n-th noise, or from one each (a list).

    Args:
        num_envs: Number of lanes.
        shared_noise: How many neighbouring lanes share their noise, a divisor of ``num_envs``.
        autoreset_mode: See ``ArrayLanes``.
        max_episode_steps: See ``ArrayLanes``.
        render_mode: See ``DiffusionGuidanceEnv``, as for the other arguments.

    Raises:
        ValueError: If ``shared_noise`` doesn't divide ``num_envs``, or another argument is out of range.
    """

    metadata: dict[str, Any] = {
        "render_modes": RENDER_MODES,
        "render_fps": 1,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        model: str | None = None,
        conditions: Sequence[Condition] | None = None,
        weights: Sequence[float] = (2.0,),
        blocks: int = 5,
        steps: int = 10,
        scheduler: str = "ddim",
        encoder: str = "strokes",
        num_noises: int | None = None,
        shared_noise: int = 1,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = "next_step",
        max_episode_steps: int | None = None,
    ) -> None:
        num_envs = check_count(num_envs, "num_envs")
        self.shared_noise = check_count(shared_noise, "shared_noise")
        if num_envs % self.shared_noise:
            raise ValueError(f"Expected shared_noise as a divisor of num_envs = {num_envs}, got {shared_noise}.")
        self._set_render_mode(render_mode)
        guidance = GuidanceModel(
            model=model,
            conditions=conditions,
            weights=weights,
            blocks=blocks,
            steps=steps,
            scheduler=scheduler,
            encoder=encoder,
            num_noises=num_noises,
        )
        ArrayLanes.__init__(
            self, num_envs, guidance, autoreset_mode=autoreset_mode, max_episode_steps=max_episode_steps
        )
        width = 2 * guidance.size + 1
        self._states: Floats32 = np.zeros((num_envs, width), dtype=np.float32)
        self._actions: Indices = np.full((num_envs, guidance.horizon), -1, dtype=np.int64)
        self._steps: Indices = np.zeros(num_envs, dtype=np.int64)
        self._noise_seeds: Indices = np.zeros(num_envs, dtype=np.int64)
        self._generators: list[np.random.Generator | None] = [None] * num_envs  # of each lane, made when needed

    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions of each lane, int8 (num_envs, A): all, and none of a complete image."""
        return self.model.masks(self._steps)

    def render(self) -> tuple[Any, ...] | None:
        """One image ("rgb_array") or text ("ansi") for each lane."""
        self._check_was_reset()
        images = self.model.trajectory_images(self._states) if self.render_mode == "rgb_array" else ()
        rendered = self._rendered(self._texts(self._actions, self._steps), lambda _: [*map(self.model.frame, images)])
        return None if rendered is None else tuple(rendered)

    @property
    def _observations(self) -> Floats32:
        return self._states

    def _complete(self) -> Booleans:
        return np.asarray(self._steps == self.model.horizon)

    def _take(self, lanes: Indices, actions: Indices) -> None:
        for lane, action in zip(lanes.tolist(), actions.tolist(), strict=True):
            self.model.check_action(action, lane)
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

    def _texts(self, actions: Indices, steps: Indices) -> list[str]:
        return [self.model.describe(row[:step].tolist()) for row, step in zip(actions, steps, strict=True)]

    def _infos(self, mask: Booleans) -> LaneInfos:
        counts = {"step": self._steps, "noise_seed": self._noise_seeds}
        texts = partial(self._texts, self._actions[mask], self._steps[mask])
        return lane_infos(mask, texts, partial(self.model.masks, self._steps.copy()), counts, text="directions")
