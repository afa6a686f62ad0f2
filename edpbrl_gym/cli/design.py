"""``edpbrl design``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edpbrl_gym._compat import Need
from edpbrl_gym._validation import Feedback
from edpbrl_gym.cli.answers import check_encoder_of_population, check_population_file
from edpbrl_gym.cli.console import Stopped, UsageError, bad_arguments, command, output, quiet_libraries, shown, solving
from edpbrl_gym.cli.design_file import DESIGN

if TYPE_CHECKING:
    from edpbrl_gym.collection.collect import DrawnQuestions, Information
    from edpbrl_gym.estimation.population import Population

__all__ = ["Design", "run"]

_HEAVIEST = 6


@dataclass(frozen=True)
class Design:
    """Choose the questions for a vocabulary: solve a design, certify it, write the questions to ask."""

    vocabulary: str | None = None
    """Vocabulary (images, interiors, posters, styles) or folder of token files, one per step, in alphabetical order
    (None: images)."""
    encoder: str = "minilm"
    """Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, precomputed:FILE, package.module:Class."""
    solver: str = "newton"
    """Agent that makes the design: newton, exact, tuples, frank_wolfe (the paper's), reference, deep (deep RL, for
    environments without a table: no certificate), random, a rule of the literature that needs no answers (such as
    greedy_d), or package.module:Class (adaptive, enumerated and the other rules need each answer before the next
    question, see docs/sessions.md; for reinforce, which needs no vocabulary, see `edpbrl reproduce reinforce`)."""
    criterion: str = "D"
    """What the design optimises: D, A, V, another of docs/method.md with what it is made of, as name:NUMBER or
    name:FILE.npy, or package.module:Class."""
    regularization: float = 1.0
    """Lambda of the estimate from the answers."""
    prior: Path | None = None
    """What other people answered, a population.safetensors of `edpbrl fit-population`: the inverse of its covariance
    takes the place of lambda times the identity."""
    num_options: int = 4
    """K, options of a question."""
    episodes: int = 30
    """T, episodes (one question for each step of a prompt; a single one with --feedback prompt)."""
    iterations: int | None = None
    """Iterations of the solver at most (None: the default, 200 for newton, 100 for frank_wolfe, 50 for exact, 10 for
    deep)."""
    tolerance: float | None = None
    """Stop at this gap relative to the gain (None: the solver's default, 1e-6 for newton, 1e-4 for frank_wolfe and
    exact)."""
    time_limit: float | None = None
    """Seconds for the solver at most; then the best design so far is written with its certificate (None: no limit)."""
    feedback: Feedback = "truncated"
    """Show partial prompts, single tokens, or complete prompts (prompt: once an episode)."""
    split: Literal["all", "train"] = "all"
    """Ask about all tokens, or about the 75% train part."""
    seed: int = 0
    """Seed of the drawn questions and of the split."""
    out: Path = Path("runs/design")
    """Folder for the design and the questions."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.agents.registry import agent_needs
        from edpbrl_gym.features import encoder_needs

        return [*encoder_needs(self.encoder), *agent_needs(self.solver)]

    @property
    def environment(self) -> dict[str, Any]:
        """Arguments of the environment whose prompts are asked about."""
        split = None if self.split == "all" else self.split
        return {"vocabulary": self.vocabulary, "encoder": self.encoder, "split": split, "split_seed": self.seed}


