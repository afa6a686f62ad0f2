"""`edpbrl ask --terminal`: show a question, read the answer, save it, say what was learnt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from edpbrl_gym.cli.ask_folder import (
    ANSWERS,
    PROMPTS,
    SESSION,
    TASTE,
    AskSettings,
    begun,
    open_session,
    write_settings,
)
from edpbrl_gym.cli.console import bad_arguments, command, output, shown

if TYPE_CHECKING:
    from edpbrl_gym.asking.ending import Ending
    from edpbrl_gym.cli.ask import Ask
    from edpbrl_gym.cli.ask_drawing import Paper
    from edpbrl_gym.cli.ask_terminal import Reader
    from edpbrl_gym.likelihood import Response
    from edpbrl_gym.session import Progress, Session
    from edpbrl_gym.session.typed import AnswerForm

__all__ = ["ask_in_terminal", "next_commands"]


def ask_in_terminal(options: Ask, settings: AskSettings) -> None:
    """Ask, then write the taste and print its prompts."""
    from edpbrl_gym.asking.ending import keep_answers
    from edpbrl_gym.cli.ask_drawing import Paper
    from edpbrl_gym.cli.ask_terminal import BadLineError, make_reader
    from edpbrl_gym.session.typed import AnswerForm

    with bad_arguments():
        form = AnswerForm.named(settings.format, settings.num_options, settings.levels)
    with make_reader(form) as reader:
        paper = Paper(output(), form, live=reader.live, waits=reader.asks)
        resumed = begun(options.out)
        if not resumed:  # to be read while the vocabulary is loaded
            paper.opening(settings.feedback, shown(options.out))
        with open_session(options.out, settings, form.format) as session:
            if not resumed:
                write_settings(options.out, settings)
                session.save(options.out / SESSION)
            bad: BadLineError | None = None
            try:
                _converse(options, session, form, reader, paper)
            except KeyboardInterrupt:
                paper.close()
            except BadLineError as error:  # what was learnt before this line is written, then it is reported
                bad = error
            finally:
                keep_answers(session, options.out)
            _finish(options, session, paper)
            if bad is not None:
                raise bad


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
    _Asking(session, form, reader, paper).run(options.questions)


# -- the loop --------------------------------------------------------------------------------------------------------

_THOUGHTS = 3  # parts of what the first forecast needs


class _Asking:
    """Asks until the person stops, the input ends, or a number of questions is answered; the session is saved."""

    def __init__(self, session: Session, form: AnswerForm, reader: Reader, paper: Paper) -> None:
        self.session, self.form = session, form
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
        self.paper.sure = _certainty(session.progress(()))


def _certainty(progress: Progress) -> str:
    """How sure a session is, and about how many questions are left by its stopping rule."""
    from edpbrl_gym.reporting.statistics import plural

    left, reach = progress.left, progress.left.reach
    if progress.should_stop:
        rest = "enough: Q ends, or go on"
    elif left.questions is None:
        rest = f"more than {left.most} questions left"
    else:
        rest = f"about {plural(left.questions, 'question')} left" + (f" ({reach[0]} to {reach[1]})" if reach else "")
    return f"{progress.accuracy:.0%} sure, {rest}"


# -- the end ---------------------------------------------------------------------------------------------------------


def _finish(options: Ask, session: Session, paper: Paper) -> None:
    """Write the taste, print its prompts and the next commands."""
    from edpbrl_gym.asking.ending import conclude

    if session.answered:
        paper.note("Writing prompts for your taste ...")
    ending = conclude(session, options.out, count=options.count)
    if ending is not None:
        paper.prompts(ending.prompts, ending.standings, options.count)
        paper.words(ending.words)
    following = command("edpbrl", "personalize", options.out / TASTE)
    for line in next_commands(options.out, ending, "--terminal", following=f"More prompts, pictures: {following}"):
        paper.console.print(line, soft_wrap=True)


def next_commands(out: Path, ending: Ending | None, *more: str, following: str = "") -> list[str]:
    """What was written, and the commands that go on, for the end of a session; ``more`` are options of `edpbrl ask`."""
    from edpbrl_gym.reporting.statistics import plural

    again = command("edpbrl", "ask", *more, *(() if out == Path("runs/ask") else ("--out", out)))
    if ending is None:
        return [f"\n Nothing learnt yet. Go on: {again}"]
    files = ", ".join(shown(out / name) for name in (PROMPTS, TASTE, ANSWERS))
    return [
        f" Written from {plural(ending.questions, 'question')}: {files}",
        *([f" {following}"] if following else []),
        f" More questions:         {again}",
    ]
