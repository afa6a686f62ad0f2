"""The folder of `edpbrl ask`: what its questions are about, and its session.

OUT/ask.json            vocabulary, options, format, planner, encoder and seed, written before the first question
OUT/session/            the session: every question and answer (`edpbrl_gym.session.journal`)
OUT/answers.parquet, OUT/taste.safetensors    written whenever the person stops
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._files import reading
from edpbrl_gym.cli.console import shown
from edpbrl_gym.cli.errors import UsageError

if TYPE_CHECKING:
    from edpbrl_gym._feedback import Feedback
    from edpbrl_gym.session.typed import FormName

__all__ = ["ANSWERS", "SESSION", "SETTINGS", "TASTE", "AskSettings", "begun", "chosen_settings", "write_settings"]

SETTINGS, SESSION, ANSWERS, TASTE = "ask.json", "session", "answers.parquet", "taste.safetensors"
_FORMAT = "edpbrl-gym ask 1"


@dataclass(frozen=True)
class AskSettings:
    """What the questions are about; the same as long as they go on.

    Attributes:
        vocabulary: Name of a built-in vocabulary, or folder.
        num_options: K.
        format: Name of the form of the answers.
        feedback: What is compared.
        planner: Name of the planner.
        prior: File of a population, or None.
        encoder: Spec of the encoder.
        seed: Seed of the questions.
    """

    vocabulary: str = "images"
    num_options: int = 9
    format: FormName = "best"
    feedback: Feedback = "prompt"
    planner: str = "adaptive"
    prior: str | None = None
    encoder: str = "minilm"
    seed: int = 0


def begun(out: Path) -> bool:
    """Whether questions have been asked in a folder."""
    return (out / SESSION / "session.json").is_file()


def chosen_settings(out: Path, given: Mapping[str, Any]) -> AskSettings:
    """The settings of a folder: those with which its questions began, else those given, else the defaults.

    Args:
        out: The folder.
        given: Settings of the command line, None for those that were left out.

    Raises:
        UsageError: One that is given differs from that of the folder's questions, or the folder holds answers of
            something else.
        ValueError: The folder's settings can't be read.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in ("vocabulary", "prior"):
        if name in chosen:
            chosen[name] = _absolute(str(chosen[name]))
    if not begun(out):
        for name in (ANSWERS, TASTE, SESSION):
            if (out / name).exists():
                raise UsageError(
                    f"Expected no {name} in {out}, as no questions were asked there; choose another --out, or move it"
                )
        return AskSettings(**chosen)
    settings = _read(out / SETTINGS)
    for name, value in chosen.items():
        before = getattr(settings, name)
        if value != before:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"Expected {'no ' + option if before is None else f'{option} {before}'}, with which the questions in "
                f"{shown(out)} began, got {value}; leave it out to go on, or choose another --out for new questions"
            )
    return settings


def write_settings(out: Path, settings: AskSettings) -> None:
    """Write the settings of new questions.

    Raises:
        RunFolderError: The folder can't be written.
    """
    from edpbrl_gym._places import write_atomically

    text = json.dumps({"format_of_file": _FORMAT, **asdict(settings)}, indent=2)
    write_atomically(out / SETTINGS, lambda path: path.write_text(text + "\n", encoding="utf-8"))


def _absolute(place: str) -> str:
    """A folder or file whose name doesn't depend on the working folder; names of built-in vocabularies stay."""
    from edpbrl_gym.vocabulary import BUILT_IN

    return place if place in BUILT_IN else str(Path(place).expanduser().resolve())


def _read(path: Path) -> AskSettings:
    advice = "restore the file from a backup, or choose another --out for new questions"
    with reading("the settings of `edpbrl ask`", path, advice=advice):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.pop("format_of_file") != _FORMAT or set(document) != {field.name for field in fields(AskSettings)}:
            raise ValueError("another version wrote it")
        for name, default in asdict(AskSettings()).items():
            kinds = (str, type(None)) if name == "prior" else (type(default),)
            if type(document[name]) not in kinds:
                raise ValueError(f"{name} is {document[name]!r}")
        return AskSettings(**document)