@dataclass(frozen=True)
class _QuestionReport:
    """The questions of a file and their information."""

    count: int  # of questions
    options: int  # K of a question
    exchanged: int  # options, because their question showed them already
    criterion: str  # its name
    dimension: int  # d
    tokens: Information | None  # of the last tokens, which the design is about; None for complete prompts
    random: Information | None  # of as many random questions; None if the questions are random themselves
    prompts: Information | None  # of the prompts that people see; None if they see tokens, or without embeddings

    def summary(self) -> str:
        """Text for a terminal."""
        exchanged = "" if not self.exchanged else f"; {self.exchanged} duplicates replaced"
        lines = [f"{self.count} questions of {self.options} options each{exchanged}"]
        if self.tokens is not None:
            lines.append(f"  their tokens {self._line(self.tokens)}")
        if self.random is not None:
            lines.append(f"  at random    {self._line(self.random)}")
        if self.prompts is not None:
            kind = "complete" if self.tokens is None else "partial"
            lines.append(f"  as shown     {self._line(self.prompts)} ({kind} prompts, for which there is no bound)")
        return "\n".join(lines)

    def _line(self, information: Information) -> str:
        from edpbrl_gym.design.result import certified

        if information.value is None:
            directions = f"{information.learned:.0f} of {self.dimension} directions"
            return f"{directions}; the others are open, use a regularization > 0"
        gain = "" if information.gain is None else f" (gain {information.gain:.6g})"
        efficiency = (
            ""
            if information.efficiency is None
            else f", efficiency at least {certified(information.efficiency)} of the bound"
        )
        return (
            f"{self.criterion}-value {information.value:.6g}{gain}{efficiency}; the answers determine about "
            f"{information.learned:.1f} of {self.dimension} parameters"
        )


def run(options: Design) -> None:
    """Solve a design, write it with the questions to ask, and print its certificate and heaviest tokens.

    Raises:
        Stopped: After Ctrl-C while it solves; the best design so far is written with its certificate and questions.
    """
    from edpbrl_gym._places import hold_folder
    from edpbrl_gym.comparisons.question_files import holds_answers, write_questions
    from edpbrl_gym.design.result import certified
    from edpbrl_gym.estimation.population import Population
    from edpbrl_gym.vocabulary import load_vocabulary

    with bad_arguments():
        _check(options)
    load_vocabulary(options.vocabulary)
    population = None if options.prior is None else Population.load(options.prior)
    env, agent = _agent_of_questions(options, population)
    file = options.out / "questions.csv"
    with hold_folder(options.out, DESIGN, "agent", file.name):  # before minutes of work, not after
        if holds_answers(file):
            raise ValueError(
                f"Expected no answers in {file}, it holds some and would be written over; choose another --out"
            )
        _embed(options, env, population)
        _learn(agent)
        draws = _draw(options, agent)
        write_questions(file, draws.questions)
        _write(options, env, agent, population, None)  # Ctrl-C while the prompts are embedded loses no file
        report, unknown = _report(options, env, agent, population, draws)
        _write(options, env, agent, population, asdict(report))
        _print(options, env, agent, report, unknown, file)
    design = agent.design
    if design is not None and design.status == "interrupted":
        raise Stopped(
            f"stopped by you after {design.iterations} iterations; the design so far is certified to an efficiency of "
            f"at least {certified(design.efficiency)} (gap {design.relative_gap:.1e} of the gain) and written to "
            f"{shown(options.out)} with its questions"
        )


def _agent_of_questions(options: Design, population: Population | None) -> tuple[Any, Any]:
    """The lanes of one question, and the agent that plays them."""
    from edpbrl_gym.collection.collect import check_static, is_static, make_prompt_lanes
    from edpbrl_gym.vocabulary.vocabulary import check_enough_options

    quiet_libraries()
    env: Any = make_prompt_lanes(options.num_options, **options.environment)
    with bad_arguments():
        # options of tuples differ in every token
        differ: Feedback = "state" if options.solver == "tuples" else options.feedback
        check_enough_options(env.unwrapped.vocabulary, options.num_options, differ)
        agent = _agent(options, env, options.solver, population)
        if ":" in options.solver:
            check_static(agent)  # the advice about observe() is for the agent's author
        elif not is_static(agent):
            raise UsageError(
                f"Expected a --solver whose questions don't depend on the answers, {options.solver} chooses each by "
                "the answers before it: ask with it in a session (docs/sessions.md), or design with newton"
            )
    return env, agent


