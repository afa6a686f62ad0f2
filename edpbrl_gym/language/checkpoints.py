"""Checkpoints of a REINFORCE run: one file, written whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._files import replacing
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.language.credit import Credit
from edpbrl_gym.language.policy_set import Policies
from edpbrl_gym.language.settings import ReinforceSettings
from edpbrl_gym.language.training_log import TrainingLog

if TYPE_CHECKING:
    import torch

__all__ = ["CHECKPOINT", "read_checkpoint", "write_checkpoint"]

CHECKPOINT = "checkpoint.pt"
_FORMAT = 1
# settings that may change when a run resumes: they don't affect earlier steps
_FREE = ("iterations", "evaluate_every", "checkpoint_every")


def write_checkpoint(
    folder: Path,
    *,
    iteration: int,
    policies: Policies,
    optimiser: torch.optim.Optimizer,
    credit: Credit,
    history: TrainingLog,
    settings: ReinforceSettings,
    encoder: TextEncoder,
    processes: int = 1,
) -> None:
    """Write everything that the next iteration depends on.

    Random streams are functions of the seed and the iteration, and dropout is off, so no generator state is stored.

    Args:
        folder: An existing folder.
        iteration: Number of steps so far.
        policies: Policies, whose learnt weights are stored.
        optimiser: Optimiser, whose state is stored.
        credit: Credit, whose state is stored.
        history: Log so far.
        settings: Settings of the run.
        encoder: Encoder, whose fingerprint is stored.
        processes: Number of processes.

    Raises:
        OSError: If the folder can't be written.
    """
    import torch

    data = {
        "format": _FORMAT,
        "iteration": iteration,
        "run": _identity(policies, settings, encoder, processes),
        "policies": policies.state(),
        "optimiser": optimiser.state_dict(),
        "credit": credit.state(),
        "history": history.as_dict(),
    }
    packed = io.BytesIO()  # torch itself reports a full disk as an unexpected position
    torch.save(data, packed)
    with replacing(folder / CHECKPOINT) as part:
        part.write_bytes(packed.getbuffer())


def read_checkpoint(
    folder: Path,
    *,
    policies: Policies,
    optimiser: torch.optim.Optimizer,
    credit: Credit,
    settings: ReinforceSettings,
    encoder: TextEncoder,
    processes: int = 1,
) -> tuple[int, TrainingLog]:
    """Restore a run from its last checkpoint.

    Args:
        folder: Folder of the checkpoint; without one nothing happens.
        policies: Policies to restore.
        optimiser: Optimiser to restore.
        credit: Credit to restore.
        settings: Must be those of the run; other iterations (no fewer than so far), and other intervals of evaluations
            and checkpoints, are allowed.
        encoder: Must be that of the run.
        processes: Must be that of the run.

    Returns:
        Number of steps so far, and the history.

    Raises:
        ValueError: If the file is damaged, the run was another one (the message names what differs), or it has taken
            more steps than are asked for.
    """
    import torch

    path = folder / CHECKPOINT
    if not path.is_file():
        return 0, TrainingLog()
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
        run, iteration, history = data["run"], int(data["iteration"]), TrainingLog.from_dict(data["history"])
    except Exception as error:  # the formats of torch have several kinds of errors
        raise ValueError(
            f"Expected a checkpoint in {path}, got a damaged file ({type(error).__name__}); delete it to start again"
        ) from error
    expected = _identity(policies, settings, encoder, processes)
    differing = [name for name in expected if run.get(name) != expected[name]]
    if differing:
        name = differing[0]
        raise ValueError(
            f"Expected the settings of the run in {folder}, got {name} = {expected[name]!r} instead of "
            f"{run.get(name)!r}; use those settings, or another folder"
        )
    if iteration > settings.iterations:
        raise ValueError(
            f"Expected at least the {iteration} iterations that the run in {folder} has taken, got iterations = "
            f"{settings.iterations}; ask for more, start again, or use another folder"
        )
    policies.load_state(data["policies"])
    optimiser.load_state_dict(data["optimiser"])
    credit.load_state(data["credit"])
    return iteration, history


def _identity(policies: Policies, settings: ReinforceSettings, encoder: TextEncoder, processes: int) -> dict[str, Any]:
    """The settings and inputs that decide the steps of a run, as a flat dict."""
    decisive = {name: value for name, value in settings.as_dict().items() if name not in _FREE}
    return {
        **decisive,
        "num_options": policies.num_options,
        "policies": policies.kind,
        **{f"policies.{name}": value for name, value in policies.options.items()},
        "language model": policies.base.fingerprint,
        "encoder": encoder.fingerprint,
        "processes": processes,
    }
