"""Bases of the environments: what any has, lanes in one array, one lane alone, and those that write prompts."""

from __future__ import annotations

import copy
import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Floats32, Indices
from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._validation import check_count
from edpbrl_gym.envs.common import (
    LaneInfos,
    check_complete,
    check_lane_actions,
    final_infos,
    first_seed,
    lane_infos,
    lanes_to_reset,
    parse_autoreset_mode,
    shared_encoder,
)
from edpbrl_gym.features import TextEncoder, as_encoder

__all__ = [
    "RENDER_MODES",
    "ArrayLanes",
    "FromModel",
    "LegalDiscrete",
    "LegalMultiDiscrete",
    "ModelEnvironment",
    "PromptLanes",
    "SingleLane",
    "WritingModel",
    "draw_text",
]

RENDER_MODES = ["ansi", "rgb_array"]
StepResult = tuple[NDArray[Any], NDArray[np.float64], Booleans, Booleans, dict[str, Any]]


class LegalDiscrete(Discrete):
    """``Discrete(n)`` whose ``sample()`` without a mask draws from the actions that are legal in every state.

    It compares equal to ``Discrete(n)``. Code that samples without knowing of masks (both ``check_env``s, a first
    random rollout) never plays an illegal action; pass ``mask=info["action_mask"]`` to draw from all legal ones.
    """

    def __init__(self, n: int, always_legal: ArrayLike, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(n, seed=seed)
        self.always_legal: Indices = np.asarray(always_legal, dtype=np.int64)

    def sample(self, mask: NDArray[np.int8] | None = None, probability: Any = None) -> np.int64:
        """Draw an action; without arguments one that is legal in every state, else as ``Discrete.sample``."""
        if mask is None and probability is None:
            return np.int64(self.always_legal[self.np_random.integers(self.always_legal.size)])
        return np.int64(super().sample(mask, probability))


class LegalMultiDiscrete(MultiDiscrete):
    """A batch of ``LegalDiscrete`` spaces, one for each of ``num_envs`` lanes of a vector environment."""

    def __init__(
        self, n: int, always_legal: ArrayLike, num_envs: int, seed: int | np.random.Generator | None = None
    ) -> None:
        super().__init__(np.full(num_envs, n, dtype=np.int64), seed=seed)
        self.always_legal: Indices = np.asarray(always_legal, dtype=np.int64)

    def sample(self, mask: tuple[NDArray[np.int8], ...] | None = None, probability: Any = None) -> NDArray[np.int64]:
        """Draw one action per lane; for masked draws pass ``mask=tuple(infos["action_mask"])``."""
        if mask is None and probability is None:
            return self.always_legal[self.np_random.integers(self.always_legal.size, size=self.shape)]
        return super().sample(mask, probability)


@batch_space.register(LegalDiscrete)
def _batch_legal(space: LegalDiscrete, n: int = 1) -> Any:
    # as Gymnasium's own registrations do, the batch samples from a copy of the space's generator
    return LegalMultiDiscrete(int(space.n), space.always_legal, n, seed=copy.deepcopy(space.np_random))


class FromModel:
    """An attribute of an environment that is its model's, for wrappers and agents; models load when it is read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, env: Any, owner: type | None = None) -> Any:
        """The model's attribute."""
        return self if env is None else getattr(env.model, self.name)


class ModelEnvironment:
    """An environment with a ``model`` that knows the longest episode, ``model.horizon``, and a render mode.

    ``spec.max_episode_steps``, which Gymnasium's wrappers ask for, is the longest possible episode. It depends on the
    arguments (steps of the vocabulary, token budget), so it can't be set in the registry, where it would also add a
    ``TimeLimit``, which marks the last step as truncated though the episode terminates.
    """

    model: Any
    render_mode: str | None
    _spec: EnvSpec | None = None

    encoder = FromModel()
    trajectory_features = FromModel()

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


class ArrayLanes(ModelEnvironment, VectorEnv):
    """``num_envs`` lanes in one array.

    It gives the same observations, rewards, ends and infos as Gymnasium's ``SyncVectorEnv`` over single environments.
    The infos are a dict (``LaneInfos``) whose texts and masks are made when they are read, and show their own step
    whenever that is.

    A subclass names the class of its model, which says what happens in a lane: spaces and ``horizon``.

    Args:
        num_envs: Number of lanes.
        render_mode: None, "ansi" or "rgb_array".
        autoreset_mode: What happens after a lane's last step: "next_step" (its next step ignores the action and
            returns the first observation), "same_step" (the same step returns it; the last observation is in
            ``infos["final_obs"]`` and ``infos["final_info"]``) or "disabled" (call
            ``reset(options={"reset_mask": mask})``).
        max_episode_steps: At least the longest episode, as in the spec of such lanes. Less is a ValueError, as these
            lanes don't cut episodes short.
        **arguments: Of the model.
    """

    model_class: ClassVar[Any]
    text: ClassVar[str] = "prompt"  # key of what is written, in the infos
    metadata: dict[str, Any] = {
        "render_modes": RENDER_MODES,
        "render_fps": 1,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        autoreset_mode: str | AutoresetMode = "next_step",
        max_episode_steps: int | None = None,
        **arguments: Any,
    ) -> None:
        self.num_envs = check_count(num_envs, "num_envs")
        self.model = model = self.model_class(**arguments)
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise ValueError(f"Expected render_mode None or one of {RENDER_MODES}, got {render_mode!r}.")
        if max_episode_steps is not None and max_episode_steps < model.horizon:
            raise ValueError(
                f"Expected max_episode_steps of at least {model.horizon}, the longest episode, got "
                f"{max_episode_steps}; to cut episodes short make the lanes one by one with "
                'vectorization_mode="sync".'
            )
        self.render_mode = render_mode
        self.autoreset_mode = parse_autoreset_mode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = model.observation_space()
        self.single_action_space = model.action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._was_reset = False
        self._all_lanes: Indices = np.arange(num_envs)
        self._make_lanes()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin episodes in all lanes, or in those of ``options["reset_mask"]`` (boolean, (num_envs,)).

        As in Gymnasium's own vector environments the seed may be a list with one for each lane.
        """
        super().reset(seed=first_seed(seed, self.num_envs))
        mask = lanes_to_reset(options, self.num_envs, was_reset=self._was_reset)
        self._begin(mask, seed, options or {})
        self._was_reset = True
        return self._observations.copy(), self._infos(mask)

    def step(self, actions: ArrayLike) -> StepResult:
        """Take one action in each lane.

        Args:
            actions: Integers of shape (num_envs,); ignored for a lane that restarts in this step.

        Raises:
            ValueError: If an action is illegal; the message names the lane and why. No lane has moved.
            ResetNeeded: If reset() was never called or, in mode "disabled", a complete lane was not reset.
        """
        self._check_was_reset()
        chosen = check_lane_actions(actions, self.num_envs)
        restarting = self._complete().copy()
        check_complete(restarting, self.autoreset_mode)
        if restarting.any():
            active = np.flatnonzero(~restarting)
            self._take(active, chosen[active])
            self._restart(restarting)
        else:
            self._take(self._all_lanes, chosen)
        terminations = self._complete().copy()
        final: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP and terminations.any():
            final = final_infos(self._observations, self._infos(terminations), terminations)
            self._restart(terminations)
        infos = self._infos(np.ones(self.num_envs, dtype=np.bool_))
        infos.update(final)
        truncations = np.zeros(self.num_envs, dtype=np.bool_)
        return self._observations.copy(), np.zeros(self.num_envs), terminations, truncations, infos

    def render(self) -> tuple[Any, ...] | None:
        """One text ("ansi") or image ("rgb_array", uint8 (height, width, 3)) for each lane."""
        self._check_was_reset()
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() was called without a render mode; make the environment with render_mode="
                '"ansi" or "rgb_array".'
            )
            return None
        return tuple(self._texts() if self.render_mode == "ansi" else self._frames())

    @abstractmethod
    def _make_lanes(self) -> None:
        """Make the arrays of all lanes."""

    @abstractmethod
    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions of each lane, int8 (num_envs, A); all zero for a complete episode."""

    @property
    @abstractmethod
    def _observations(self) -> NDArray[Any]:
        """Observations of all lanes, not to be written to."""

    @abstractmethod
    def _complete(self) -> Booleans:
        """Lanes whose episode is complete."""

    @abstractmethod
    def _take(self, lanes: Indices, actions: Indices) -> None:
        """Take one action in each of the given lanes, none of which is complete; others are left alone."""

    @abstractmethod
    def _restart(self, mask: Booleans) -> None:
        """Begin episodes in the masked lanes."""

    def _begin(self, mask: Booleans, seed: int | Sequence[int | None] | None, options: dict[str, Any]) -> None:
        """Begin episodes in the masked lanes by ``reset``; nothing is random unless a subclass says so."""
        self._restart(mask)

    @abstractmethod
    def _counts(self) -> dict[str, Indices]:
        """Entries of the infos besides the mask and the text, (num_envs,) each."""

    @abstractmethod
    def _infos(self, mask: Booleans) -> LaneInfos:
        """Infos of the masked lanes as they are now, whatever is read of them later."""

    @abstractmethod
    def _texts(self) -> list[str]:
        """What "ansi" renders."""

    @abstractmethod
    def _frames(self) -> list[NDArray[np.uint8]]:
        """What "rgb_array" renders."""

    def _check_was_reset(self) -> None:
        if not self._was_reset:
            raise ResetNeeded("The episode is not started yet; call reset() before step() or render().")

    def _where(self, lane: int) -> str:
        """The lane's number, for messages; nothing where there is one lane only."""
        return f" in lane {lane}" if self.num_envs > 1 else ""


class SingleLane(ModelEnvironment, gymnasium.Env):
    """One lane alone as an environment; a subclass names the class of its lanes and is its documentation."""

    lanes_class: ClassVar[Any]
    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 1}

    def __init__(self, *, render_mode: str | None = None, **arguments: Any) -> None:
        self._lanes = self.lanes_class(1, render_mode=render_mode, autoreset_mode="disabled", **arguments)
        self.model, self.render_mode = self._lanes.model, render_mode
        self.observation_space = self._lanes.single_observation_space
        self.action_space = self._lanes.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        observations, _ = self._lanes.reset(seed=seed, options=options)
        return observations[0], self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action.

        Raises:
            ValueError: If the action is illegal in this state; the message says what was allowed.
            TypeError: If the action is not an integer.
            ResetNeeded: If the episode is complete or was never started.
        """
        try:
            chosen = operator.index(action)
        except TypeError:
            raise TypeError(f"Expected an integer action, got {type(action).__name__}: {action!r}.") from None
        lanes = self._lanes  # not their step: one lane that never restarts by itself needs little of it
        lanes._check_was_reset()
        if lanes._complete()[0]:
            raise ResetNeeded("The episode is complete; call reset() before step().")
        lanes._take(lanes._all_lanes, check_lane_actions([chosen], 1))
        return lanes._observations[0].copy(), 0.0, bool(lanes._complete()[0]), False, self._info()

    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions of the current step, int8 (A,); the method that MaskablePPO asks."""
        masks: NDArray[np.int8] = self._lanes.action_masks()
        return masks[0]

    def render(self) -> Any:
        """A text for "ansi", an uint8 image (height, width, 3) for "rgb_array"."""
        rendered = self._lanes.render()
        return None if rendered is None else rendered[0]

    def _info(self) -> dict[str, Any]:
        lanes = self._lanes
        counts = {key: count.item() for key, count in lanes._counts().items()}
        return {"action_mask": self.action_masks(), lanes.text: lanes._texts()[0], **counts}


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

    def observation_space(self) -> MultiDiscrete:
        """Return a new observation space, ``MultiDiscrete([V + 1] * horizon)``."""
        return MultiDiscrete(np.full(self.horizon, self.padding + 1, dtype=np.int64))

    @cached_property
    def encoder(self) -> TextEncoder:
        """The text encoder, loaded on first use."""
        return shared_encoder(self.encoder_spec)

    def use_encoder(self, encoder: TextEncoder) -> None:
        """Use a live encoder, such as an instance of one's own class, instead of loading the one that is named."""
        self.encoder = as_encoder(encoder)

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


