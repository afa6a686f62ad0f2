"""REINFORCE on the D-criterion of truncated prompts: the paper's Algorithm "ED-PBRL with REINFORCE"."""

from __future__ import annotations

import io
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._files import replacing
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.language.gradient import accumulate_gradient, credit_weights
from edpbrl_gym.language.objective import TruncatedObjective, d_objective
from edpbrl_gym.language.policies import Policies
from edpbrl_gym.language.rollouts import EVALUATING, TRAINING, Rollout, roll_out
from edpbrl_gym.language.settings import ReinforceSettings
from edpbrl_gym.language.training_log import (
    CollapseWarning,
    DivergedError,
    Evaluation,
    Iteration,
    Scalars,
    TrainingLog,
    advice,
    collapse,
)

if TYPE_CHECKING:
    import torch

__all__ = ["BEST", "CHECKPOINT", "Trainer", "evaluate", "read_checkpoint", "train"]

BEST = "best"  # folder of the policies of the best evaluation, within the run's
CHECKPOINT = "checkpoint.pt"  # one file, written whole or not at all
_FORMAT = 1
# settings that may change when a run resumes: they don't affect earlier steps
_FREE = ("iterations", "evaluate_every", "checkpoint_every")
Callback = Callable[[TrainingLog], None]


def train(
    policies: Policies,
    encoder: TextEncoder,
    settings: ReinforceSettings | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = True,
    callback: Callback | None = None,
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
        callback: Called with the history after every iteration and evaluation.
        tensorboard: Write scalars to ``folder/tensorboard``.

    Returns:
        The history, with an evaluation before the first and after the last iteration.

    Warns:
        CollapseWarning: If the objective fell (`collapse`). The policies are still those of the last iteration.

    Raises:
        ValueError: If settings don't fit the models or the folder's checkpoint.
        DivergedError: If weights, their gradient or their distributions are no longer finite; neither such
            weights nor weights that lead to them in the next step are stored in the folder.
        ModuleNotFoundError: If tensorboard is asked for and not installed.
    """
    trainer = Trainer(policies, encoder, settings)
    if folder is None:
        if tensorboard:
            raise ValueError("Expected a folder for TensorBoard's files, got none; give one by folder")
        return trainer.run(callbacks=[] if callback is None else [callback])
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if resume:
        trainer.resume(target)
    else:
        trainer.forget(target)
    callbacks = [] if callback is None else [callback]
    if not tensorboard:
        return trainer.run(folder=target, callbacks=callbacks)
    writer = Scalars(target / "tensorboard", trainer.iteration)
    try:
        return trainer.run(folder=target, callbacks=[writer, *callbacks])
    finally:
        writer.close()


def evaluate(
    policies: Policies, encoder: TextEncoder, settings: ReinforceSettings, *, iteration: int = 0, base: bool = False
) -> Evaluation:
    """Estimate the expected objective on the evaluation's own random streams, the same at every call.

    ``iteration`` is noted in the result; with ``base`` K copies of the base model are evaluated instead.
    """
    count = settings.evaluation_samples
    rollout = roll_out(policies, encoder, settings, meta_samples=count, purpose=EVALUATING, base=base)
    values = d_objective(rollout.features, settings.regularization)
    return Evaluation(iteration, tuple(float(value) for value in values))


class Trainer:
    """A run that can be advanced step by step; `train` is the usual way, and describes the arguments."""

    def __init__(self, policies: Policies, encoder: TextEncoder, settings: ReinforceSettings | None = None) -> None:
        self.policies, self.encoder = policies, encoder
        self.settings = ReinforceSettings() if settings is None else settings
        self.optimiser = _optimiser(policies, self.settings)
        self.iteration, self.history = 0, TrainingLog()
        self._folder: Path | None = None
        self._checked: int | None = None  # the last iteration whose policies were checked

    def run(self, *, folder: Path | None = None, callbacks: Sequence[Callback] = ()) -> TrainingLog:
        """Take the remaining steps, evaluate, and store checkpoints and the best policies."""
        settings = self.settings
        self._folder = folder
        while True:
            last = self.iteration >= settings.iterations
            if last or self.iteration % settings.evaluate_every == 0:
                self._evaluate()
                self._report(callbacks)
            if folder is not None and (last or (self.iteration and self.iteration % settings.checkpoint_every == 0)):
                self.save(folder)
            if last:
                break
            self.step()
            self._report(callbacks)
        fall = collapse(self.history.evaluations)
        if fall is not None:
            text = f"Training ended worse than its best: {fall}; {advice(settings)}{self._best_location()}"
            warnings.warn(text, CollapseWarning, stacklevel=2)
        return self.history

    def _report(self, callbacks: Sequence[Callback]) -> None:
        for callback in callbacks:
            callback(self.history)

    def step(self) -> None:
        """One iteration: sample, embed, weigh, one gradient step.

        Raises:
            DivergedError: If the weights, their gradient or their distributions are no longer finite.
        """
        import torch

        start = time.perf_counter()
        with self._advising():
            self.optimiser.zero_grad(set_to_none=True)
            values, divergence, rollout = self.gradient()
            limit = self.settings.max_gradient_norm
            parameters = self.policies.parameters()
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
                objective=float(values.mean()),
                deviation=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
                gradient_norm=float(norm),
                divergence=divergence,
                words=float(np.mean(counts)),
                seconds=time.perf_counter() - start,
            )
        )
        self.iteration += 1

    def gradient(self) -> tuple[Floats, float | None, Rollout]:
        """Add this iteration's gradient (of minus the objective) to ``.grad`` of the parameters.

        Returns:
            The objective of every meta-sample, the divergence from the base (None if not needed), and the prompts.
        """
        rollout = roll_out(
            self.policies,
            self.encoder,
            self.settings,
            meta_samples=self.settings.meta_samples,
            purpose=TRAINING,
            iteration=self.iteration,
        )
        objective = TruncatedObjective(rollout.features, self.settings.regularization)
        weights = credit_weights(objective, self.settings.credit)
        return objective.values, accumulate_gradient(self.policies, rollout, weights, self.settings), rollout

    def save(self, folder: Path) -> None:
        """Write everything that the next iteration depends on to an existing folder.

        Random streams are functions of the seed and the iteration, and dropout is off, so no generator state is stored.

        Raises:
            DivergedError: If the next step would not be finite; the last checkpoint remains.
            OSError: If the folder can't be written.
        """
        import torch

        with self._advising():
            self._check_policies()
        data = {
            "format": _FORMAT,
            "iteration": self.iteration,
            "run": _identity(self),
            "policies": self.policies.state(),
            "optimiser": self.optimiser.state_dict(),
            "history": asdict(self.history),
        }
        packed = io.BytesIO()  # torch itself reports a full disk as an unexpected position
        torch.save(data, packed)
        with replacing(folder / CHECKPOINT) as part:
            part.write_bytes(packed.getbuffer())

    def resume(self, folder: Path) -> bool:
        """Resume from a folder's checkpoint; return whether there was one.

        Raises:
            ValueError: If the checkpoint is damaged, of another run, or of more iterations.
        """
        exists = (folder / CHECKPOINT).is_file()
        self._checked, self.iteration, self.history = None, 0, TrainingLog()
        read_checkpoint(folder, self)
        return exists

    def forget(self, folder: Path) -> None:
        """Remove the files of an earlier run, so that an interrupted run can't resume from them."""
        (folder / CHECKPOINT).unlink(missing_ok=True)
        shutil.rmtree(folder / BEST, ignore_errors=True)

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
        """Write and score one prompt with every policy: finite weights may give scores or gradients that are not."""
        import torch

        if not self.policies.finite():
            raise DivergedError("Expected finite weights for the checkpoint, got some that are not")
        if self._checked == self.iteration:
            return  # checked for the evaluation before the checkpoint
        settings, parameters = self.settings, self.policies.parameters()
        rollout = roll_out(self.policies, self.encoder, settings, meta_samples=1, episodes=1, purpose=EVALUATING)
        self.optimiser.zero_grad(set_to_none=True)
        weights = np.ones((1, 1, self.policies.num_options, settings.words + 1))
        accumulate_gradient(self.policies, rollout, weights, settings)
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        self.optimiser.zero_grad(set_to_none=True)
        if not bool(torch.isfinite(norm)):
            raise DivergedError(f"Expected a finite gradient, got one of norm {float(norm)}")
        self._checked = self.iteration

    def _evaluate(self) -> None:
        evaluations = self.history.evaluations
        if evaluations and evaluations[-1].iteration == self.iteration:
            return  # evaluated before the checkpoint from which this run resumed
        with self._advising():
            if self._folder is not None:
                self._check_policies()  # before the evaluation counts, as the best one's policies are stored
            if self.history.base is None:
                self.history.base = evaluate(
                    self.policies, self.encoder, self.settings, base=True, iteration=self.iteration
                )
            evaluations.append(evaluate(self.policies, self.encoder, self.settings, iteration=self.iteration))
        if self._folder is not None and evaluations[-1] is self.history.best:
            about = {"iteration": self.iteration, "objective": evaluations[-1].mean}
            self.policies.save(self._folder / BEST, about=about)


def _optimiser(policies: Policies, settings: ReinforceSettings) -> torch.optim.Optimizer:
    import torch

    parameters = policies.parameters()
    if settings.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=settings.learning_rate)
    return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.0)