def _embed(options: Design, env: Any, population: Population | None) -> None:
    from edpbrl_gym.features import embed_tokens, load_encoder

    encoder = load_encoder(options.encoder)
    if population is not None and options.prior is not None:
        known = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        check_encoder_of_population(population, known, encoder.dimension, options.prior)
    env.unwrapped.model.use_encoder(encoder)
    embed_tokens(env.unwrapped.vocabulary, encoder, progress=True)


def _draw(options: Design, agent: Any) -> DrawnQuestions:
    from edpbrl_gym.collection.collect import ENVIRONMENT, draw_questions

    return draw_questions(
        ENVIRONMENT, agent, episodes=options.episodes, env_arguments=options.environment, feedback=options.feedback
    )


def _print(options: Design, env: Any, agent: Any, report: _QuestionReport, unknown: str, file: Path) -> None:
    """The certificate, what the questions tell, and what to do with them."""
    console = output()
    if agent.design is None:
        console.print(f"The agent {options.solver} has no design: no certificate, its questions only.")
    else:
        console.print(agent.design.summary())
        console.print()
        console.print(_heaviest(env.unwrapped.vocabulary, agent.design))
    console.print(report.summary())
    if unknown:
        console.print(f"  as shown     not known: {unknown}")
    console.print(f"Questions to ask: {shown(file)}", soft_wrap=True)
    prior = () if options.prior is None else ("--prior", shown(options.prior))
    console.print(
        f"Write the number of the best option (1..{options.num_options}) into the column choice, then: "
        + command("edpbrl", "estimate", shown(file), *prior),
        soft_wrap=True,
    )


def _learn(agent: Any) -> None:
    from edpbrl_gym.agents.design import DesignAgent

    tolerance = agent.tolerance if isinstance(agent, DesignAgent) else None
    if tolerance is None:
        agent.learn()
        return
    with solving(tolerance) as callback:
        agent.options["callback"] = callback
        agent.learn()


def _report(
    options: Design, env: Any, agent: Any, population: Population | None, draws: DrawnQuestions
) -> tuple[_QuestionReport, str]:
    """The information of the questions, and why that of the displayed prompts is not known ("" if it is).

    A design is about tokens, compared at every step; questions of complete prompts are reported as shown only.
    """
    from edpbrl_gym.collection.collect import information_of, token_options

    problem = _agent(options, env, "newton", population).problem() if agent.design is None else agent.design.problem
    bound = None if agent.design is None else agent.design.upper_bound
    token_information, random_information, prompt_information, unknown = None, None, None, ""
    if options.feedback != "prompt":
        token_information = information_of(problem, token_options(problem, draws.tokens), upper_bound=bound)
    if options.feedback != "prompt" and options.solver != "random":
        random_tokens = _draw(options, _agent(options, env, "random", population)).tokens
        random_information = information_of(problem, token_options(problem, random_tokens), upper_bound=bound)
    if options.feedback != "state":
        texts = [text for _, _, row in draws.questions for text in row]
        try:
            rows = env.unwrapped.encoder.encode(texts, progress=True)  # the texts that `edpbrl estimate` needs
        except ValueError as error:  # precomputed embeddings without them
            unknown = str(error)
        else:
            prompt_information = information_of(problem, rows.reshape(len(draws.questions), options.num_options, -1))
    report = _QuestionReport(
        count=len(draws.questions),
        options=options.num_options,
        exchanged=draws.exchanged,
        criterion=problem.criterion.name,
        dimension=problem.dimension,
        tokens=token_information,
        random=random_information,
        prompts=prompt_information,
    )
    return report, unknown


