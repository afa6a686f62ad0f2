"""``python -m benchmarks.pictures DATA ...``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from tyro.conf import OmitArgPrefixes

from benchmarks.kit.command import Place, parse, run
from benchmarks.pictures.run import PICTURES, PicturesSettings, plan_units


@dataclass(frozen=True)
class Options:
    """Ask real people about what they rated, and see what is learnt per answer, per picture and per second."""

    settings: OmitArgPrefixes[PicturesSettings] = field(default_factory=PicturesSettings)
    place: OmitArgPrefixes[Place] = field(default_factory=Place)


def start(options: Options) -> None:
    """Run, resume or report."""
    run(PICTURES, options.settings, lambda: plan_units(options.settings), options.place)


if __name__ == "__main__":
    sys.exit(parse(Options, start, "python -m benchmarks.pictures", sys.argv[1:]))
