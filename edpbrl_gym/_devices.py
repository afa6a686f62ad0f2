"""Devices of worker processes: each takes one that no other worker of this user and machine has."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edpbrl_gym._files import hold

__all__ = ["claim", "own_device"]

_claimed: dict[str, int] = {}  # name of a device -> open lock file, held until this process ends


def own_device(device: str | None) -> str | None:
    """Return the torch device of this worker process.

    Where a GPU is asked for (None or "cuda") and there are some, it is one that no other worker has, and the same one
    at every call; any other device is returned as it is, so that "cuda:0" can be shared.

    Raises:
        RuntimeError: All are taken.
    """
    if device not in (None, "cuda"):
        return device
    import torch

    if not torch.cuda.is_available():
        return device
    # by their hardware names: CUDA_VISIBLE_DEVICES numbers them anew in every process
    names = [str(torch.cuda.get_device_properties(place).uuid) for place in range(torch.cuda.device_count())]
    return f"cuda:{claim(names)}"


def claim(names: Sequence[str]) -> int:
    """Return the place of a device that no other process has claimed, by names that all processes use.

    This process has it until it ends. If all are taken, a RuntimeError says so.
    """
    for place, name in enumerate(names):
        if name in _claimed:
            return place
    owner = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"edpbrl-gym-devices-{owner}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for place, name in enumerate(names):
        handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if hold(handle):
            _claimed[name] = handle
            return place
        os.close(handle)
    raise RuntimeError(
        f"Expected a free GPU of {platform.node()} for this worker, other workers have all {len(names)}; start one "
        "worker for each GPU, or let them share one by --device cuda:0"
    )