def _check(options: Design) -> None:
    from edpbrl_gym._validation import (
        MOST_EPISODES,
        MOST_OPTIONS,
        check_count,
        check_number,
        check_path,
        check_tolerance,
    )
    from edpbrl_gym.agents.design import SOLVER_OPTIONS
    from edpbrl_gym.agents.registry import check_agent
    from edpbrl_gym.design.criteria import check_criterion
    from edpbrl_gym.features import check_encoder_spec

    check_path(options.vocabulary, "vocabulary")
    check_encoder_spec(options.encoder)
    check_count(options.num_options, "--num-options (K)", minimum=2, maximum=MOST_OPTIONS)
    check_count(options.episodes, "--episodes (T)", maximum=MOST_EPISODES)
    if options.iterations is not None:
        check_count(options.iterations, "--iterations")
    check_count(options.seed, "--seed", minimum=0)
    check_number(options.regularization, "--regularization (lambda)", minimum=0.0)
    if options.prior is not None:
        check_population_file(options.prior)
        if options.regularization != 1.0:
            raise UsageError("Expected --prior or --regularization, got both; the population takes the place of lambda")
        if options.solver not in SOLVER_OPTIONS:
            raise UsageError(
                f"Expected a --solver among {', '.join(SOLVER_OPTIONS)} with --prior, got {options.solver}, whose only "
                "prior is lambda"
            )
    if options.tolerance is not None:
        check_tolerance(options.tolerance, "--tolerance")
    if options.time_limit is not None:
        check_number(options.time_limit, "--time-limit (seconds)", minimum=0.0)
    check_agent(options.solver)
    check_criterion(options.criterion)


def _agent(options: Design, env: Any, solver: str, population: Population | None) -> Any:
    """An agent for the command's arguments; those of the solver apply to the chosen solver only."""
    from edpbrl_gym.agents.deep import DeepDesignAgent
    from edpbrl_gym.agents.design import DesignAgent
    from edpbrl_gym.agents.planner import PlannerAgent
    from edpbrl_gym.agents.registry import agent_class, make_agent

    arguments: dict[str, Any] = {}
    cls = agent_class(solver)
    if solver == options.solver:
        iterations = "iterations" if issubclass(cls, DeepDesignAgent) else "max_iterations"
        arguments = {iterations: options.iterations, "tolerance": options.tolerance, "time_limit": options.time_limit}
    if issubclass(cls, (PlannerAgent, DeepDesignAgent)):
        arguments["feedback"] = options.feedback
    if population is not None and issubclass(cls, DesignAgent):
        arguments["prior_precision"] = population.gaussian.precision
    extra = {name: value for name, value in arguments.items() if value is not None}
    return make_agent(
        solver,
        env,
        num_options=options.num_options,
        episodes=options.episodes,
        regularization=options.regularization,
        criterion=options.criterion,
        seed=options.seed,
        **extra,
    )


def _write(
    options: Design, env: Any, agent: Any, population: Population | None, questions: dict[str, Any] | None
) -> None:
    """Save the agent (design.npz and policies) and design.json: settings, certificate, questions, provenance."""
    from edpbrl_gym._compat import versions
    from edpbrl_gym._places import write_atomically
    from edpbrl_gym.design import describe_design

    base = env.unwrapped
    agent.save(options.out / "agent")
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(options).items()}
    document = {
        "settings": settings,
        "design": None if agent.design is None else describe_design(agent.design),
        "questions": questions,
        "encoder_fingerprint": base.encoder.fingerprint,
        "vocabulary_fingerprint": base.vocabulary.fingerprint,
        "population_fingerprint": None if population is None else population.fingerprint,
        "versions": versions(),
        "vocabulary": {"names": base.vocabulary.names, "tokens": base.vocabulary.tokens},  # since its folder may move
    }
    path = options.out / DESIGN
    text = json.dumps(document, indent=2)
    write_atomically(path, lambda name: name.write_text(text + "\n", encoding="utf-8"))


def _heaviest(vocabulary: Any, design: Any) -> Any:
    """The most frequent tokens of the design, with their share of the questions of the step."""
    from rich.table import Table

    table = Table(title="Tokens that the questions show most", title_justify="left")
    table.add_column("step")
    table.add_column("share and token")
    tokens = vocabulary.all_tokens
    for name, mass, rows in zip(vocabulary.names, design.mean_rows, design.support, strict=True):
        table.add_row(name, ", ".join(f"{mass[row]:.1%} {tokens[row]}" for row in rows[:_HEAVIEST]))
    return table
