"""``python -m benchmarks.communities``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from tyro.conf import OmitArgPrefixes

from benchmarks.communities.run import COMMUNITIES
from benchmarks.communities.settings import DEFAULT_REGIMES, DEFAULTS, CommunitySettings, plan_units
from benchmarks.kit.command import Place, parse, run


@dataclass(frozen=True)
class Options:
    """Simulated communities: what other people's answers say about new people."""

    settings: OmitArgPrefixes[CommunitySettings] = field(default_factory=CommunitySettings)
    regime: tuple[str, ...] = DEFAULT_REGIMES
    """VOCABULARY-MODE: images or interiors; argmax, scale-50, scale-20 or scale-5."""
    estimator: tuple[str, ...] = DEFAULTS
    """alone, population-factors."""
    place: OmitArgPrefixes[Place] = field(default_factory=Place)


def start(options: Options) -> None:
    """Run, resume or report."""
    settings = options.settings
    run(COMMUNITIES, settings, lambda: plan_units(settings, options.regime, options.estimator), options.place)


if __name__ == "__main__":
    sys.exit(parse(Options, start, "python -m benchmarks.communities", sys.argv[1:]))
