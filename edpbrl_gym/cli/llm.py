"""``edpbrl reproduce llm``."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edpbrl_gym.cli.arguments import CriterionName
from edpbrl_gym.cli.console import output, progress_bars, quiet_libraries, shown, track
from edpbrl_gym.cli.errors import UsageError, bad_arguments

if TYPE_CHECKING:
    from edpbrl_gym.experiments.llm.settings import LLMSettings
    from edpbrl_gym.oracles.judge import JudgeSettings
    from edpbrl_gym.rendering.renderer import Renderer

__all__ = ["LLM", "run"]


@dataclass(frozen=True)
class LLM:
    """A language model answers as a person who follows a style: designed against random questions, ten styles.

    Any OpenAI-compatible chat endpoint; its key is read from the environment. --dry-run says what it would cost.
    """

    dry_run: bool = False
    """Ask nothing: print how many questions there are, and estimate tokens and cost."""
    base_url: str | None = None
    """Endpoint of the judge, such as http://127.0.0.1:8399/v1 (None: OpenAI's own)."""
    judge_model: str = "gpt-4.1-mini"
    """Name of the model there (the paper's by default)."""
    key_variable: str | None = None
    """Environment variable that holds the key (None: OPENAI_API_KEY; for an endpoint given by --base-url, no key)."""
    render_model: str | None = None
    """Show the judge images by this text-to-image model: hub id or folder, such as CompVis/stable-diffusion-v1-4, the
    paper's (None: the judge reads the partial prompts)."""
    styles: tuple[str, ...] = ()
    """The ten styles by name, or your own as name=guidance (none given: all ten)."""
    agents: tuple[str, ...] = ("frank_wolfe", "random")
    """Who asks, the baseline last: name or package.module:Class[,option=value...], such as
    newton,criterion=D,regularization=1."""
    episodes: int = 60
    """T, episodes asked by every agent (one question for each step of a prompt), the same for all styles."""
    train_sizes: tuple[int, ...] = (10, 20, 30, 40, 50)
    """Numbers of training episodes."""
    test_episodes: int = 10
    """Held-out episodes of a fold."""
    folds: int = 3
    """Test windows, from the last episodes backwards."""
    lambdas: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)
    """Lambdas of the paper's ridge estimates; our default estimate, which needs none, stands beside them."""
    num_options: int = 4
    """K, options of a question."""
    criterion: CriterionName = "V"
    """What the designs optimise."""
    regularization: float = 100.0
    """Lambda of the designs, and of the per-style table."""
    iterations: int = 100
    """Frank-Wolfe iterations at most."""
    concurrency: int = 8
    """Most questions under way at once."""
    timeout: float = 60.0
    """Seconds for a whole attempt, up to the last byte of the answer."""
    max_retries: int = 5
    """How often a question is sent again after a timeout, 429 or 5xx."""
    structured: Literal["auto", "schema", "text"] = "auto"
    """Answers by JSON schema, as validated text, or by schema where the server takes it."""
    second_look: bool = False
    """Ask every question again with other labels; says how often the judge agrees with itself, and costs twice."""
    temperature: float | None = 0.0
    """Of the judge; None leaves it to the server (some models refuse the parameter)."""
    max_answer_tokens: int = 64
    """Most tokens of an answer; models that think before they answer need thousands."""
    image_size: int | None = 512
    """Most pixels of the longer side of an image as it is sent (None: as rendered)."""
    tokens_per_image: int = 8500
    """Most tokens that the server counts for an image; set aside against --max-tokens and used by --dry-run."""
    max_questions: int | None = None
    """Hard limit on questions put to the judge in this run folder (None: none)."""
    max_tokens: int | None = None
    """Hard limit on tokens, input and output together (None: none)."""
    input_price: float | None = None
    """Price of a million input tokens, for the cost."""
    output_price: float | None = None
    """Price of a million output tokens."""
    render_steps: int = 50
    """Denoising steps; turbo-class models take 1 to 4."""
    render_guidance: float = 7.5
    """Classifier-free guidance; turbo-class models take 0."""
    render_size: int | None = None
    """Height and width of an image in pixels (None: the model's own)."""
    render_dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Precision of the pipeline; the latter two are for GPUs."""
    render_batch: int = 4
    """Images made at once."""
    device: str | None = None
    """Of the pipeline (None: cuda where there is one)."""
    image_seed: int = 0
    """Seed of all images."""
    images: Path | None = None
    """Folder of the images (None: images in the cache folder, shared by all runs)."""
    vocabulary: Path | None = None
    """Folder of token files, one per step, in alphabetical order (None: the built-in one)."""
    encoder: str = "minilm"
    """Text encoder of the features: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper: ViT-L/14),
    package.module:Class."""
    tokens_per_step: int | None = None
    """Use at most so many train tokens of every step (None: all)."""
    seed: int = 0
    """Seed of everything but the server."""
    jobs: int | None = None
    """Processes for designs and estimates (None: one for each core); the results do not depend on it."""
    out: Path | None = None
    """Run folder (None: runs/llm). A stopped run goes on where it was and asks nothing twice."""


def run(options: LLM) -> None:
    """Run or resume the experiment; print the per-style table, what came out and where the files are."""
    begun = time.monotonic()
    with bad_arguments():
        settings = _settings(options)
        judge = _judge(options, next(iter(settings.styles.values())))
        if options.jobs is not None and options.jobs < 1:
            raise UsageError(f"Expected --jobs >= 1, got {options.jobs}")
    quiet_libraries()
    if options.dry_run:
        _plan(settings, judge, options)
        return
    _check_packages(options, settings)
    from edpbrl_gym.experiments.llm.report import account_line, setting_line, write_report
    from edpbrl_gym.experiments.llm.run import run_llm
    from edpbrl_gym.experiments.llm.summary import findings

    with bad_arguments():
        renderer = _renderer(options)
    out = options.out or Path("runs/llm")
    with _asking() as advance, _terminated_like_ctrl_c():
        results = run_llm(
            settings, judge, out, renderer=renderer, jobs=options.jobs, track=_after(advance), advance=advance
        )
    files = write_report(results, out)
    console = output()
    console.print()
    console.print(_table(results))
    console.print(setting_line(results))
    console.print(account_line(results))
    console.print("\nWhat came out", style="bold")
    console.print(_listed(findings(results.table, results.config)))
    console.print(f"\nDone in {time.monotonic() - begun:.0f} s. Report: {shown(files[-1])}", soft_wrap=True)
    for path in files[:-1]:
        if path.suffix == ".png":
            console.print(f"Figure: {shown(path)}", soft_wrap=True)


def _check_packages(options: LLM, settings: LLMSettings) -> None:
    """What is missing is told now, not when the questions are ready to be asked."""
    from edpbrl_gym._compat import need
    from edpbrl_gym.agents.registry import check_agent

    if options.render_model is not None:
        need("diffusers", "--render-model", "images")
        need("PIL", "--render-model", "images")
    with bad_arguments():
        for agent in settings.parsed_agents:
            check_agent(agent.name)


def _settings(options: LLM) -> LLMSettings:
    from edpbrl_gym.experiments.llm.settings import LLMSettings
    from edpbrl_gym.experiments.llm.styles import STYLES

    styles: dict[str, str] = {}
    for text in options.styles or tuple(STYLES):
        name, equals, guidance = text.partition("=")
        if not equals and name not in STYLES:
            raise UsageError(f"Expected styles among {', '.join(STYLES)} or as name=guidance, got {text!r}")
        if name in styles:
            raise UsageError(f"Expected every style once, got {name!r} twice")
        styles[name] = guidance if equals else STYLES[name]
    return LLMSettings(
        styles=styles,
        agents=options.agents,
        episodes=options.episodes,
        train_sizes=options.train_sizes,
        test_episodes=options.test_episodes,
        folds=options.folds,
        lambdas=options.lambdas,
        num_options=options.num_options,
        criterion=options.criterion,
        regularization=options.regularization,
        iterations=options.iterations,
        image_seed=options.image_seed,
        vocabulary=None if options.vocabulary is None else str(options.vocabulary),
        encoder=options.encoder,
        tokens_per_step=options.tokens_per_step,
        seed=options.seed,
    )


def _judge(options: LLM, style: str) -> JudgeSettings:
    from edpbrl_gym.oracles.judge.settings import JudgeSettings

    return JudgeSettings(
        model=options.judge_model,
        style=style,
        base_url=options.base_url,
        api_key_variable=options.key_variable,
        show="texts" if options.render_model is None else "images",
        structured=options.structured,
        second_look=options.second_look,
        concurrency=options.concurrency,
        timeout=options.timeout,
        max_retries=options.max_retries,
        temperature=options.temperature,
        image_size=options.image_size,
        tokens_per_image=options.tokens_per_image,
        seed=options.seed,
        price_per_million_input=options.input_price,
        price_per_million_output=options.output_price,
        max_questions=options.max_questions,
        max_tokens=options.max_tokens,
        max_answer_tokens=options.max_answer_tokens,
    )


def _renderer(options: LLM) -> Renderer | None:
    """The renderer, None in text mode; its model is loaded when the first image is missing."""
    if options.render_model is None:
        return None
    from edpbrl_gym.features import default_cache_folder
    from edpbrl_gym.rendering.renderer import Renderer
    from edpbrl_gym.rendering.settings import RenderSettings

    return Renderer(
        RenderSettings(
            model=options.render_model,
            steps=options.render_steps,
            guidance=options.render_guidance,
            height=options.render_size,
            width=options.render_size,
            dtype=options.render_dtype,
        ),
        cache_folder=default_cache_folder() / "images" if options.images is None else options.images,
        device=options.device,
        batch_size=options.render_batch,
    )


class _Bars:
    """Progress of pictures and styles on stderr, a line each; begins with the first and stops between them."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._progress.start()
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(self._tasks[stage], completed=done, total=total)

    def stop(self) -> None:
        """Leave the terminal to what follows; may be called again."""
        self._progress.stop()


