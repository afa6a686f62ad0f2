"""``edpbrl reproduce llm``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import Drawing, Workers
from edpbrl_gym.cli.console import (
    bad_arguments,
    output,
    progress_bars,
    quiet_libraries,
    show_report,
    sigterm_as_interrupt,
    track,
)
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.oracles.judge.settings import EndpointSettings

__all__ = ["LLM", "run"]


@dataclass(frozen=True)
class LLM:
    """A language model answers as a person who follows a style: designed against random questions, ten styles.

    Any OpenAI-compatible chat endpoint; its key is read from the environment. --dry-run says what it would cost. With
    --renderer (the paper's is CompVis/stable-diffusion-v1-4) the judge sees pictures, without it the partial prompts.
    """

    settings: OmitArgPrefixes[LLMSettings] = field(default_factory=LLMSettings)
    dry_run: bool = False
    """Ask nothing: print the number of questions and estimates of tokens and cost."""
    judge_model: str = "gpt-4.1-mini"
    """Name of the judge's model at its endpoint (the paper's by default)."""
    endpoint: OmitArgPrefixes[EndpointSettings] = field(default_factory=EndpointSettings)
    drawing: OmitArgPrefixes[Drawing] = field(default_factory=Drawing)
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)
    out: Path | None = None
    """Run folder (None: runs/llm). A stopped run resumes and asks nothing twice."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.agents.registry import agent_needs
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs
        from edpbrl_gym.oracles.judge.client import NEEDS

        if self.dry_run:
            return []
        return [
            *encoder_needs(self.settings.encoder),
            NEEDS,
            *experiment_needs("reproduce llm"),
            *(need for agent in self.settings.parsed_agents for need in agent_needs(agent.name)),
            *self.drawing.needs(),
            *self.workers.needs(),
        ]


def run(options: LLM) -> None:
    """Run or resume the experiment."""
    start = time.monotonic()
    with bad_arguments():
        settings = options.settings
        judge = options.endpoint.judge(
            model=options.judge_model,
            style=next(iter(settings.styles.values())),
            show="texts" if options.drawing.renderer is None else "images",
            seed=settings.seed,
        )
    quiet_libraries()
    if options.dry_run:
        from edpbrl_gym.experiments.llm.plan import plan_lines

        with bad_arguments():
            lines = plan_lines(settings, judge, options.drawing.renderer, options.drawing.price)
        for line in lines:
            output().print(line)
        return
    from edpbrl_gym.experiments.llm.report import make_report
    from edpbrl_gym.experiments.llm.run import run_llm

    out = options.out or Path("runs/llm")
    bars, tasks = progress_bars(width=12), dict[str, Any]()  # of pictures and styles, a line each, from the first call

    def advance(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            bars.start()
            tasks[stage] = bars.add_task(stage, total=total)
        bars.update(tasks[stage], completed=done, total=total)

    def tracked(name: str, steps: Iterable[Any], total: int) -> Iterable[Any]:
        bars.stop()  # those before it
        return track(name, steps, total)

    with options.workers.executor() as executor, sigterm_as_interrupt(), ExitStack() as stack:
        stack.callback(bars.stop)  # which may be called again
        renderer = None
        if options.drawing.renderer is not None:
            with bad_arguments():
                renderer = stack.enter_context(options.drawing.load())
        results = run_llm(settings, judge, out, renderer=renderer, jobs=executor, track=tracked, advance=advance)
    show_report(make_report(results), out, start)
