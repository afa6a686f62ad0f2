"""``python -m benchmarks.people DATA ...``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from tyro.conf import OmitArgPrefixes

from benchmarks.kit.command import Place, parse, run
from benchmarks.people.run import DEFAULTS, PEOPLE, PeopleSettings, plan_units


@dataclass(frozen=True)
class Options:
    """Replay real people's answers: what is learnt from the first of them, with and without other people's."""

    settings: OmitArgPrefixes[PeopleSettings] = field(default_factory=PeopleSettings)
    estimator: tuple[str, ...] = DEFAULTS
    """ridge100, ridge1, alone, population-gaussian, -factors."""
    place: OmitArgPrefixes[Place] = field(default_factory=Place)


def start(options: Options) -> None:
    """Run, resume or report."""
    run(PEOPLE, options.settings, lambda: plan_units(options.settings, options.estimator), options.place)


if __name__ == "__main__":
    sys.exit(parse(Options, start, "python -m benchmarks.people", sys.argv[1:]))
