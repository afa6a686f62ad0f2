"""The diffusion environment: an image, refined block by block in chosen directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats32
from edpbrl_gym.diffusion.denoiser import Condition
from edpbrl_gym.envs.array_lanes import RENDER_MODES, integer_action
from edpbrl_gym.envs.diffusion_model import GuidanceAttributes, GuidanceModel

__all__ = ["DiffusionGuidanceEnv"]


class DiffusionGuidanceEnv(GuidanceAttributes, gymnasium.Env):
    """Refine an image with a frozen diffusion model, choosing the direction of guidance block by block.

    ## Description
    A deterministic sampler turns noise into an image in ``steps`` denoising steps, which are cut into ``blocks``. For
    every block an action chooses what the model is guided towards, a text or a class, and how strongly. Only the
    initial noise is random: given it, the same actions give the same image. There is no table of states
    (``env.unwrapped.mdp``): design agents that need one don't apply, the agents "deep", "reinforce-network" and
    "enumerated" do.

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
      of pixels with class embeddings, of which the last means "no class" (``edpbrl train-mini-diffusion``); None is
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

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 1}

    def __init__(
        self,
        model: str | None = None,
        conditions: Sequence[Condition] | None = None,
        weights: Sequence[float] = (2.0,),
        blocks: int = 5,
        steps: int = 10,
        scheduler: str = "ddim",
        encoder: str = "strokes",
        num_noises: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._set_render_mode(render_mode)
        self.model = GuidanceModel(
            model=model,
            conditions=conditions,
            weights=weights,
            blocks=blocks,
            steps=steps,
            scheduler=scheduler,
            encoder=encoder,
            num_noises=num_noises,
        )
        self.observation_space = self.model.observation_space()
        self.action_space = self.model.action_space()
        self._observation: Floats32 | None = None
        self._actions: list[int] = []
        self._noise_seed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats32, dict[str, Any]]:
        """Begin from noise: a new one, or ``options["noise_seed"]``."""
        super().reset(seed=seed)
        chosen = (options or {}).get("noise_seed")
        self._noise_seed = self.model.draw_seed(self.np_random) if chosen is None else self.model.check_seed(chosen)
        self._observation, self._actions = self.model.start([self._noise_seed])[0], []
        return self._observation.copy(), self._info()

    def step(self, action: Any) -> tuple[Floats32, float, bool, bool, dict[str, Any]]:
        """Denoise by one block in a direction.

        Args:
            action: Index of a direction.

        Raises:
            ValueError: If there is no such direction.
            TypeError: If the action is not an integer.
            ResetNeeded: If the image is complete or was never started.
        """
        if self._observation is None or len(self._actions) == self.model.horizon:
            state = "not started yet" if self._observation is None else f"complete ({self.model.horizon} blocks)"
            raise ResetNeeded(f"The image is {state}; call reset() before step().")
        direction = integer_action(action)
        self.model.check_action(direction)
        self._observation = self.model.advance(self._observation, [direction])[0]
        self._actions.append(direction)
        return self._observation.copy(), 0.0, len(self._actions) == self.model.horizon, False, self._info()

    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions, int8 (A,); the method that MaskablePPO asks."""
        return self.model.masks(np.array([len(self._actions)]))[0]

    def render(self) -> Any:
        """The predicted image, uint8 (height, width, 3), or the directions so far."""
        if self._observation is None:
            raise ResetNeeded("There is no image yet; call reset() before render().")
        images = self.model.trajectory_images(self._observation) if self.render_mode == "rgb_array" else ()
        rendered = self._rendered([self.model.describe(self._actions)], lambda _: [*map(self.model.frame, images)])
        return None if rendered is None else rendered[0]

    def _info(self) -> dict[str, Any]:
        return {
            "action_mask": self.action_masks(),
            "directions": self.model.describe(self._actions),
            "step": len(self._actions),
            "noise_seed": self._noise_seed,
        }
