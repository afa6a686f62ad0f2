"""What `edpbrl ask` prints: questions, the line in which a person answers, and the learnt taste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from edpbrl_gym._feedback import Feedback
    from edpbrl_gym.likelihood import Response
    from edpbrl_gym.session import Question, Recommendation, Session, Standing
    from edpbrl_gym.session.typed import AnswerForm

__all__ = ["Paper", "plural"]

_WIDEST = 100  # columns of a prompt: longer lines are hard to read
_NUMBERS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight", 9: "Nine"}
_SUBJECTS = {"prompt": "prompts", "truncated": "beginnings of prompts", "state": "phrases"}


class Paper:
    """The part of the terminal, or of the output file, on which a session is printed.

    Args:
        console: The console.
        form: What may be answered.
        live: Whether the last line shows what is typed, key by key.
        waits: Whether a person is at the keyboard.
    """

    def __init__(self, console: Console, form: AnswerForm, *, live: bool, waits: bool) -> None:
        self.console, self.form, self.live, self.waits = console, form, live, waits
        self.sure = ""  # how sure the session is, in words
        self._told = ""  # the last time it was printed
        self._line: tuple[str, str, str] | None = None  # what the line shows in which the person types

    # before the first question

    def opening(self, feedback: Feedback, place: str) -> None:
        """Say what will happen, and where the answers are."""
        number = _NUMBERS.get(self.form.num_options, str(self.form.num_options))
        things = _SUBJECTS[feedback]
        do = {
            "best": "choose the one whose picture you would like best",
            "best-worst": "choose the one whose picture you would like best, then the one you would like least",
            "ranking": "choose the one whose picture you would like best, then the next best, and so on",
        }[self.form.name]
        self._paragraph(
            f"{number} {things} at a time: {do}. Every answer is saved at once in {place}; stop whenever you like, and "
            "the same command goes on. The percentage says how often it would know which of two new prompts you like "
            "better; guessing is 50%."
        )

    def resuming(self, session: Session, place: str, when: str) -> None:
        """Say where the session was left."""
        answered = session.answered
        since = f", the last one on {when}" if answered else ""
        self._paragraph(f"Going on in {place}: {plural(answered, 'question')} answered{since}.")

    def reminding(self, session: Session, days: int, last: int = 3) -> None:
        """Show the last answers of a session that was left long ago."""
        from edpbrl_gym.session.typed import in_words

        self._paragraph(f"That was {plural(days, 'day')} ago. Your last answers:")
        transcript = session.transcript
        for number in range(max(0, session.answered - last), session.answered):
            response, question = transcript.responses[number], transcript.questions[number]
            best = "" if response.first is None else f": {question.texts[response.first]}"
            self._paragraph(f"  question {number + 1}, {in_words(response)}{best}")
        if self.waits:
            self._paragraph("Enter goes on with the same taste in mind, Q stops.")

    # a question and its answer

    def question(self, session: Session, question: Question) -> None:
        """Print a question."""
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        self._close()
        asked = {"best": "which do you like best?", "best-worst": "which is best, which is worst?"}
        title = Text.assemble((f"Question {question.number + 1}", "bold cyan"), ": ")
        title.append(asked.get(self.form.name, "which do you like best, and then?"))
        grid = Table.grid(padding=(0, 1))
        grid.add_column(justify="right", style="bold cyan", width=len(str(question.num_options)), no_wrap=True)
        grid.add_column(overflow="fold", max_width=_WIDEST)
        for number, text in enumerate(_emphasised(session, question), start=1):
            grid.add_row(str(number), text)
        self.console.print()
        self.console.print(title)
        self.console.print(Padding(grid, (0, 0, 0, 1)))
        if self.waits:
            self.console.print(Text(f" {self._help()}", style="dim"))

    def typing(self, order: Sequence[int], ranking: bool) -> None:
        """Show how sure the session is, and what has been typed so far."""
        if not self.live:
            return
        from rich.text import Text

        typed = " ".join(str(option + 1) for option in order)
        own = ranking != (self.form.name == "ranking")  # R was pressed
        what = "in order, Enter ends: " if ranking and (order or own) else ""
        sure = "" if order or own or not self.sure else f"{self.sure}  "  # both may not fit in a line
        if self._line == (sure, what, typed):
            return
        self._erase()
        self._line = sure, what, typed
        line = Text.assemble(" ", (sure, "green"), ("> ", "bold"), what, (typed, "bold"))
        line.truncate(self.console.width - 1)
        self.console.print(line, end="", no_wrap=True)
        self.console.file.flush()

    def answered(self, session: Session, number: int, response: Response) -> None:
        """Print an answer, in place of the line in which it was typed."""
        from rich.text import Text

        from edpbrl_gym.session.typed import in_words

        self._close(erase=True)
        first = response.first
        subject = "" if first is None else f"  {_parts(session, session.transcript.questions[number])[first][0]}"
        self.console.print(Text.assemble(" You: ", (in_words(response), "bold"), (subject, "dim")))

    def told(self) -> None:
        """Print how sure the session is, where no line shows it."""
        if not self.live and self.sure and self.sure != self._told:
            self.console.print(f" {self.sure}")
            self._told = self.sure

    def note(self, text: str) -> None:
        """Print a message."""
        self._close(erase=True)
        self._paragraph(text)

    def _help(self) -> str:
        last = self.form.num_options
        if self.live:
            first = {"best": f"1-{last} best   R rank", "best-worst": f"1-{last} best, then worst"}.get(
                self.form.name, f"1-{last} in order, Enter ends"
            )
            return f"{first}   S can't tell   U undo   Q stop"
        example = {"best": f"1-{last}", "best-worst": "best and worst (2 5)"}.get(self.form.name, "in order (3 1 4)")
        return f"Type {example}, s can't tell, u undo or q stop, and Enter"

    # the end

    def prompts(self, prompts: Sequence[Recommendation], standings: Sequence[Standing]) -> None:
        """Print the recommended prompts, and how they compare with random ones."""
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        self.console.print()
        self.console.print(Text("What you like, as prompts", style="bold cyan"))
        grid = Table.grid(padding=(0, 1))
        grid.add_column(justify="right", style="bold cyan", width=len(str(len(prompts))))
        grid.add_column(overflow="fold", max_width=_WIDEST)
        for number, (prompt, standing) in enumerate(zip(prompts, standings, strict=True), start=1):
            share, low = (min(99, int(100 * value)) for value in (standing.share, standing.low))
            found = f"you would prefer it to {share} of 100 random prompts; 95% certain: to at least {low}"
            grid.add_row(str(number), Text.assemble((prompt.text, "bold"), "\n", (found, "dim")))
        self.console.print(Padding(grid, (0, 0, 0, 1)))
        self.console.print()

    # lines

    def _paragraph(self, text: str) -> None:
        from rich.padding import Padding

        width = min(self.console.width - 1, _WIDEST + 3)
        self.console.print(Padding(text, (0, 0, 0, 1)), width=width)

    def _erase(self) -> None:
        from rich.control import Control
        from rich.segment import ControlType

        if self._line is not None:
            self.console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))

    def _close(self, *, erase: bool = False) -> None:
        """End the line in which the person types, so that the next text has a line of its own."""
        if self._line is None:
            return
        if erase:
            self._erase()
        else:
            self.console.print()
        self._line = None

    close = _close


def plural(count: int, word: str) -> str:
    """A number of things."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _parts(session: Session, question: Question) -> list[list[str]]:
    """The phrases of each option."""
    words = session.vocabulary.tokens
    rows: list[list[str]] = [
        [words[step][token] for step, token in enumerate(prompt)] for prompt in question.tokens.tolist()
    ]
    return [row[-1:] for row in rows] if session.maker.feedback == "state" else rows


def _emphasised(session: Session, question: Question) -> list[Text]:
    """The options: the first phrase in which they differ is bold, what they share is dim."""
    from rich.text import Text

    from edpbrl_gym.vocabulary import SEPARATOR

    rows: list[list[Any]] = _parts(session, question)
    shared = [len(set(column)) == 1 for column in zip(*rows, strict=True)]
    first = shared.index(False) if False in shared else 0
    styles = ["dim" if same else "bold" if step == first else "" for step, same in enumerate(shared)]
    return [Text(SEPARATOR).join(Text(part, style) for part, style in zip(row, styles, strict=True)) for row in rows]