def read_checkpoint(folder: Path, run: Trainer) -> None:
    """Restore a run from the last checkpoint in a folder; without one nothing happens.

    Other iterations (no fewer than so far), and other intervals of evaluations and checkpoints, are allowed.

    Raises:
        ValueError: If the file is damaged, the run was another one (the message names what differs), or it has taken
            more steps than are asked for.
    """
    import torch

    path = folder / CHECKPOINT
    if not path.is_file():
        return
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
        about, iteration, history = data["run"], int(data["iteration"]), TrainingLog.from_dict(data["history"])
    except Exception as error:  # the formats of torch have several kinds of errors
        raise ValueError(
            f"Expected a checkpoint in {path}, got a damaged file ({type(error).__name__}); delete it to start again"
        ) from error
    expected = _identity(run)
    differing = [name for name in expected if about.get(name) != expected[name]]
    if differing:
        name = differing[0]
        raise ValueError(
            f"Expected the settings of the run in {folder}, got {name} = {expected[name]!r} instead of "
            f"{about.get(name)!r}; use those settings, or another folder"
        )
    if iteration > run.settings.iterations:
        raise ValueError(
            f"Expected at least the {iteration} iterations that the run in {folder} has taken, got iterations = "
            f"{run.settings.iterations}; ask for more, start again, or use another folder"
        )
    run.policies.load_state(data["policies"])
    run.optimiser.load_state_dict(data["optimiser"])
    run.iteration, run.history = iteration, history


def _identity(run: Trainer) -> dict[str, Any]:
    """The settings and inputs that decide the steps of a run, as a flat dict."""
    decisive = {name: value for name, value in asdict(run.settings).items() if name not in _FREE}
    return {
        **decisive,
        "num_options": run.policies.num_options,
        "policies": run.policies.kind,
        **{f"policies.{name}": value for name, value in run.policies.options.items()},
        "language model": run.policies.base.fingerprint,
        "encoder": run.encoder.fingerprint,
    }