@contextmanager
def _asking() -> Iterator[_Bars]:
    bars = _Bars(progress_bars(width=12))
    try:
        yield bars
    finally:
        bars.stop()


@contextmanager
def _terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM, with which machines and schedulers end a job, keeps the answers under way as Ctrl-C does."""

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
    """``track`` of the console, once the bars before it are done."""

    def tracked(name: str, steps: Any, total: int) -> Any:
        bars.stop()
        return track(name, steps, total)

    return tracked


def _plan(settings: LLMSettings, judge: JudgeSettings, options: LLM) -> None:
    """Print what a run would ask."""
    from edpbrl_gym.experiments.llm.plan import make_plan

    with bad_arguments():
        plan = make_plan(settings, judge)
    console = output()
    looks = " x 2 looks" if plan.looks == 2 else ""
    told = [
        f"{plan.questions} questions to {judge.model} at {judge.address}: {plan.styles} styles x {plan.arms} agents x "
        f"{plan.questions_per_arm} questions{looks}.",
        f"About {plan.input_tokens:,} input and {plan.output_tokens:,} output tokens, an estimate from random prompts "
        f"(a server that reports no counts is taken to read at most {plan.most_input_tokens:,}).",
    ]
    if plan.images:
        told.append(
            f"At most {plan.images} images to render with {options.render_model}, each counted as "
            f"{judge.tokens_per_image} tokens (--tokens-per-image; its default is far more than most models count)."
        )
    if plan.cost is None:
        told.append("Cost: give --input-price and --output-price (per million tokens) to have it estimated.")
    else:
        told.append(f"Cost: about {plan.cost:.2f} in the currency of the prices.")
    told.append("Nothing was asked.")
    for line in told:
        console.print(line)


def _listed(sentences: list[str]) -> Any:
    """A list whose lines are indented where they are wrapped."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    for sentence in sentences:
        grid.add_row(" -", sentence)
    return grid


def _table(results: Any) -> Any:
    """The per-style table, its last row the average."""
    from rich.table import Table

    from edpbrl_gym.experiments.llm.report import style_rows
    from edpbrl_gym.experiments.llm.summary import headline

    header, *rows, average = style_rows(results)
    name, last = headline(results.config), max(results.config["train_sizes"])
    table = Table(title=f"Held-out accuracy in percent, {name}, {last} training episodes", title_justify="left")
    for place, column in enumerate(header):
        table.add_column(column, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    table.add_section()
    table.add_row(*average, style="bold")
    return table
