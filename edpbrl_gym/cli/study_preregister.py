"""``edpbrl study preregister``: what a study will do, as a page to register before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from edpbrl_gym.cli.console import UsageError, bad_arguments, bullet, output, shown
from edpbrl_gym.cli.study import OfStudy

__all__ = ["StudyPreregister", "run"]


@dataclass(frozen=True)
class StudyPreregister(OfStudy):
    """Write preregistration.md from the configuration, with gaps for hypotheses; reports say what changed since."""


def run(options: StudyPreregister) -> None:
    """Write the page."""
    from edpbrl_gym._places import write_atomically
    from edpbrl_gym.study.config_reading import read_config
    from edpbrl_gym.study.preregistration import PREREGISTRATION, preregistration

    with bad_arguments():
        text = preregistration(read_config(options.folder))
    path = options.folder / PREREGISTRATION
    if path.exists():
        raise UsageError(f"Expected no file yet at {path}, found one; move it away to write another")
    write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))
    console = output()
    bullet(console, "Written", shown(path))
    console.print("Fill in what is in brackets, and register it before the first participant.", soft_wrap=True)
