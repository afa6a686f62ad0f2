"""What all environments need: one encoder a process, plain arguments, autoreset modes, masks of resets."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from edpbrl_gym.features import TextEncoder, load_encoder

__all__ = ["check_jsonable", "check_reset_mask", "parse_autoreset_mode", "shared_encoder"]


@functools.lru_cache(maxsize=4)
def _loaded_encoder(spec: str, files: tuple[tuple[str, int, int], ...]) -> TextEncoder:
    return load_encoder(spec)


def shared_encoder(spec: str) -> TextEncoder:
    """One model for all single environments of a process; loaded again when its local files have changed."""
    _, colon, place = spec.partition(":")
    path = Path(place.removeprefix("local-dir:"))
    if not colon or not place or not path.exists():  # a name, not a place on this machine
        return _loaded_encoder(spec, ())
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file), file.stat()) for file in found if file.is_file()]
    return _loaded_encoder(spec, tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats))


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


def check_reset_mask(mask: Any, num_envs: int) -> NDArray[np.bool_]:
    """Return ``options["reset_mask"]`` if it is boolean, (num_envs,), with at least one True, else a ValueError."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,):
        got = f"{mask.dtype} of shape {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise ValueError(f"Expected options['reset_mask'] as a boolean array of shape ({num_envs},), got {got}.")
    if not mask.any():
        raise ValueError("Expected options['reset_mask'] with at least one True, got none.")
    return mask
