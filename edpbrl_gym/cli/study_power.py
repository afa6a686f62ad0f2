"""``edpbrl study power``: how many people a study needs."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import check_counts
from edpbrl_gym.cli.console import Stopped, UsageError, bad_arguments, quiet_libraries, show_report, shown, track
from edpbrl_gym.cli.study import OfStudy

__all__ = ["StudyPower", "run"]

_TEST_QUESTIONS = 32  # of a simulated person, for the variances


@dataclass(frozen=True)
class StudyPower(OfStudy):
    """Simulate people in every arm, and say how many people and test questions a difference between arms needs."""

    out: Path = Path("runs/study-power")
    """Folder for REPORT.md, its figure, and the simulated answers, from which the same command goes on."""
    people: int = 12
    """Simulated people of each arm; more make the expected difference more certain."""
    scale: float = 1.0
    """How surely they answer: 1 is as the prior has it, less is more noise."""
    difference: float | None = None
    """Ask for the power to find this difference, in nats an answer, instead of the simulated one."""
    level: float = 0.05
    """Largest probability of finding a difference that is not there."""
    seed: int = 0
    """Seed of tastes and answers."""

    def needs(self) -> list[Need]:
        return [*super().needs(), Need("matplotlib", "the figure of the report")]


def run(options: StudyPower) -> None:
    """Simulate and report.

    Raises:
        Stopped: After Ctrl-C; what was answered is kept.
    """
    from edpbrl_gym._files import check_links
    from edpbrl_gym._places import hold_place
    from edpbrl_gym.study.config_reading import read_config
    from edpbrl_gym.study.materials import Materials
    from edpbrl_gym.study.reporting.power import Assumed, make_power_report
    from edpbrl_gym.study.simulated import SimulatedPeople, simulate, simulated_config, tastes_of

    start = time.monotonic()
    quiet_libraries()
    with bad_arguments():
        check_counts(options, people=3)
        if not (math.isfinite(options.scale) and options.scale > 0):
            raise UsageError(f"Expected a finite --scale above 0, got {options.scale}")
        if not 0 < options.level < 1:
            raise UsageError(f"Expected --level between 0 and 1, got {options.level}")
        if options.difference is not None and not (math.isfinite(options.difference) and options.difference != 0):
            raise UsageError(f"Expected a finite --difference other than 0, got {options.difference}")
        given = read_config(options.folder)
        config = simulated_config(given, options.out / "simulated.db", test=_TEST_QUESTIONS)
    with hold_place(options.out):
        check_links(options.out, "REPORT.md", "figures")
        options.out.mkdir(parents=True, exist_ok=True)
        with bad_arguments():
            materials = Materials(config)
            who = SimulatedPeople(options.people, options.scale, options.seed)
            try:
                tables, tastes = simulate(materials, who, track=lambda name, total, steps: track(name, steps, total))
            except KeyboardInterrupt:
                raise Stopped(
                    f"stopped by you; {shown(options.out)} keeps what was answered, and the same command goes on"
                ) from None
            except ValueError as error:
                raise UsageError(f"{error}; choose another --out for another study or other people") from None
        assumed = Assumed(given.checks.test, options.scale, tastes_of(materials)[1], options.difference, options.level)
        show_report(make_power_report(tables, tastes, assumed), options.out, start)
