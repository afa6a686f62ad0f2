"""``edpbrl bench queries``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from edpbrl_gym.cli.console import output, quiet_libraries, shown, track
from edpbrl_gym.cli.errors import UsageError, bad_arguments
from edpbrl_gym.cli.options import Bench

__all__ = ["run"]


def run(options: Bench) -> None:
    """Run or resume the benchmark, or rewrite its report; print the main tables and where the files are."""
    from edpbrl_gym.experiments.query_bench.report import write_report
    from edpbrl_gym.experiments.query_bench.run import gather, plan_units, run_queries
    from edpbrl_gym.experiments.query_bench.tables import headline_tables

    begun = time.monotonic()
    quiet_libraries()
    if options.report is not None:
        out = options.report
        results = gather(out)
    else:
        with bad_arguments():
            settings, plan = _settings(options)
            if options.jobs is not None and options.jobs < 1:
                raise UsageError(f"Expected --jobs >= 1, got {options.jobs}")
            plan_units(settings, **plan)
        out = options.out or Path("runs/queries-quick" if options.quick else "runs/queries")
        results = run_queries(settings, out, **plan, jobs=options.jobs, track=track, progress=True)
    files = write_report(results, out, page=options.page)
    console = output()
    for table in headline_tables(results):
        console.print()
        console.print(table.rich())
    console.print(f"\nDone in {time.monotonic() - begun:.0f} s. Report: {shown(files[-1])}", markup=False)
    for path in files[:-1]:
        if path.suffix == ".png":
            console.print(f"Figure: {shown(path)}", markup=False)


def _settings(options: Bench) -> tuple[Any, dict[str, Any]]:
    """Settings of the units, and which units there are."""
    from edpbrl_gym.experiments.query_bench.settings import QUICK, SENTENCES, BenchSettings

    quick = QUICK if options.quick else {}
    changes: dict[str, Any] = {
        name: quick[name] for name in ("prompts", "pairs", "held_out_episodes", "prompt_episodes") if name in quick
    }
    if options.episodes is not None:
        changes["episodes"] = options.episodes
    if options.full:
        changes["sentences_per_seed"] = len(SENTENCES)
    settings = BenchSettings(
        vocabulary=None if options.vocabulary is None else str(options.vocabulary), encoder=options.encoder, **changes
    )
    # what the user says counts, also in the quick version
    plan = {
        "regimes": options.regime or quick.get("regimes"),
        "arms": options.arm or quick.get("arms"),
        "seeds": quick.get("seeds", 20) if options.seeds is None else options.seeds,
    }
    return settings, plan
