"""``python -m benchmarks.planners efficiency | comparison | first-answers | small-vocabularies``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tyro.conf import OmitArgPrefixes, Positional

from benchmarks.kit.command import Place, parse, run
from benchmarks.planners.run import PLANNERS
from benchmarks.planners.settings import STUDIES, PlannerSettings, Unit, plan_units


@dataclass(frozen=True)
class Options:
    """Compare planners, designs and estimators with simulated users: questions needed, ranks, first answers."""

    study: Positional[Literal["efficiency", "comparison", "first-answers", "small-vocabularies"]] = "efficiency"
    """Preset of all that is not set: how many questions are needed in prompt MDPs; all planners, on pools of items
    too; what a person's first answers about complete prompts teach, also about
    small vocabularies."""
    settings: OmitArgPrefixes[PlannerSettings] = field(default_factory=PlannerSettings)
    regime: tuple[str, ...] = ()
    """argmax, scale-20, pairs-argmax, items-d10-K4, images-argmax-K9, ... (none given: all of the study)."""
    arm: tuple[str, ...] = ()
    """PLANNER or DESIGN[,option=value...][+best-worst|+ranking|+partial], such as bald,prior=vocabulary."""
    seeds: int | None = None  # at most (None: as many as the study has)
    first_seed: int = 0  # constants of the library were chosen on seeds from 1000 on, which --development takes
    place: OmitArgPrefixes[Place] = field(default_factory=Place)


def start(options: Options) -> None:
    """Run, resume or report."""

    def plan() -> list[Unit]:
        return plan_units(
            options.settings,
            study=STUDIES[options.study],
            regimes=options.regime,
            arms=options.arm,
            seeds=options.seeds,
            first_seed=options.first_seed,
        )

    place = replace(options.place, out=options.place.out or Path("runs") / options.study)
    run(PLANNERS, options.settings, plan, place)


def main(arguments: Sequence[str]) -> int:
    """Parse the arguments, with the settings of the study as defaults, and run."""
    study = next((one for one in arguments if one in STUDIES), "efficiency")
    default = Options(study, PlannerSettings(**STUDIES[study].settings))  # type: ignore[arg-type]
    return parse(Options, start, "python -m benchmarks.planners", arguments, default)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
