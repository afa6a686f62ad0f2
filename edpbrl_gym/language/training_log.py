"""The log of a run of REINFORCE: its steps and evaluations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

__all__ = ["Evaluation", "TrainingLog", "Iteration"]


@dataclass(frozen=True)
class Iteration:
    """One gradient step.

    Attributes:
        iteration: Its index, from 0.
        objective: Mean objective of its M meta-samples.
        deviation: Their standard deviation.
        gradient_norm: Norm of the gradient estimate of all policies together, before clipping.
        divergence: Mean estimate of KL(p_q || p_base), nats per prompt; None without a KL term.
        words: Mean number of words per prompt.
        seconds: Wall-clock time.
    """

    iteration: int
    objective: float
    deviation: float
    gradient_norm: float
    divergence: float | None
    words: float
    seconds: float


@dataclass(frozen=True)
class Evaluation:
    """The objective on random streams that training does not use; the same streams every time.

    Attributes:
        iteration: Gradient steps before it.
        values: The objective of each meta-sample.
    """

    iteration: int
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean objective."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean."""
        return float(np.std(self.values, ddof=1) / np.sqrt(len(self.values)))


@dataclass
class TrainingLog:
    """All steps and evaluations so far.

    Attributes:
        iterations: The steps.
        evaluations: The evaluations of the policies.
        base: The evaluation of the base model, which is not trained, on the same streams.
    """

    iterations: list[Iteration] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    base: Evaluation | None = None

    @property
    def best(self) -> Evaluation | None:
        """The evaluation with the largest mean, the first if several tie; None if there are none yet."""
        return max(self.evaluations, key=lambda evaluation: evaluation.mean, default=None)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrainingLog:
        """Inverse of ``as_dict``."""

        def evaluation(entry: dict[str, Any]) -> Evaluation:
            return Evaluation(entry["iteration"], tuple(entry["values"]))

        return cls(
            [Iteration(**entry) for entry in data["iterations"]],
            [evaluation(entry) for entry in data["evaluations"]],
            None if data["base"] is None else evaluation(data["base"]),
        )
