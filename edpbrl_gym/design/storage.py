"""Designs as npz files with JSON inside, saved and loaded without losing a bit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats, read_only
from edpbrl_gym._files import reading, replacing
from edpbrl_gym._validation import check_array
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, IterationRecord, check_occupancies, identical

__all__ = ["load_design", "save_design"]

_FORMAT = "edpbrl-gym design 1"
_FORMAT_ONE_STEP = "edpbrl-gym design 2"  # the occupancies of one step stand for all steps
_NUMBERS = ("value", "upper_bound", "gap", "gain", "relative_gap", "efficiency", "seconds")
_STORED = (*_NUMBERS, "status", "solver", "iterations", "oracle_calls", "warnings", "rounding")


def save_design(design: Design, path: str | os.PathLike[str]) -> Path:
    """Write a design; see `Design.save`."""
    target = Path(path)
    occupancies = design.occupancies
    document: dict[str, Any] = {name: getattr(design, name) for name in _STORED}
    stored = occupancies[:1] if identical(occupancies) else occupancies
    one_step = stored.shape[1] > 1 and stored.strides[1] == 0
    document["format"] = _FORMAT_ONE_STEP if one_step else _FORMAT
    document["problem"] = design.problem.fingerprint
    document["num_policies"] = design.problem.num_policies
    document["history"] = [list(record) for record in design.history]
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as part, open(part, "wb") as file:
        np.savez_compressed(
            file, occupancies=stored[:, :1] if one_step else stored, document=np.array(json.dumps(document))
        )
    return target


def load_design(path: str | os.PathLike[str], problem: DesignProblem) -> Design:
    """Read a design and check that it belongs to the problem; see `Design.load`."""
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"Expected a saved design at {source}, found no such file.")
    with reading(f"a design saved by Design.save ({_FORMAT})", source):
        stored, document = _read(source)
        if document["problem"] == problem.fingerprint:
            return _restored(problem, stored, document)
    raise ValueError(
        f"The design in {source} was made for another problem (MDP, features, K, T, prior or criterion "
        f"differ); load it with the problem that it was saved with, or solve this one."
    )


def _read(source: Path) -> tuple[Floats, dict[str, Any]]:
    """Arrays and document of a saved design; ValueError for any other file."""
    with np.load(source, allow_pickle=False) as archive:
        stored = archive["occupancies"]
        document = json.loads(str(archive["document"]))
    if document["format"] not in (_FORMAT, _FORMAT_ONE_STEP):
        raise ValueError(f"format {document['format']!r}")
    return check_array(stored, "occupancies", shape=("K", "H", "M")), document


def _restored(problem: DesignProblem, stored: Floats, document: dict[str, Any]) -> Design:
    """A design of its file's contents, checked to be one of the problem."""
    occupancies = np.broadcast_to(stored, (problem.num_policies, problem.horizon, problem.mdp.num_pairs))
    check_occupancies(problem, occupancies[: len(stored)])
    fields = {key: document[key] for key in document if key not in ("format", "problem", "num_policies")}
    for name in _NUMBERS:
        fields[name] = float(fields[name])
    fields["history"] = tuple(
        IterationRecord(int(n), value, gap, step, seconds) for n, value, gap, step, seconds in fields["history"]
    )
    fields["warnings"] = tuple(fields["warnings"])
    return Design(problem=problem, occupancies=read_only(occupancies), **fields)
