"""``edpbrl study``: ask many people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from edpbrl_gym.cli.console import bullet, command, output, quiet_libraries, shown
from edpbrl_gym.cli.errors import UsageError, bad_arguments

__all__ = ["StudyCheck", "StudyInit", "run"]


@dataclass(frozen=True)
class StudyInit:
    """Write a configuration that explains itself, and texts to start from."""

    folder: Positional[Path]
    """New folder of the study."""


@dataclass(frozen=True)
class StudyCheck:
    """Explain every mistake of a study's configuration, or say what the study will be."""

    folder: Positional[Path]
    """Folder of the study."""


def run(options: Any) -> None:
    """Run the command of these options."""
    _RUNS[type(options)](options)


def _init(options: StudyInit) -> None:
    from edpbrl_gym.study.template import write_template

    with bad_arguments():
        _check_new(options.folder)
    files = write_template(options.folder)
    console = output()
    for path in files:
        bullet(console, "Written", shown(path))
    console.print(f"Edit them, then: {command('edpbrl', 'study', 'check', options.folder)}", soft_wrap=True)


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"Expected a new or empty folder for the study, got {folder}; choose another one")


def _check(options: StudyCheck) -> None:
    from edpbrl_gym.study import Mistakes
    from edpbrl_gym.study.checks import examine
    from edpbrl_gym.study.config import read_config

    quiet_libraries()
    console = output()
    try:
        config = read_config(options.folder)
        plan, materials = examine(config)
    except FileNotFoundError as error:
        raise UsageError(str(error)) from None
    except Mistakes as error:
        for mistake in error.mistakes:
            bullet(console, "Mistake", mistake)
        raise UsageError(
            f"Expected a study without mistakes in {error.source}, found {len(error.mistakes)}; correct what is said "
            "above"
        ) from None
    _describe(console, config, plan, materials)


def _describe(console: Any, config: Any, plan: Any, materials: Any) -> None:
    """What the study will be."""
    questions, practice, checks = config.questions, config.practice, config.checks
    bullet(console, "Study", config.title)
    bullet(console, "Languages", ", ".join(config.languages))
    parts = [f"{questions.number} that count"]
    parts += [f"{practice.questions} for practice"] if practice.questions else []
    parts += [f"{checks.attention} to check attention"] if checks.attention else []
    parts += [f"{checks.repeated} repeated"] if checks.repeated else []
    bullet(console, "Questions", f"at most {plan.questions} ({', '.join(parts)})")
    if questions.stopping is not None:
        bullet(console, "Ends early", f"when sure (accuracy {questions.stopping.target:.0%}), after "
               f"{questions.stopping.minimum} answers or more")  # fmt: skip
    bullet(console, "Options", f"{questions.options} ({questions.feedback}), answered by {questions.format}")
    bullet(console, "Vocabulary", f"{questions.vocabulary}: {sum(materials.vocabulary.sizes)} tokens")
    bullet(console, "Pictures", "none, options are texts" if config.renderer is None else config.renderer.model)
    bullet(console, "Duration", f"about {plan.minutes:.0f} minutes for a participant")
    for arm in plan.arms:
        planner = f"{arm.arm.planner}{' with a population' if arm.arm.prior else ''}"
        bullet(console, "Arm", f"{arm.arm.name}: {planner}, {arm.share:.0%} of the participants, first question in "
               f"{arm.seconds:.2f} s")  # fmt: skip
    bullet(console, "Consent", f"version {config.consent_version}")
    bullet(console, "Config", f"sha256 {config.fingerprint[:16]}")


_RUNS: dict[type, Any] = {StudyInit: _init, StudyCheck: _check}
