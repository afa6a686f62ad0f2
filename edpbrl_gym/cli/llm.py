"""``edpbrl reproduce llm``."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import OmitArgPrefixes

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.arguments import Workers
from edpbrl_gym.cli.console import output, progress_bars, quiet_libraries, show_files, track
from edpbrl_gym.cli.drawing import Drawing
from edpbrl_gym.cli.errors import bad_arguments
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.oracles.judge.settings import EndpointSettings
from edpbrl_gym.rendering.settings import ImageSettings

if TYPE_CHECKING:
    from edpbrl_gym._executor import Executor
    from edpbrl_gym.oracles.judge import JudgeSettings
    from edpbrl_gym.rendering.renderer import Renderer

__all__ = ["LLM", "run"]


@dataclass(frozen=True)
class LLM:
    """A language model answers as a person who follows a style: designed against random questions, ten styles.

    Any OpenAI-compatible chat endpoint; its key is read from the environment. --dry-run says what it would cost.
    """

    settings: OmitArgPrefixes[LLMSettings] = field(default_factory=LLMSettings)
    dry_run: bool = False
    """Ask nothing: print the number of questions and estimates of tokens and cost."""
    judge_model: str = "gpt-4.1-mini"
    """Name of the judge's model at its endpoint (the paper's by default)."""
    endpoint: OmitArgPrefixes[EndpointSettings] = field(default_factory=EndpointSettings)
    render_model: str | None = None
    """Show the judge images by this text-to-image model: hub id or folder, such as CompVis/stable-diffusion-v1-4, the
    paper's (None: the judge reads the partial prompts)."""
    images: OmitArgPrefixes[ImageSettings] = field(default_factory=ImageSettings)
    drawing: OmitArgPrefixes[Drawing] = field(default_factory=Drawing)
    workers: OmitArgPrefixes[Workers] = field(default_factory=Workers)
    workers_ask: bool = False
    """Let the workers (--jobs, --dask) also draw the images and ask the judge, --concurrency questions each; they reach
    the endpoint, see the image cache and have the key in their own environment."""
    out: Path | None = None
    """Run folder (None: runs/llm). A stopped run resumes and asks nothing twice."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        from edpbrl_gym.agents.registry import agent_needs
        from edpbrl_gym.experiments.registry import experiment_needs
        from edpbrl_gym.features import encoder_needs

        if self.dry_run:
            return []
        drawing = () if self.render_model is None else ("diffusers", "torch", "transformers", "PIL")
        return [
            *encoder_needs(self.settings.encoder),
            *experiment_needs("reproduce llm"),
            *(need for agent in self.settings.parsed_agents for need in agent_needs(agent.name)),
            *(Need(package, "--render-model", "images") for package in drawing),
            *self.workers.needs(),
        ]


def run(options: LLM) -> None:
    """Run or resume the experiment; print the per-style table, what came out and where the files are."""
    start = time.monotonic()
    with bad_arguments():
        settings = options.settings
        judge = options.endpoint.judge(
            model=options.judge_model,
            style=next(iter(settings.styles.values())),
            show="texts" if options.render_model is None else "images",
            seed=settings.seed,
        )
    quiet_libraries()
    if options.dry_run:
        _plan(settings, judge, options)
        return
    from edpbrl_gym.experiments.llm.report import account_line, setting_line
    from edpbrl_gym.experiments.llm.run import run_llm
    from edpbrl_gym.experiments.llm.summary import findings
    from edpbrl_gym.experiments.registry import write_report

    out = options.out or Path("runs/llm")
    with options.workers.executor() as executor, _asking() as advance, _sigterm_as_interrupt():
        asking = executor if options.workers_ask else None
        with bad_arguments():
            renderer = _renderer(options, asking)
        results = run_llm(
            settings,
            judge,
            out,
            renderer=renderer,
            asking=asking,
            jobs=executor,
            track=_after(advance),
            advance=advance,
        )
    files = write_report(results, out)
    console = output()
    console.print()
    console.print(_table(results))
    console.print(setting_line(results))
    console.print(account_line(results))
    console.print("\nWhat came out", style="bold")
    console.print(_listed(findings(results.table, results.config)))
    show_files(files, start)


def _renderer(options: LLM, executor: Executor | None) -> Renderer | None:
    """The renderer, None in text mode."""
    if options.render_model is None:
        return None
    return options.drawing.renderer(options.images.of(options.render_model), executor)


class _Bars:
    """Progress of pictures and styles on stderr, one line each, from the first call until ``stop``."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._progress.start()
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(self._tasks[stage], completed=done, total=total)

    def stop(self) -> None:
        """Release the terminal; may be called again."""
        self._progress.stop()


@contextmanager
def _asking() -> Iterator[_Bars]:
    bars = _Bars(progress_bars(width=12))
    try:
        yield bars
    finally:
        bars.stop()


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM, with which schedulers end a job, like Ctrl-C: answers under way are saved."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # handlers can be set there only
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _after(bars: _Bars) -> Any:
    """``track`` of the console, after the bars before it have stopped."""

    def tracked(name: str, steps: Any, total: int) -> Any:
        bars.stop()
        return track(name, steps, total)

    return tracked


def _plan(settings: LLMSettings, judge: JudgeSettings, options: LLM) -> None:
    """Print the questions and costs of a run."""
    from edpbrl_gym.experiments.llm.plan import make_plan

    with bad_arguments():
        plan = make_plan(settings, judge)
    console = output()
    looks = " x 2 looks" if plan.looks == 2 else ""
    lines = [
        f"{plan.questions} questions to {judge.model} at {judge.address}: {plan.styles} styles x {plan.arms} agents x "
        f"{plan.questions_per_arm} questions{looks}.",
        f"About {plan.input_tokens:,} input and {plan.output_tokens:,} output tokens, an estimate from random prompts "
        f"(a server that reports no counts is taken to read at most {plan.most_input_tokens:,}).",
    ]
    if plan.images:
        lines.append(
            f"At most {plan.images} images to render with {options.render_model}, each counted as "
            f"{judge.tokens_per_image} tokens (--tokens-per-image; its default is far more than most models count)."
        )
    if plan.cost is None:
        lines.append("Cost: give --price-per-million-input and --price-per-million-output to have it estimated.")
    else:
        lines.append(f"Cost: about {plan.cost:.2f} in the currency of the prices.")
    lines.append("Nothing was asked.")
    for line in lines:
        console.print(line)


def _listed(sentences: list[str]) -> Any:
    """A list whose wrapped lines are indented."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    for sentence in sentences:
        grid.add_row(" -", sentence)
    return grid


def _table(results: Any) -> Any:
    """The per-style table, its last row the average."""
    from edpbrl_gym.experiments.llm.report import styles_table
    from edpbrl_gym.experiments.llm.summary import headline

    name, last = headline(results.config), max(results.config["train_sizes"])
    return styles_table(results, f"Held-out accuracy in percent, {name}, {last} training episodes").rich()
