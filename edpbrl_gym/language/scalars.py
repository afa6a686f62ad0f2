"""Scalars of a REINFORCE run for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from edpbrl_gym._compat import require
from edpbrl_gym.language.training_log import TrainingLog

__all__ = ["Scalars"]


class Scalars:
    """A callback of `train` that writes the new entries of a history.

    Args:
        folder: Folder of TensorBoard's files.
        iteration: Number of earlier steps; later ones in the folder are of an interrupted run and are purged.

    Raises:
        ModuleNotFoundError: If tensorboard is not installed.
    """

    def __init__(self, folder: Path, iteration: int) -> None:
        module = require("torch.utils.tensorboard", "TensorBoard", "language")
        self._writer = module.SummaryWriter(str(folder), purge_step=iteration)
        self._steps = self._evaluations = iteration

    def __call__(self, history: TrainingLog) -> None:
        """Write the steps and evaluations since the last call."""
        for step in history.iterations[self._steps :]:
            self._add("objective/training", step.objective, step.iteration)
            self._add("objective/deviation", step.deviation, step.iteration)
            self._add("gradient/norm", step.gradient_norm, step.iteration)
            self._add("prompts/words", step.words, step.iteration)
            if step.divergence is not None:
                self._add("prompts/divergence", step.divergence, step.iteration)
        self._steps = len(history.iterations)
        for evaluation in history.evaluations:
            if evaluation.iteration >= self._evaluations:
                self._add("objective/evaluation", evaluation.mean, evaluation.iteration)
                self._add("objective/evaluation_error", evaluation.standard_error, evaluation.iteration)
                if history.base is not None:
                    self._add("objective/base", history.base.mean, evaluation.iteration)
                self._evaluations = evaluation.iteration + 1

    def _add(self, name: str, value: float, iteration: int) -> None:
        self._writer.add_scalar(name, value, iteration)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()
