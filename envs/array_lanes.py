"""Bases of the environments: spec and rendering of those with a model, and lanes in one array."""

from __future__ import annotations

import copy
import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Indices
from edpbrl_gym.envs.common import (
    check_complete,
    check_lane_actions,
    check_limit,
    first_seed,
    lanes_to_reset,
    parse_autoreset_mode,
)
from edpbrl_gym.envs.infos import LaneInfos, final_infos

__all__ = ["RENDER_MODES", "ArrayLanes", "ModelEnvironment", "integer_action"]

StepResult = tuple[NDArray[Any], NDArray[np.float64], Booleans, Booleans, dict[str, Any]]


RENDER_MODES = ["ansi", "rgb_array"]


def integer_action(action: Any) -> int:
    """Return an action as an int, else a TypeError."""
    try:
        return operator.index(action)
    except TypeError:
        raise TypeError(f"Expected an integer action, got {type(action).__name__}: {action!r}.") from None


class ModelEnvironment:
    """An environment with a ``model`` that knows the longest episode, ``model.horizon``, and a render mode.

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

    def _set_render_mode(self, mode: str | None) -> None:
        if mode is not None and mode not in RENDER_MODES:
            raise ValueError(f"Expected render_mode None or one of {RENDER_MODES}, got {mode!r}.")
        self.render_mode = mode

    def _rendered(self, texts: list[str], frames: Callable[[list[str]], list[Any]]) -> list[Any] | None:
        """The texts, or their frames, by the render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() was called without a render mode; make the environment with render_mode="
                '"ansi" or "rgb_array".'
            )
            return None
        return list(texts) if self.render_mode == "ansi" else frames(texts)


class ArrayLanes(ModelEnvironment, VectorEnv):
    """``num_envs`` lanes in one array.

    It gives the same observations, rewards, ends and infos as Gymnasium's ``SyncVectorEnv`` over single environments.
    The infos are a dict (``LaneInfos``) whose texts and masks are made when they are read, and show their own step
    whenever that is.

    Args:
        num_envs: Number of lanes.
        model: What happens in a lane: spaces and ``horizon``.
        autoreset_mode: What happens after a lane's last step: "next_step" (its next step ignores the action and
            returns the first observation), "same_step" (the same step returns it; the last observation is in
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
        self._all_lanes: Indices = np.arange(num_envs)

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
    def _infos(self, mask: Booleans) -> LaneInfos:
        """Infos of the masked lanes as they are now, whatever is read of them later."""

    def _check_was_reset(self) -> None:
        if not self._was_reset:
            raise ResetNeeded("The lanes are not started yet; call reset() before step().")