def draw_text(text: str) -> NDArray[np.uint8]:
    """Draw a prompt as black text on white, uint8 (192, 512, 3).

    Text that doesn't fit is cut, with an ellipsis; a warning names each character missing from all fonts, once.
    """
    check_installed(Need("PIL", "pictures of prompts"))
    from PIL import Image, ImageDraw

    from edpbrl_gym.rendering.lettering import letterings

    width, height = 512, 192
    image = Image.new("RGB", (width, height), "white")
    (lettering,) = letterings([text], [12])
    pencil, step, margin = ImageDraw.Draw(image), lettering.line_height, 12
    lines = lettering.lines(text, width - 2 * margin, (height - 2 * margin) // step)
    for number, line in enumerate(lines):
        lettering.draw(pencil, (margin, margin + number * step), line, "black")
    return np.array(image, dtype=np.uint8)


class PromptLanes(ArrayLanes):
    """Prompts in ``num_envs`` lanes, in one array; see ``ArrayLanes`` for the arguments."""

    trajectory_texts = FromModel()

    @abstractmethod
    def _legal_state(self) -> Any:
        """A copy of what the model's ``masks`` takes."""

    def _texts(self) -> list[str]:
        texts: list[str] = self.model.texts(self._observations)
        return texts

    def _frames(self) -> list[NDArray[np.uint8]]:
        return [draw_text(text) for text in self._texts()]

    def _infos(self, mask: Booleans) -> LaneInfos:
        texts: Callable[[], list[str]] = partial(self.model.texts, self._observations[mask])
        return lane_infos(mask, texts, partial(self.model.masks, self._legal_state()), self._counts())
