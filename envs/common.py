"""Shared code of the environments: one encoder per process, plain arguments, autoreset modes, reset masks."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym.features import ImageEncoder, TextEncoder, check_encoder_spec, load_encoder, load_image_encoder

__all__ = [
    "check_complete",
    "check_encoder_argument",
    "check_jsonable",
    "check_lane_actions",
    "check_limit",
    "check_observations",
    "first_seed",
    "lanes_to_reset",
    "parse_autoreset_mode",
    "shared_encoder",
    "shared_image_encoder",
    "shared_model",
]


@functools.lru_cache(maxsize=4)
def _loaded(loader: Callable[[str], Any], spec: str, files: tuple[tuple[str, int, int], ...]) -> Any:
    return loader(spec)


def shared_model(loader: Callable[[str], Any], spec: str, place: str) -> Any:
    """Return ``loader(spec)``: one object for all environments of a process, loaded again when local files change.

    Args:
        loader: A function of a module (its results are kept by function).
        spec: What it takes.
        place: Folder or file on this machine, or anything else that is none.
    """
    path = Path(place)
    if not place or not path.exists():  # a name, not a path on this machine
        return _loaded(loader, spec, ())
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file), file.stat()) for file in files if file.is_file()]
    return _loaded(loader, spec, tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats))


def _place_of(spec: str) -> str:
    return spec.partition(":")[2].removeprefix("local-dir:")


def shared_encoder(spec: str) -> TextEncoder:
    """One text encoder for all single environments of a process."""
    encoder: TextEncoder = shared_model(load_encoder, spec, _place_of(spec))
    return encoder


def shared_image_encoder(spec: str) -> ImageEncoder:
    """One image encoder for all single environments of a process."""
    encoder: ImageEncoder = shared_model(load_image_encoder, spec, _place_of(spec))
    return encoder


def check_jsonable(**arguments: Any) -> None:
    """Raise a TypeError for an argument that JSON can't hold: the arguments of an environment are part of its spec."""
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except TypeError:
            raise TypeError(
                f"Expected {name} as a plain name, path string, number or list, got {type(value).__name__}: an "
                "environment's arguments are written to its spec as JSON. Pass str(path) for a path; live objects "
                "such as an encoder or an oracle go to wrappers."
            ) from None


def check_encoder_argument(encoder: Any) -> str:
    """Return the name of an encoder if it has a known form, else a TypeError or ValueError; nothing is loaded."""
    if not isinstance(encoder, str):
        raise TypeError(f'Expected encoder as a string such as "minilm", got {encoder!r}.')
    return check_encoder_spec(encoder)


def check_limit(max_episode_steps: int | None, horizon: int) -> None:
    """Raise a ValueError for a limit that would cut episodes of ``horizon`` steps, which these lanes can't do."""
    if max_episode_steps is not None and max_episode_steps < horizon:
        raise ValueError(
            f"Expected max_episode_steps of at least {horizon}, the longest episode, got {max_episode_steps}; to cut "
            'episodes short make the lanes one by one with vectorization_mode="sync".'
        )


def parse_autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """Return Gymnasium's autoreset mode for "next_step", "same_step" or "disabled"."""
    modes = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}
    modes["disabled"] = AutoresetMode.DISABLED
    if isinstance(mode, AutoresetMode):
        return mode
    for name, member in modes.items():
        if mode in (name, member.value):
            return member
    raise ValueError(f"Expected autoreset_mode to be one of {sorted(modes)}, got {mode!r}.")


def _check_reset_mask(mask: Any, num_envs: int) -> NDArray[np.bool_]:
    """Return ``options["reset_mask"]`` if it is boolean, (num_envs,), with at least one True, else a ValueError."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,):
        kind = f"{mask.dtype} of shape {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise ValueError(f"Expected options['reset_mask'] as a boolean array of shape ({num_envs},), got {kind}.")
    if not mask.any():
        raise ValueError("Expected options['reset_mask'] with at least one True, got none.")
    return mask


def check_observations(observations: ArrayLike, horizon: int, padding: int, *, length: str) -> NDArray[np.int64]:
    """Return observations, one or many, as integers (n, horizon) in 0..padding, else a ValueError.

    Args:
        observations: Observations of one or more lanes.
        horizon: Entries of an observation.
        padding: The largest entry.
        length: Symbol of the horizon in the message.
    """
    lanes = np.asarray(observations)
    if lanes.ndim == 1:
        lanes = lanes[None]
    if (
        lanes.ndim != 2
        or lanes.shape[1] != horizon
        or lanes.dtype.kind not in "iu"
        or (lanes.size and (lanes.min() < 0 or lanes.max() > padding))
    ):
        raise ValueError(
            f"Expected observations as integers in 0..{padding} of shape (n, {length}) = (n, {horizon}), "
            f"got {lanes.dtype} of shape {lanes.shape}."
        )
    return lanes.astype(np.int64, copy=False)


def first_seed(seed: int | Sequence[int | None] | None, num_envs: int) -> int | None:
    """Return the one seed of a vector environment; a sequence must hold one for each lane, and the first counts."""
    if seed is not None and not isinstance(seed, int | np.integer):
        if len(seed) != num_envs:
            raise ValueError(f"Expected one seed for each of {num_envs} lanes, got {len(seed)}.")
        seed = seed[0]
    return None if seed is None else int(seed)


def lanes_to_reset(options: dict[str, Any] | None, num_envs: int, *, was_reset: bool) -> NDArray[np.bool_]:
    """Return the lanes to reset, boolean (num_envs,): those of ``options["reset_mask"]``, or all.

    Raises:
        ValueError: A mask that is no boolean array, or empty.
        ResetNeeded: A mask that leaves lanes out before the first reset of all.
    """
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, dtype=np.bool_)
    mask = _check_reset_mask(options["reset_mask"], num_envs)
    if not was_reset and not mask.all():
        raise ResetNeeded("The first reset must begin all lanes; call reset() without a reset_mask.")
    return mask


def check_complete(complete: NDArray[np.bool_], mode: AutoresetMode) -> None:
    """Raise ResetNeeded for complete lanes (n,) in the mode in which the caller must reset them."""
    if mode is AutoresetMode.DISABLED and complete.any():
        lanes = np.flatnonzero(complete).tolist()
        raise ResetNeeded(f'Lanes {lanes} are complete; call reset(options={{"reset_mask": mask}}) first.')


def check_lane_actions(actions: ArrayLike, num_envs: int) -> NDArray[np.int64]:
    """Return one action for each lane as integers (num_envs,), else a ValueError."""
    array = np.asarray(actions)
    if array.shape != (num_envs,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"Expected actions as integers of shape ({num_envs},), got {array.dtype} of shape {array.shape}."
        )
    return array.astype(np.int64)
