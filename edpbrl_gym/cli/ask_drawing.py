"""What `edpbrl ask` prints: questions, the line in which a person answers, and the learnt taste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.control import Control
from rich.padding import Padding
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from edpbrl_gym.personalize.differing import shortage
from edpbrl_gym.reporting.statistics import plural
from edpbrl_gym.session.typed import in_words
from edpbrl_gym.vocabulary import SEPARATOR

if TYPE_CHECKING:
    from rich.console import Console

    from edpbrl_gym._validation import Feedback
    from edpbrl_gym.likelihood import Response
    from edpbrl_gym.session import Question, Recommendation, Session, Standing, StepWords
    from edpbrl_gym.session.typed import AnswerForm, Taps

__all__ = ["Paper"]

_WIDEST = 100  # columns of a prompt: longer lines are hard to read
_NUMBERS = {1: "One", 2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight", 9: "Nine"}
_SUBJECTS = {
    "prompt": ("prompt", "prompts"),
    "truncated": ("beginning of a prompt", "beginnings of prompts"),
    "state": ("phrase", "phrases"),
}


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
        self._words = form.format.words(form.num_options)
        self.sure = ""  # how sure the session is, in words
        self._told = ""  # the last time it was printed
        self._line: tuple[str, str, str] | None = None  # what the line shows in which the person types

    # before the first question

    def opening(self, feedback: Feedback, folder: str) -> None:
        """Say what will happen, and where the answers are."""
        count = self.form.num_options
        number, things = _NUMBERS.get(count, str(count)), _SUBJECTS[feedback][count > 1]
        self._paragraph(
            f"{number} {things} at a time: {self._words.task}. Every answer is saved at once in {folder}; stop "
            "whenever you like, and the same command goes on. The percentage says how often it would know which of two "
            "new prompts you like better; guessing is 50%."
        )

    def resuming(self, session: Session, folder: str, when: str) -> None:
        """Say where the session was left."""
        answered = session.answered
        since = f", the last one on {when}" if answered else ""
        self._paragraph(f"Going on in {folder}: {plural(answered, 'question')} answered{since}.")

    def reminding(self, session: Session, days: int, last: int = 3) -> None:
        """Show the last answers of a session that was left long ago."""
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
        self.close()
        title = Text.assemble((f"Question {question.number + 1}", "bold cyan"), ": ", self._words.question)
        self.console.print()
        self.console.print(title)
        self._numbered(_emphasised(session, question))
        if self.waits:
            self.console.print(Text(f" {self._help()}", style="dim"))

    def typing(self, taps: Taps) -> None:
        """Show how sure the session is, and what has been typed so far."""
        if not self.live:
            return
        typed = " ".join(str(number + 1) for number in taps.numbers)
        what = "in order, Enter ends: " if taps.ranking and (taps.numbers or taps.own) else ""
        sure = "" if taps.numbers or taps.own or not self.sure else f"{self.sure}  "  # both may not fit in a line
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
        self.close(erase=True)
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
        self.close(erase=True)
        self._paragraph(text)

    def _help(self) -> str:
        if self.live:
            return f"{self._words.keys}   S can't tell   U undo   Q stop"
        return f"Type {self._words.example}, s can't tell, u undo or q stop, and Enter"

    # the end

    def prompts(self, prompts: Sequence[Recommendation], standings: Sequence[Standing], asked: int) -> None:
        """Print the recommended prompts, how they compare with random ones, and whether there are fewer than asked."""
        self.console.print()
        self.console.print(Text("What you like, as prompts", style="bold cyan"))
        texts = []
        for prompt, standing in zip(prompts, standings, strict=True):
            share, low = (min(99, int(100 * value)) for value in (standing.share, standing.low))
            found = f"you would prefer it to {share} of 100 random prompts; 95% certain: to at least {low}"
            texts.append(Text.assemble((prompt.text, "bold"), "\n", (found, "dim")))
        self._numbered(texts)
        if line := shortage(len(prompts), asked):
            self._paragraph(line)
        self.console.print()

    def words(self, steps: Sequence[StepWords]) -> None:
        """Print which phrases of each step the person surely likes and dislikes."""
        self.console.print(Text("Phrases you like and dislike", style="bold cyan"))
        if not any(step.liked or step.disliked for step in steps):
            self._paragraph("Not known yet: more answers will tell.")
        else:
            grid = Table.grid(padding=(0, 1))
            grid.add_column(overflow="fold", max_width=_WIDEST // 4)
            grid.add_column(no_wrap=True)
            grid.add_column(overflow="fold", max_width=_WIDEST)
            for step in steps:
                known = [(mark, words) for mark, words in (("+", step.liked), ("-", step.disliked)) if words]
                for index, (mark, words) in enumerate(known or [("?", ("not known yet",))]):
                    style = {"+": "green", "-": "red"}.get(mark, "dim")
                    name = "" if index else step.step
                    grid.add_row(Text(name, "dim"), Text(mark, style), Text("; ".join(words), "" if known else "dim"))
            self.console.print(Padding(grid, (0, 0, 0, 1)))
            self._paragraph(
                "+ you like it more, - you like it less than the average phrase of its row; 90% certain of each.", "dim"
            )
        self.console.print()

    # lines

    def _numbered(self, texts: Sequence[Text]) -> None:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(justify="right", style="bold cyan", width=len(str(len(texts))), no_wrap=True)
        grid.add_column(overflow="fold", max_width=_WIDEST)
        for number, text in enumerate(texts, start=1):
            grid.add_row(str(number) if len(texts) > 1 else "", text)
        self.console.print(Padding(grid, (0, 0, 0, 1)))

    def _paragraph(self, text: str, style: str = "") -> None:
        width = min(self.console.width - 1, _WIDEST + 3)
        self.console.print(Padding(text, (0, 0, 0, 1)), width=width, style=style)

    def _erase(self) -> None:
        if self._line is not None:
            self.console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))

    def close(self, *, erase: bool = False) -> None:
        """End the line in which the person types, so that the next text has a line of its own."""
        if self._line is None:
            return
        if erase:
            self._erase()
        else:
            self.console.print()
        self._line = None


def _parts(session: Session, question: Question) -> list[list[str]]:
    words = session.vocabulary.tokens
    rows: list[list[str]] = [
        [words[step][token] for step, token in enumerate(prompt)] for prompt in question.tokens.tolist()
    ]
    return [row[-1:] for row in rows] if session.maker.feedback == "state" else rows


def _emphasised(session: Session, question: Question) -> list[Text]:
    """The options: the first phrase in which they differ is bold, what they share is dim."""
    rows: list[list[Any]] = _parts(session, question)
    shared = [len(set(column)) == 1 < len(rows) for column in zip(*rows, strict=True)]
    first = shared.index(False) if False in shared else 0
    styles = ["dim" if same else "bold" if step == first else "" for step, same in enumerate(shared)]
    return [Text(SEPARATOR).join(Text(part, style) for part, style in zip(row, styles, strict=True)) for row in rows]
