"""``edpbrl reproduce synthetic``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import Workers
from edpbrl_gym.cli.console import quiet_libraries, show_report, track
from edpbrl_gym.experiments.settings import SyntheticSettings

__all__ = ["Synthetic", "run"]


@dataclass(frozen=True)
class Synthetic:
    """Users whose taste is a sentence's embedding: designed against random questions. The defaults are the paper's."""

    settings: OmitArgPrefixes[SyntheticSettings] = field(default_factory=SyntheticSettings)
    quick: bool = False
    """A small version in about 3 minutes on 2 cores: T = 10, 40, 110 and 8 runs where you do not set them."""
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)
    out: Path | None = None
    """Run folder (None: runs/synthetic, or runs/synthetic-quick). A stopped run resumes."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.agents.registry import agent_needs
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs

        return [
            *encoder_needs(self.settings.encoder),
            *experiment_needs("reproduce synthetic"),
            *(need for agent in self.settings.parsed_agents for need in agent_needs(agent.name)),
            *self.workers.needs(),
        ]


def run(options: Synthetic) -> None:
    """Run or resume the experiment."""
    from edpbrl_gym.experiments.framework import run_experiment
    from edpbrl_gym.experiments.synthetic import SYNTHETIC

    start = time.monotonic()
    out = options.out or Path("runs/synthetic-quick" if options.quick else "runs/synthetic")
    quiet_libraries()
    with options.workers.executor() as executor:
        results = run_experiment(SYNTHETIC, options.settings, out, jobs=executor, track=track, progress=True)
    show_report(SYNTHETIC.report(results), out, start)
