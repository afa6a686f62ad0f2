"""``edpbrl ask``: show a question, read the answer, save it, say what was learnt; at the end write the taste."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edpbrl_gym._compat import Need
from edpbrl_gym.cli.answers import check_population_file
from edpbrl_gym.cli.ask_folder import (
    ANSWERS,
    PROMPTS,
    TASTE,
    AskSettings,
    begun,
    chosen_settings,
    open_session,
    stopping_rule,
    write_prompts,
)
from edpbrl_gym.cli.console import UsageError, bad_arguments, command, output, quiet_libraries, shown

if TYPE_CHECKING:
    from edpbrl_gym.cli.ask_drawing import Paper
    from edpbrl_gym.cli.ask_terminal import Reader
    from edpbrl_gym.likelihood import Response
    from edpbrl_gym.session import Progress, Session, StoppingRule
    from edpbrl_gym.session.typed import AnswerForm

__all__ = ["Ask", "run"]


@dataclass(frozen=True)
class Ask:
    """Answer questions here in the terminal, and get your taste and prompts for it."""

    out: Path = Path("runs/ask")
    """Folder for the answers and the taste; where there are answers already, the questions go on."""
    vocabulary: str | None = None
    """Vocabulary (images, interiors, posters, styles) or folder of token files, one per step, in alphabetical order
    (None: images, or as before)."""
    num_options: int | None = None
    """Options K of a question (None: 9, or as before; 1 is enough for ratings); up to 9 are answered by single keys."""
    format: str | None = None
    """Answers: best, best-worst (the best and the worst option), ranking (the options in order as far as you like),
    rating (a level of each), like (yes or no to each) or ties (the best; can't tell teaches too) (None: best, or as
    before)."""
    levels: int | None = None
    """Levels of a rating, 2 to 7 (None: 5, or as before)."""
    questions: int | None = None
    """Stop after so many questions, those of earlier calls among them (None: when you say so)."""
    planner: str | None = None
    """Who chooses the questions (None: adaptive, or as before)."""
    prior: str | None = None
    """What other people answered, a population.safetensors of `edpbrl fit-population`, or the name of another prior as
    for `edpbrl estimate` (None: words, or as before)."""
    feedback: Literal["prompt", "truncated", "state"] | None = None
    """Compare complete prompts, prompts that grow by a phrase, or single phrases (None: prompt, or as before)."""
    encoder: str | None = None
    """Text encoder (None: minilm, or as before)."""
    seed: int | None = None
    """Seed of the questions (None: 0, or as before)."""
    count: int = 5
    """Prompts to write at the end."""

    def needs(self) -> list[Need]:
        from edpbrl_gym.estimation.priors import prior_needs
        from edpbrl_gym.features import encoder_needs
        from edpbrl_gym.planners.registry import planner_needs

        # questions that go on have the encoder of their folder, which is asked for when it is loaded
        spec = self.encoder or (None if begun(self.out) else AskSettings.encoder)
        return [
            *([] if spec is None else encoder_needs(spec)),
            *([] if self.planner is None else planner_needs(self.planner)),
            *([] if self.prior is None else prior_needs(self.prior)),
        ]


def run(options: Ask) -> None:
    """Ask, then estimate the taste, write it and print its prompts."""
    from edpbrl_gym._places import hold_folder
    from edpbrl_gym.cli.ask_drawing import Paper
    from edpbrl_gym.cli.ask_terminal import BadLineError, make_reader
    from edpbrl_gym.session.typed import AnswerForm

    with bad_arguments():
        _check(options)
    with hold_folder(options.out):
        given = ("vocabulary", "num_options", "format", "levels", "planner", "prior", "feedback", "encoder", "seed")
        settings = chosen_settings(options.out, {name: getattr(options, name) for name in given})
        with bad_arguments():
            form = AnswerForm.named(settings.format, settings.num_options, settings.levels)
        quiet_libraries()
        with make_reader(form) as reader:
            paper = Paper(output(), form, live=reader.live, waits=reader.asks)
            if not begun(options.out):  # to be read while the vocabulary is loaded
                paper.opening(settings.feedback, shown(options.out))
            with open_session(options.out, settings, form) as session:
                bad: BadLineError | None = None
                try:
                    _converse(options, session, form, reader, paper)
                except KeyboardInterrupt:
                    paper.close()
                except BadLineError as error:  # what was learnt before this line is written, then it is reported
                    bad = error
                finally:
                    if session.answered:
                        session.comparisons.to_parquet(options.out / ANSWERS)
                    else:  # those that a call before wrote have been taken back
                        (options.out / ANSWERS).unlink(missing_ok=True)
                _finish(options, session, paper)
                if bad is not None:
                    raise bad


def _check(options: Ask) -> None:
    from edpbrl_gym._validation import MOST_OPTIONS, MOST_PROMPTS, check_count, check_path
    from edpbrl_gym.estimation.priors import PRIORS
    from edpbrl_gym.features import check_encoder_spec
    from edpbrl_gym.planners.registry import takes_model

    check_path(options.vocabulary, "vocabulary")
    check_count(options.count, "--count", maximum=MOST_PROMPTS)
    for name, least, most in (("num_options", 1, MOST_OPTIONS), ("questions", 1, None), ("seed", 0, None)):
        if getattr(options, name) is not None:
            check_count(getattr(options, name), f"--{name.replace('_', '-')}", minimum=least, maximum=most)
    if options.encoder is not None:
        check_encoder_spec(options.encoder)
    if options.planner is not None and not takes_model(options.planner):
        raise UsageError(
            f"Expected a --planner that learns from all that a person may answer, {options.planner} learns from best "
            "options only; it is for comparisons with simulated people"
        )
    if options.prior is not None and options.prior not in PRIORS:
        check_population_file(Path(options.prior))


def _converse(options: Ask, session: Session, form: AnswerForm, reader: Reader, paper: Paper) -> None:
    """Say where a session was left, remind of answers of another day, and ask."""
    times = session.transcript.times
    if session.transcript.questions:
        when = datetime.fromisoformat(times[-1]).astimezone().strftime("%Y-%m-%d at %H:%M") if times else ""
        paper.resuming(session, shown(options.out), when)
    days = (datetime.now(UTC) - datetime.fromisoformat(times[-1])).days if times else 0
    if days >= 1:
        paper.reminding(session, days)
        if reader.asks and not reader.confirm():
            return
    _Asking(session, form, stopping_rule(), reader, paper).run(options.questions)


# -- the loop --------------------------------------------------------------------------------------------------------

_AHEAD = (0, 1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40, 50, 60, 70)  # further questions of the forecast
_THOUGHTS = 3  # parts of what the first forecast needs


class _Asking:
    """Asks until the person stops, the input ends, or a number of questions is answered; the session is saved."""

    def __init__(self, session: Session, form: AnswerForm, rule: StoppingRule, reader: Reader, paper: Paper) -> None:
        self.session, self.form, self.rule = session, form, rule
        self.reader, self.paper = reader, paper
        self._evaluated = -1  # number of answered questions of the last forecast
        self._warm = False

    def run(self, questions: int | None) -> None:
        """Ask.

        Args:
            questions: Number of answered or skipped questions after which to end, None: the person says when.
        """
        from edpbrl_gym.likelihood import Response
        from edpbrl_gym.session.typed import Wish

        while questions is None or self.session.answered < questions:
            question = self.session.ask()
            self.paper.question(self.session, question)
            said = self.reader.answer(self.form, self.paper, self._work())
            if said is Wish.STOP:
                self.paper.close()
                return
            if said is Wish.UNDO:
                self._undo()
                continue
            self._tell(Response(self.form.format.unsure) if said is Wish.SKIP else said)

    def _tell(self, response: Response) -> None:
        session = self.session
        session.tell(response)
        self.paper.answered(session, session.answered - 1, session.transcript.responses[-1])
        if not self.reader.live and not self.reader.asks:
            self._evaluate()
        self.paper.told()

    def _undo(self) -> None:
        if not self.session.answered:
            self.paper.note("There is no answer to take back yet.")
            return
        from edpbrl_gym.session.typed import in_words

        before = in_words(self.session.transcript.responses[-1])
        question = self.session.undo()
        self._evaluated = -1
        self.paper.note(f"Took back the answer to question {question.number + 1}, which was {before}.")

    def _work(self) -> Iterator[None]:
        """What can be computed while the person reads, part by part."""
        session = self.session
        if not self._warm:
            self._warm = True
            encoder = session.maker.encoder  # loads the model, where all texts so far were in the cache
            getattr(encoder, "encoder", encoder).encode([session.ask().texts[0]])
            yield
        if self._evaluated != session.answered:
            self._evaluate()
            yield
        for _ in range(_THOUGHTS):
            session.think()
            yield

    def _evaluate(self) -> None:
        """Say in words how sure the session is."""
        session = self.session
        self._evaluated = session.answered
        if all(response.kind == "skip" for response in session.transcript.responses):
            self.paper.sure = ""
            return
        progress = session.progress((*_AHEAD, *(count + self.rule.lookahead for count in _AHEAD)))
        self.paper.sure = _certainty(progress, self.rule)


def _certainty(progress: Progress, rule: StoppingRule) -> str:
    """How sure a session is, and about how many questions are left by its stopping rule."""
    from edpbrl_gym.reporting.statistics import plural

    left = rule.questions_left(progress.answers, progress.further, progress.curve)
    if progress.should_stop or left == 0:
        rest = "enough: Q ends, or go on"
    elif left is None:
        rest = f"more than {progress.further[-1] - rule.lookahead} questions left"
    else:
        rest = f"about {plural(left, 'question')} left"
    return f"{progress.accuracy:.0%} sure, {rest}"


# -- the end ---------------------------------------------------------------------------------------------------------


def _finish(options: Ask, session: Session, paper: Paper) -> None:
    """Write the taste, print its prompts and the next commands."""
    from edpbrl_gym.cli.answers import provenance_of
    from edpbrl_gym.personalize.taste import save_taste
    from edpbrl_gym.reporting.statistics import plural
    from edpbrl_gym.session.recommendation import recommend, standings

    console = paper.console
    again = command("edpbrl", "ask", *(() if options.out == Path("runs/ask") else ("--out", options.out)))
    learnt = session.comparisons.informative if session.answered else None
    (options.out / PROMPTS).unlink(missing_ok=True)  # those of other answers
    if learnt is None or not len(learnt):
        (options.out / TASTE).unlink(missing_ok=True)
        console.print(f"\n Nothing learnt yet. Go on: {again}", soft_wrap=True)
        return
    estimate, facts, landmarks = _estimate(session, learnt)
    origin = provenance_of(learnt, Path(ANSWERS), estimate, facts)
    save_taste(options.out / TASTE, estimate.theta, origin, vocabulary=session.vocabulary, landmarks=landmarks)
    paper.note("Writing prompts for your taste ...")
    draws = session.draws()
    prompts = recommend(session.vocabulary, session.memo, estimate.theta, draws, count=options.count, level=0.9)
    texts = [prompt.text for prompt in prompts]
    write_prompts(options.out, texts)
    paper.prompts(prompts, standings(session.vocabulary, session.memo, draws, texts), options.count)
    paper.words(session.words())
    files = ", ".join(shown(options.out / name) for name in (PROMPTS, TASTE, ANSWERS))
    console.print(f" Written from {plural(session.answered, 'question')}: {files}", soft_wrap=True)
    following = command("edpbrl", "personalize", options.out / TASTE)
    console.print(f" More prompts, pictures: {following}", soft_wrap=True)
    console.print(f" More questions:         {again}", soft_wrap=True)


def _estimate(session: Session, answers: Any) -> tuple[Any, dict[str, Any], Any]:
    """The taste as `edpbrl estimate` has it from the same answers, the facts about its prior, and its landmarks."""
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.estimation.priors import prior_or_words
    from edpbrl_gym.features import embed_tokens
    from edpbrl_gym.likelihood import format_of

    words = VocabularyPrior(embed_tokens(session.vocabulary, session.maker.encoder))
    prior = prior_or_words(session.outlook.given_prior, lambda: words)
    fit = prior.fit(prior.mapped(answers).terms(format_of(answers.responses)))
    return fit.estimate, prior.described(fit).facts, prior.landmarks
