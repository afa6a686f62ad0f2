"""``edpbrl ask``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.ask_folder import (
    ANSWERS,
    SESSION,
    TASTE,
    AskSettings,
    begun,
    chosen_settings,
    write_settings,
)
from edpbrl_gym.cli.console import command, output, quiet_libraries, shown
from edpbrl_gym.cli.errors import UsageError, bad_arguments
from edpbrl_gym.cli.populations import check_encoder_of_population, check_population_file

if TYPE_CHECKING:
    from edpbrl_gym.cli.ask_drawing import Paper
    from edpbrl_gym.cli.ask_terminal import Reader
    from edpbrl_gym.session import Session, StoppingRule
    from edpbrl_gym.session.typed import AnswerForm

__all__ = ["Ask", "run"]

_CANDIDATES = 3  # prompts searched for each one shown, so that those shown can differ


@dataclass(frozen=True)
class Ask:
    """Answer questions here in the terminal, and get your taste and prompts for it."""

    out: Path = Path("runs/ask")
    """Folder for the answers and the taste; where there are answers already, the questions go on."""
    vocabulary: str | None = None
    """Built-in vocabulary (images, interiors) or folder of token files, one per step, in alphabetical order (None:
    images, or as before)."""
    num_options: int | None = None
    """Options K of a question (None: 9, or as before); up to 9 are answered by single keys."""
    format: Literal["best", "best-worst", "ranking"] | None = None
    """Answers: the best option, the best and the worst, or the options in order as far as you like (None: best, or as
    before)."""
    questions: int | None = None
    """Stop after so many questions, those of earlier calls among them (None: when you say so)."""
    planner: str | None = None
    """Who chooses the questions (None: adaptive, or as before)."""
    prior: Path | None = None
    """What other people answered, a population.safetensors of `edpbrl fit-population` (None: nothing, or as before)."""
    feedback: Literal["prompt", "truncated", "state"] | None = None
    """Compare complete prompts, prompts that grow by a phrase, or single phrases (None: prompt, or as before)."""
    encoder: str | None = None
    """Text encoder (None: minilm, or as before)."""
    seed: int | None = None
    """Seed of the questions (None: 0, or as before)."""
    count: int = 5
    """Prompts to write at the end."""

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        from edpbrl_gym.features import encoder_needs
        from edpbrl_gym.planners.registry import planner_needs

        # questions that go on have the encoder of their folder, which is asked for when it is loaded
        spec = self.encoder or (None if begun(self.out) else AskSettings.encoder)
        return [
            *([] if spec is None else encoder_needs(spec)),
            *([] if self.planner is None else planner_needs(self.planner)),
        ]


def run(options: Ask) -> None:
    """Ask, then estimate the taste, write it and print its prompts."""
    from edpbrl_gym._places import hold_folder
    from edpbrl_gym.cli.ask_drawing import Paper
    from edpbrl_gym.cli.ask_terminal import BadLineError, opened
    from edpbrl_gym.session.typed import AnswerForm

    with bad_arguments():
        _check(options)
    lock = hold_folder(options.out)
    given = ("vocabulary", "num_options", "format", "planner", "prior", "feedback", "encoder", "seed")
    settings = chosen_settings(options.out, {name: getattr(options, name) for name in given})
    with bad_arguments():
        form = AnswerForm(settings.format, settings.num_options)
    quiet_libraries()
    with opened(form) as reader:
        paper = Paper(output(), form, live=reader.live, waits=reader.asks)
        if not begun(options.out):  # to be read while the vocabulary is loaded
            paper.opening(settings.feedback, shown(options.out))
        with _opened_session(options.out, settings, form) as session:
            bad: BadLineError | None = None
            try:
                _converse(options, session, form, reader, paper)
            except KeyboardInterrupt:
                paper.close()
            except BadLineError as error:  # what was learnt before this line is written, then it is reported
                bad = error
            finally:
                _write_answers(options.out, session)
            _finish(options, settings, session, paper)
            if bad is not None:
                raise bad
    del lock


def _check(options: Ask) -> None:
    from edpbrl_gym._validation import check_count, check_path
    from edpbrl_gym.features import check_encoder_spec
    from edpbrl_gym.planners.registry import takes_model

    check_path(options.vocabulary, "vocabulary")
    check_count(options.count, "--count")
    for name, least in (("num_options", 2), ("questions", 1), ("seed", 0)):
        if getattr(options, name) is not None:
            check_count(getattr(options, name), f"--{name.replace('_', '-')}", minimum=least)
    if options.encoder is not None:
        check_encoder_spec(options.encoder)
    if options.planner is not None and not takes_model(options.planner):
        raise UsageError(
            f"Expected a --planner that learns from all that a person may answer, {options.planner} learns from best "
            "options only; it is for comparisons with simulated people: edpbrl bench comparison"
        )
    if options.prior is not None:
        check_population_file(options.prior)


def stopping_rule() -> StoppingRule:
    """When a person, who gives 10 to 40 answers, has given enough (docs/ask.md)."""
    from edpbrl_gym.session import StoppingRule

    return StoppingRule(target=0.85, gain=0.015, lookahead=10, minimum=12)


# -- the session -----------------------------------------------------------------------------------------------------


def _opened_session(out: Path, settings: AskSettings, form: AnswerForm) -> Session:
    """Begin the session of a folder, or go on with it."""
    from edpbrl_gym.features import load_encoder
    from edpbrl_gym.planners import make_planner
    from edpbrl_gym.session import Session
    from edpbrl_gym.session.journal import read_settings
    from edpbrl_gym.vocabulary import load_vocabulary

    resumed = begun(out)
    vocabulary = load_vocabulary(settings.vocabulary)
    if resumed and read_settings(out / SESSION).get("vocabulary_fingerprint") != vocabulary.fingerprint:
        raise ValueError(
            f"Expected the tokens of {settings.vocabulary} as they were when the questions in {shown(out)} began, they "
            "have changed since; restore them, or choose another --out for new questions"
        )
    encoder = load_encoder(settings.encoder)
    population = None if settings.prior is None else _population(Path(settings.prior), encoder)
    encoder.encode(vocabulary.all_tokens, progress=True)
    extra: dict[str, Any] = {"distinct": True} if settings.planner == "random" else {}
    planner = make_planner(
        settings.planner,
        vocabulary,
        encoder,
        feedback=settings.feedback,
        prior=population,
        num_options=settings.num_options,
        seed=settings.seed,
        model=form.model,
        **extra,
    )
    if not planner.distinct:
        raise UsageError(f"Expected a --planner for people, {settings.planner} may show an option twice")
    shared: dict[str, Any] = {"vocabulary": vocabulary, "encoder": encoder, "prior": population, "model": form.model}
    shared["stopping"] = stopping_rule()
    if resumed:  # another rounding of the encoder must not keep a person from going on: their answers are recorded
        return Session.resume(out / SESSION, planner, exact=False, **shared)
    write_settings(out, settings)
    return Session(
        planner,
        num_options=settings.num_options,
        feedback=settings.feedback,
        seed=settings.seed,
        who="you",
        folder=out / SESSION,
        **shared,
    )


def _population(place: Path, encoder: Any) -> Any:
    from edpbrl_gym.estimation.population import Population

    with bad_arguments():
        check_population_file(place)
    population = Population.load(place)
    known = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
    check_encoder_of_population(population, known, encoder.dimension, place)
    return population


def _converse(options: Ask, session: Session, form: AnswerForm, reader: Reader, paper: Paper) -> None:
    """Say where a session was left, remind of answers of another day, and ask."""
    from edpbrl_gym.cli.ask_loop import Asking, days_since

    times = session.transcript.times
    if session.transcript.questions:
        when = datetime.fromisoformat(times[-1]).astimezone().strftime("%Y-%m-%d at %H:%M") if times else ""
        paper.resuming(session, shown(options.out), when)
    if times and days_since(times[-1]) >= 1:
        paper.reminding(session, days_since(times[-1]))
        if reader.asks and not reader.confirm():
            return
    Asking(session, form, stopping_rule(), reader, paper).run(options.questions)


# -- the end ---------------------------------------------------------------------------------------------------------


def _write_answers(out: Path, session: Session) -> None:
    if session.answered:
        session.comparisons.to_parquet(out / ANSWERS)
    else:  # those that a call before wrote have been taken back
        (out / ANSWERS).unlink(missing_ok=True)


def _finish(options: Ask, settings: AskSettings, session: Session, paper: Paper) -> None:
    """Write the taste, print its prompts and the next commands."""
    from edpbrl_gym.cli.ask_drawing import plural
    from edpbrl_gym.cli.tastes import provenance_of
    from edpbrl_gym.personalize.taste import save_taste
    from edpbrl_gym.session.recommendation import different, recommend, standings

    console = paper.console
    again = command("edpbrl", "ask", *(() if options.out == Path("runs/ask") else ("--out", options.out)))
    learnt = session.comparisons.decided if session.answered else None
    if learnt is None or not len(learnt):
        (options.out / TASTE).unlink(missing_ok=True)
        console.print(f"\n Nothing learnt yet. Go on: {again}", soft_wrap=True)
        return
    estimate, facts = _estimate(settings, session, learnt)
    save_taste(options.out / TASTE, estimate.theta, provenance_of(learnt, Path(ANSWERS), estimate, facts))
    paper.note("Writing prompts for your taste ...")
    draws = session.draws()
    found = recommend(
        session.vocabulary, session.memo, estimate.theta, draws, count=_CANDIDATES * options.count, level=0.9
    )
    prompts = different(found, options.count)
    shares = standings(session.vocabulary, session.memo, draws, [prompt.text for prompt in prompts])
    paper.prompts(prompts, shares)
    files = f"{shown(options.out / TASTE)}, {shown(options.out / ANSWERS)}"
    console.print(f" Written from {plural(session.answered, 'question')}: {files}", soft_wrap=True)
    words = [] if settings.vocabulary == "images" else ["--vocabulary", settings.vocabulary]
    following = command("edpbrl", "personalize", options.out / TASTE, *words)
    console.print(f" More prompts, pictures: {following}", soft_wrap=True)
    console.print(f" More questions:         {again}", soft_wrap=True)


def _estimate(settings: AskSettings, session: Session, answers: Any) -> tuple[Any, dict[str, Any]]:
    """The taste as `edpbrl estimate` has it from the same answers, and the facts about its prior."""
    from edpbrl_gym.cli.tastes import near_words, under_population
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.estimation.population import Population
    from edpbrl_gym.likelihood import response_model_of

    terms = answers.terms(response_model_of(answers.responses))
    words = VocabularyPrior(session.maker.encoder.encode(session.vocabulary.all_tokens))
    prior, origin = session.outlook.given_prior, {"vocabulary_fingerprint": session.vocabulary.fingerprint}
    if isinstance(prior, Population):  # for a person unlike all others, the words' prior
        estimate, facts = under_population(terms, prior.with_fallback(words))
        return estimate, facts | origin
    estimate, _, facts = near_words(terms, words)
    return estimate, {"prior": "words", **origin, **facts}
