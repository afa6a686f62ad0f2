"""A language model as judge: questions in, verdicts out, nothing asked or paid for twice."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from edpbrl_gym.oracles.judge.asking import Asker, Look
from edpbrl_gym.oracles.judge.budget import Budget
from edpbrl_gym.oracles.judge.client import ChatClient
from edpbrl_gym.oracles.judge.ledger import Ledger
from edpbrl_gym.oracles.judge.messages import label_order, question_key, same_candidate
from edpbrl_gym.oracles.judge.questions import REASONS, JudgeQuestion, Reason, Usage, Verdict
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = ["Judge", "JudgeQuestion", "Usage", "Verdict"]

_log = logging.getLogger("edpbrl_gym.oracles.judge")

Progress = Callable[[int, int], None]


class Judge:
    """Asks a model behind an OpenAI-compatible chat endpoint which of K candidates fits a style best.

    Each question is labelled in an order of its own, sent with the style's guidance, and its answer is on disk in the
    ledger before it is returned; a question that the ledger knows is never asked again. Close it when done (it is a
    context manager): the ledger is locked while it is open.

    Args:
        settings: Model, style, endpoint, limits.
        ledger: Where answers are kept, a file (made where there is none); or an open ledger to share.

    Raises:
        ValueError: No key where one is needed, or a file that is no ledger.
        RuntimeError: Another process has the ledger open.
    """

    def __init__(self, settings: JudgeSettings, *, ledger: str | os.PathLike[str] | Ledger) -> None:
        self.settings = settings
        client = ChatClient(settings)
        self._owns_ledger = not isinstance(ledger, Ledger)
        try:
            self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        except BaseException:
            client.close()
            raise
        self.budget = Budget(settings.max_questions, settings.max_tokens, self.ledger.spending)
        self._asker = Asker(client, self.ledger, self.budget)
        self._verdicts: dict[tuple[str, ...], tuple[list[Look], Verdict]] = {}

    def for_style(self, style: str) -> Judge:
        """Another judge of the same model and server for another style, with the same ledger and one budget for both.

        Closing either closes both.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, settings=replace(self.settings, style=style), _verdicts={})
        return other

    def close(self) -> None:
        """Close the connections, and the ledger unless it was given open. Closing again does nothing."""
        self._asker.client.close()
        if self._owns_ledger:
            self.ledger.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except OSError as unwritten:
            if kind is None or issubclass(kind, Exception):
                raise
            _log.error("%s", unwritten)  # an interrupt stays one

    def ask(self, questions: Sequence[JudgeQuestion], progress: Progress | None = None) -> list[Verdict]:
        """Ask all questions, ``concurrency`` at once, and return one verdict for each, in order.

        A bad, refused or missing answer is a verdict without a choice, never an exception. On Ctrl-C the answers under
        way are waited for and kept, then KeyboardInterrupt is raised; the same call later asks only the rest.

        Args:
            questions: Of any numbers of candidates.
            progress: Called with (looks done, looks in all) after each answer, also for those found in the ledger.

        Raises:
            ValueError: A question without what is to be shown (texts or images), or with what is not a picture.
            OSError: A picture or the ledger can't be read or written.
            ConnectionError: The server refuses the key, knows no such model, or stopped answering.
        """
        plans = [self._plan(question, number) for number, question in enumerate(questions)]
        answers = self.ledger.answers
        looks = {look.key: look for plan in plans for look in plan}
        known = {key for key in looks if key in answers}
        fresh = [look for key, look in looks.items() if key not in known]
        done = len(known)

        def advance() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, len(looks))

        if progress is not None and known:
            progress(done, len(looks))
        if fresh:
            self._asker.ask(fresh, advance)
        verdicts = []
        counted: set[str] = set()
        for question, plan in zip(questions, plans, strict=True):
            verdict = self._verdict(plan, looks, counted, cached=all(look.key in known for look in plan))
            counted |= {look.key for look in plan}
            verdicts.append(verdict)
            self._verdicts[(question.identity, *(look.key for look in plan))] = (plan, verdict)
        return verdicts

    def _plan(self, question: JudgeQuestion, number: int) -> list[Look]:
        """The looks at a question."""
        settings = self.settings
        if getattr(question, settings.show) is None:
            raise ValueError(
                f"Expected questions with {settings.show}, question {number} has none; give them, or set show="
                f"{'images' if settings.show == 'texts' else 'texts'!r}"
            )
        plan = []
        for look in range(2 if settings.second_look else 1):
            order = label_order(question.identity, question.num_options, settings.seed, look)
            plan.append(Look(settings, question, order, look, question_key(settings, question, order, look)))
        return plan

    def _verdict(self, plan: list[Look], looks: dict[str, Look], counted: set[str], *, cached: bool) -> Verdict:
        """What the looks at a question have come to; those in ``counted`` were an equal question's too."""
        lines = [self._line(look) for look in plan]
        choices = [line.get("choice") for line in lines]
        given = [place for place, choice in enumerate(choices) if choice is not None]
        both = [choice for choice in choices if choice is not None]
        place = given[0] if given else 0
        if given:
            reason: Reason = "answered"
        elif "reason" in lines[0]:
            reason = lines[0]["reason"]
        else:
            reason = "budget" if looks[plan[0].key].outcome == "budget" else "failed"
        return Verdict(
            choice=choices[place],
            reason=reason,
            order=plan[place].order,
            consistent=same_candidate(self.settings, plan[0].question, *both) if len(both) == 2 else None,
            usage=sum((self._cost(look) for look in plan if look.key not in counted), Usage()),
            latency=sum(line.get("latency", 0.0) for line in lines),
            retries=sum(line.get("retries", 0) for line in lines if line and line["key"] not in counted),
            cached=cached,
        )

    def _line(self, look: Look) -> dict[str, Any]:
        """What the ledger knows of a look, {} for nothing."""
        return self.ledger.answers.get(look.key) or self.ledger.failures.get(look.key) or {}

    def _cost(self, look: Look) -> Usage:
        """What a look has cost so far, with the attempts of earlier runs that failed."""
        line, lost = self.ledger.answers.get(look.key), self.ledger.lost.get(look.key, Usage())
        return lost if line is None else lost + Usage(**line["usage"])

    @property
    def usage(self) -> Usage:
        """Tokens of all questions of this judge so far, whenever they were paid for."""
        looks = {look.key: look for plan, _ in list(self._verdicts.values()) for look in plan}
        return sum((self._cost(look) for look in looks.values()), Usage())

    def account(self) -> dict[str, Any]:
        """What became of all questions of this judge so far, as a dict that JSON can hold.

        ``questions`` = ``answered`` + the sum of ``missing``. An answer found in the ledger counts like one given now,
        so that a resumed run has the account of one that was never stopped. ``spent`` is of the whole ledger, also of
        other styles and earlier runs: what the budget counts.
        """
        verdicts = [verdict for _, verdict in list(self._verdicts.values())]
        settings, usage = self.settings, self.usage
        pairs = [verdict.consistent for verdict in verdicts if verdict.consistent is not None]
        missing = {reason: sum(v.reason == reason for v in verdicts) for reason in REASONS if reason != "answered"}
        prices = (settings.price_per_million_input, settings.price_per_million_output)
        return {
            "questions": len(verdicts),
            "answered": sum(verdict.reason == "answered" for verdict in verdicts),
            "missing": missing,
            "retried": sum(verdict.retries > 0 for verdict in verdicts),
            "retries": sum(verdict.retries for verdict in verdicts),
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "unreported_tokens": usage.unreported,
            "cost": usage.cost(*prices),
            "looks_compared": len(pairs),
            "consistency": sum(pairs) / len(pairs) if pairs else None,
            "structured": self._asker.structured,
            "spent": {"questions": self.budget.questions, "tokens": self.budget.tokens},
        }
