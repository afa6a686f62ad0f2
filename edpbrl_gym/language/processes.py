"""One process or several: how meta-samples are shared, rewards gathered and gradients summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._arrays import Floats

if TYPE_CHECKING:
    import torch

__all__ = ["Processes"]


class Processes:
    """The processes of a run under accelerate, or the one process without it.

    Each draws an equal share of the meta-samples. Rewards are gathered, so that every baseline is that of all
    meta-samples; gradients are summed, so that all processes take the same step. The models are not wrapped: the K
    policies share modules (adapters), and run several times per step.

    Args:
        accelerator: ``accelerate.Accelerator``, or None.

    Attributes:
        rank: This process, 0 for the first.
        count: Number of processes.
    """

    def __init__(self, accelerator: Any = None) -> None:
        self._accelerator = accelerator
        self.rank = 0 if accelerator is None else int(accelerator.process_index)
        self.count = 1 if accelerator is None else int(accelerator.num_processes)

    @property
    def is_first(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    def share(self, samples: int, name: str) -> int:
        """Meta-samples of each process.

        Raises:
            ValueError: If they can't be shared equally.
        """
        if samples % self.count:
            raise ValueError(f"Expected {name} as a multiple of the {self.count} processes, got {samples}")
        return samples // self.count

    def local(self, array: Floats) -> Floats:
        """This process's part of an array over all meta-samples."""
        size = len(array) // self.count
        return array[self.rank * size : (self.rank + 1) * size]

    def gather(self, array: Floats) -> Floats:
        """Parts of all processes, concatenated in the order of the processes."""
        if self.count == 1:
            return array
        import torch

        # as bytes, which also work on devices without float64
        data = torch.from_numpy(np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1).copy())
        gathered = self._accelerator.gather(data.to(self._accelerator.device)).cpu().numpy()
        return np.ascontiguousarray(gathered).view(array.dtype).reshape(-1, *array.shape[1:])

    def mean(self, value: float) -> float:
        """Mean of a number of each process; the processes have equally many prompts."""
        return float(self.gather(np.array([value], dtype=np.float64)).mean())

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace every gradient by the sum over all processes."""
        if self.count == 1:
            return
        import torch

        for parameter in parameters:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = self._accelerator.reduce(gradient, reduction="sum")

    def wait(self) -> None:
        """Wait for all processes."""
        if self.count > 1:
            self._accelerator.wait_for_everyone()
