"""REINFORCE on the D-criterion of truncated prompts: the paper's Algorithm "ED-PBRL with REINFORCE"."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.features import TextEncoder
from edpbrl_gym.language.checkpoints import CHECKPOINT, read_checkpoint, write_checkpoint
from edpbrl_gym.language.credit import Credit, Rewards
from edpbrl_gym.language.divergence import CollapseWarning, DivergedError, advice, collapse
from edpbrl_gym.language.gradient import accumulate_gradient
from edpbrl_gym.language.objective import TruncatedObjective, d_objective
from edpbrl_gym.language.policy_set import Policies
from edpbrl_gym.language.processes import Processes
from edpbrl_gym.language.rollouts import EVALUATING, TRAINING, Rollout, roll_out
from edpbrl_gym.language.scalars import Scalars
from edpbrl_gym.language.settings import ReinforceSettings
from edpbrl_gym.language.training_log import Evaluation, Iteration, TrainingLog

if TYPE_CHECKING:
    import torch

__all__ = ["BEST", "Evaluation", "TrainingLog", "Iteration", "ReinforceSettings", "Trainer", "evaluate", "train"]

BEST = "best"  # folder of the policies of the best evaluation, within the run's
Callback = Callable[[TrainingLog], None]


def train(
    policies: Policies,
    encoder: TextEncoder,
    settings: ReinforceSettings | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = True,
    callback: Callback | None = None,
    accelerator: Any = None,
    tensorboard: bool = False,
) -> TrainingLog:
    """Maximise E[log det(sum_t sum_h I_h + lambda E)] over the policies by stochastic gradient ascent.

    Args:
        policies: The K policies; their weights are changed.
        encoder: Embeds the truncated prompts; frozen.
        settings: See `ReinforceSettings`; None: the paper's.
        folder: Folder of checkpoints and TensorBoard's files, with the policies of the best evaluation in
            ``folder/best`` (`load_policies`); None stores nothing.
        resume: Resume from the folder's checkpoint, to exactly the weights of an uninterrupted run; False removes it
            and starts again.
        callback: Called with the history after every iteration and evaluation, in the first process.
        accelerator: ``accelerate.Accelerator`` for several processes (``accelerate launch``); every process calls
            ``train`` with policies on its device. One process gives the same as None.
        tensorboard: Write scalars to ``folder/tensorboard``.

    Returns:
        The history, with an evaluation before the first and after the last iteration.

    Warns:
        CollapseWarning: If the objective fell (`collapse`). The policies are still those of the last iteration.

    Raises:
        ValueError: If settings don't fit the models, the processes, or the folder's checkpoint.
        DivergedError: If weights, their gradient or their distributions are no longer finite; neither such
            weights nor weights that lead to them in the next step are stored in the folder.
        ModuleNotFoundError: If tensorboard is asked for and not installed.
    """
    trainer = Trainer(policies, encoder, settings, accelerator=accelerator)
    if folder is None:
        if tensorboard:
            raise ValueError("Expected a folder for TensorBoard's files, got none; give one by folder")
        return trainer.run(callback=callback)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if resume:
        trainer.resume(target)
    else:
        trainer.forget(target)
    writer = Scalars(target / "tensorboard", trainer.iteration) if tensorboard and trainer.processes.is_first else None
    try:
        return trainer.run(folder=target, callback=_both(writer, callback))
    finally:
        if writer is not None:
            writer.close()


def evaluate(
    policies: Policies,
    encoder: TextEncoder,
    settings: ReinforceSettings,
    *,
    iteration: int = 0,
    base: bool = False,
    accelerator: Any = None,
) -> Evaluation:
    """Estimate the expected objective on the evaluation's own random streams, the same at every call.

    Args:
        policies: The K policies.
        encoder: Embeds the truncated prompts.
        settings: ``evaluation_samples`` meta-samples are drawn.
        iteration: Iteration noted in the result.
        base: Evaluate K copies of the base model instead, on the same streams.
        accelerator: See `train`.
    """
    processes = Processes(accelerator)
    rollout = roll_out(
        policies,
        encoder,
        settings,
        meta_samples=processes.share(settings.evaluation_samples, "evaluation_samples"),
        purpose=EVALUATING,
        process=processes.rank,
        base=base,
    )
    values = processes.gather(d_objective(rollout.features, settings.regularization))
    return Evaluation(iteration, tuple(float(value) for value in values))


class Trainer:
    """A run that can be advanced step by step; `train` is the usual way.

    Args:
        policies: See `train`.
        encoder: See `train`.
        settings: See `train`.
        accelerator: See `train`.

    Attributes:
        iteration: Number of steps so far.
        history: Log so far.
        credit: Credit, which weights the score function.
        optimiser: Optimiser of the policies' weights.
    """

    def __init__(
        self,
        policies: Policies,
        encoder: TextEncoder,
        settings: ReinforceSettings | None = None,
        *,
        accelerator: Any = None,
    ) -> None:
        self.policies, self.encoder = policies, encoder
        self.settings = ReinforceSettings() if settings is None else settings
        self.processes, self._accelerator = Processes(accelerator), accelerator
        self._share = self.processes.share(self.settings.meta_samples, "meta_samples (M)")
        self.processes.share(self.settings.evaluation_samples, "evaluation_samples")
        self.credit = Credit(self.settings.credit, decay=self.settings.average_decay)
        self.optimiser = _optimiser(policies, self.settings)
        self.iteration, self.history = 0, TrainingLog()
        self._folder: Path | None = None
        self._checked: int | None = None  # the last iteration whose policies were checked

    def run(self, *, folder: Path | None = None, callback: Callback | None = None) -> TrainingLog:
        """Take the remaining steps, evaluate, and store checkpoints and the best policies."""
        settings = self.settings
        self._folder = folder
        report = callback if callback is not None and self.processes.is_first else _silent
        while True:
            last = self.iteration >= settings.iterations
            if last or self.iteration % settings.evaluate_every == 0:
                self._evaluate()
                report(self.history)
            if folder is not None and (last or (self.iteration and self.iteration % settings.checkpoint_every == 0)):
                self.save(folder)
            if last:
                break
            self.step()
            report(self.history)
        fall = collapse(self.history.evaluations)
        if fall is not None and self.processes.is_first:
            text = f"Training ended worse than its best: {fall}; {advice(settings)}{self._best_location()}"
            warnings.warn(text, CollapseWarning, stacklevel=2)
        return self.history

    def step(self) -> None:
        """One iteration: sample, embed, weigh, one gradient step.

        Raises:
            DivergedError: If the weights, their gradient or their distributions are no longer finite.
        """
        with self._advising():
            self._step()

    def _step(self) -> None:
        import torch

        start = time.perf_counter()
        parameters = self.policies.parameters()
        self.optimiser.zero_grad(set_to_none=True)
        rewards, divergence, rollout = self.gradient()
        self.processes.sum_gradients(parameters)
        limit = self.settings.max_gradient_norm
        norm = torch.nn.utils.clip_grad_norm_(parameters, float("inf") if limit is None else limit)
        if not bool(torch.isfinite(norm)):
            raise DivergedError(f"Expected a finite gradient, got one of norm {float(norm)}")
        self.optimiser.step()
        if not self.policies.finite():
            raise DivergedError("Expected finite weights after the gradient step, got some that are not")
        counts = [len(text.split()) for part in rollout.samples for text in part.texts]
        self.history.iterations.append(
            Iteration(
                iteration=self.iteration,
                objective=float(rewards.values.mean()),
                deviation=float(rewards.values.std(ddof=1)) if len(rewards.values) > 1 else 0.0,
                gradient_norm=float(norm),
                divergence=divergence,
                words=self.processes.mean(float(np.mean(counts))),
                seconds=time.perf_counter() - start,
            )
        )
        self.iteration += 1

    def gradient(self) -> tuple[Rewards, float | None, Rollout]:
        """Add this iteration's gradient (of minus the objective, of this process) to ``.grad`` of the parameters.

        Returns:
            The rewards and the divergence from the base (None if not needed) of all meta-samples, and the prompts of
            this process.
        """
        rollout = roll_out(
            self.policies,
            self.encoder,
            self.settings,
            meta_samples=self._share,
            purpose=TRAINING,
            iteration=self.iteration,
            process=self.processes.rank,
        )
        objective = TruncatedObjective(rollout.features, self.settings.regularization)
        rewards = Rewards.of(objective, self.credit.parts).gathered(self.processes.gather)
        weights = self.processes.local(self.credit.weights(rewards))
        divergence = accumulate_gradient(
            self.policies, rollout, weights, self.settings, meta_samples=self.settings.meta_samples
        )
        return rewards, None if divergence is None else self.processes.mean(divergence), rollout

    def save(self, folder: Path) -> None:
        """Write a checkpoint (the first process does).

        Raises:
            DivergedError: If the next step would not be finite; the last checkpoint remains.
        """
        with self._advising():
            self._check_policies()
        if self.processes.is_first:
            write_checkpoint(
                folder, iteration=self.iteration, history=self.history, optimiser=self.optimiser, **self._parts()
            )
        self.processes.wait()

    def resume(self, folder: Path) -> bool:
        """Resume from a folder's checkpoint; return whether there was one.

        Raises:
            ValueError: If the checkpoint is damaged, of another run, or of more iterations.
        """
        exists = (folder / CHECKPOINT).is_file()
        self._checked = None
        self.iteration, self.history = read_checkpoint(folder, optimiser=self.optimiser, **self._parts())
        return exists

    def forget(self, folder: Path) -> None:
        """Remove the files of an earlier run, so that an interrupted run can't resume from them."""
        if self.processes.is_first:
            (folder / CHECKPOINT).unlink(missing_ok=True)
            shutil.rmtree(folder / BEST, ignore_errors=True)
        self.processes.wait()

    @contextmanager
    def _advising(self) -> Iterator[None]:
        """Add the iteration and advice to a DivergedError."""
        try:
            yield
        except DivergedError as error:
            raise DivergedError(
                f"In iteration {self.iteration}: {error}; {advice(self.settings)}{self._best_location()}"
            ) from error

    def _best_location(self) -> str:
        """Location of the best policies, for messages."""
        best = self.history.best
        if best is None or self._folder is None or not (self._folder / BEST).is_dir():
            return ""
        return f". The best policies, those of iteration {best.iteration}, are kept in {self._folder / BEST}"

    def _check_policies(self) -> None:
        """Write and score one prompt with every policy: finite weights may still give scores or gradients that are not.

        All processes do the same, with the same weights and random streams, so that all continue or none.
        """
        import torch

        if not self.policies.finite():
            raise DivergedError("Expected finite weights for the checkpoint, got some that are not")
        if self._checked == self.iteration:
            return  # checked for the evaluation before the checkpoint
        settings, parameters = self.settings, self.policies.parameters()
        rollout = roll_out(self.policies, self.encoder, settings, meta_samples=1, episodes=1, purpose=EVALUATING)
        self.optimiser.zero_grad(set_to_none=True)
        weights = np.ones((1, 1, self.policies.num_options, settings.words + 1))
        accumulate_gradient(self.policies, rollout, weights, settings, meta_samples=1)
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        self.optimiser.zero_grad(set_to_none=True)
        if not bool(torch.isfinite(norm)):
            raise DivergedError(f"Expected a finite gradient, got one of norm {float(norm)}")
        self._checked = self.iteration

    def _parts(self) -> dict[str, Any]:
        return {
            "policies": self.policies,
            "credit": self.credit,
            "settings": self.settings,
            "encoder": self.encoder,
            "processes": self.processes.count,
        }

    def _evaluate(self) -> None:
        evaluations = self.history.evaluations
        if evaluations and evaluations[-1].iteration == self.iteration:
            return  # evaluated before the checkpoint from which this run resumed
        arguments: dict[str, Any] = {"iteration": self.iteration, "accelerator": self._accelerator}
        with self._advising():
            if self._folder is not None:
                self._check_policies()  # before the evaluation counts, as the best one's policies are stored
            if self.history.base is None:
                self.history.base = evaluate(self.policies, self.encoder, self.settings, base=True, **arguments)
            evaluations.append(evaluate(self.policies, self.encoder, self.settings, **arguments))
        if self._folder is not None and evaluations[-1] is self.history.best:
            if self.processes.is_first:
                about = {"iteration": self.iteration, "objective": evaluations[-1].mean}
                self.policies.save(self._folder / BEST, about=about)
            self.processes.wait()


def _optimiser(policies: Policies, settings: ReinforceSettings) -> torch.optim.Optimizer:
    import torch

    parameters = policies.parameters()
    if settings.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=settings.learning_rate)
    return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.0)


def _silent(history: TrainingLog) -> None:
    """No callback."""


def _both(first: Callback | None, second: Callback | None) -> Callback:
    """A callback that calls both, where they are not None."""

    def report(history: TrainingLog) -> None:
        for callback in (first, second):
            if callback is not None:
                callback(history)

    return report
