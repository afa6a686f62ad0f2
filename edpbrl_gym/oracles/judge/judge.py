"""A language model as judge: questions in, verdicts out, each paid for once."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from edpbrl_gym._executor import Executor
from edpbrl_gym.oracles.judge.asking import Asker, Look
from edpbrl_gym.oracles.judge.budget import Budget
from edpbrl_gym.oracles.judge.client import ChatClient
from edpbrl_gym.oracles.judge.ledger import Ledger
from edpbrl_gym.oracles.judge.messages import label_order, question_key, same_candidate
from edpbrl_gym.oracles.judge.questions import REASONS, JudgeQuestion, Reason, Usage, Verdict
from edpbrl_gym.oracles.judge.settings import JudgeSettings
from edpbrl_gym.oracles.judge.shards import ask_on_workers

__all__ = ["Judge", "JudgeQuestion", "Usage", "Verdict"]

_log = logging.getLogger("edpbrl_gym.oracles.judge")

Progress = Callable[[int, int], None]


class Judge:
    """Asks a model behind an OpenAI-compatible chat endpoint which of K candidates fits a style best.

    Each question is labelled in its own order and sent with the style guidance, and its answer is in the ledger on disk
    before it is returned; a question in the ledger is never asked again. Close the judge when done (it is a context
    manager): the ledger is locked while it is open.

    Args:
        settings: Model, style, endpoint, limits.
        ledger: File of the answers (created if it does not exist), or an open ledger to share.
        executor: Its workers ask, ``concurrency`` questions each (None: this process asks). They see the folder of the
            ledger and the pictures, reach the endpoint, and have its key in their own environment.

    Raises:
        ValueError: A required key is missing, or the file is not a ledger.
        RuntimeError: Another process has the ledger open.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        *,
        ledger: str | os.PathLike[str] | Ledger,
        executor: Executor | None = None,
    ) -> None:
        self.settings = settings
        self.executor = executor
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
        """Return a judge for another style, with the same model, server, ledger and budget; closing one closes both."""
        judge = object.__new__(type(self))
        judge.__dict__.update(self.__dict__, settings=replace(self.settings, style=style), _verdicts={})
        return judge

    def close(self) -> None:
        """Close the connections, and the ledger unless it is shared. Closing again does nothing."""
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
            _log.error("%s", unwritten)  # an interrupt remains an interrupt

    def ask(self, questions: Sequence[JudgeQuestion], progress: Progress | None = None) -> list[Verdict]:
        """Ask all questions, ``concurrency`` at once, and return one verdict for each, in order.

        A bad, refused or missing answer is a verdict without a choice, never an exception. On Ctrl-C pending answers
        are awaited and kept, then KeyboardInterrupt is raised; the same call later asks only the remaining questions.

        Args:
            questions: Questions with any numbers of candidates.
            progress: Callback of (looks done, all looks), called after each answer, and for those in the ledger.

        Raises:
            ValueError: A question lacks the texts or images to show, or an image is not a picture.
            OSError: A picture or the ledger can't be read or written.
            ConnectionError: The server rejects the key, does not have the model, or stopped answering.
        """
        plans = [self._plan(question, number) for number, question in enumerate(questions)]
        answers = self.ledger.answers
        looks = {look.key: look for plan in plans for look in plan}
        cached_keys = {key for key in looks if key in answers}
        pending = [look for key, look in looks.items() if key not in cached_keys]
        num_done = len(cached_keys)

        def advance() -> None:
            nonlocal num_done
            num_done += 1
            if progress is not None:
                progress(num_done, len(looks))

        if progress is not None and cached_keys:
            progress(num_done, len(looks))
        if pending and self.executor is not None:
            ask_on_workers(self.executor, self._asker, pending, advance)
        elif pending:
            self._asker.ask(pending, advance)
        verdicts = []
        counted_keys: set[str] = set()
        for question, plan in zip(questions, plans, strict=True):
            verdict = self._verdict(plan, looks, counted_keys, cached=all(look.key in cached_keys for look in plan))
            counted_keys |= {look.key for look in plan}
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

    def _verdict(self, plan: list[Look], looks: dict[str, Look], counted_keys: set[str], *, cached: bool) -> Verdict:
        """The verdict from the looks at a question; those in ``counted_keys`` belong to an equal question, too."""
        lines = [self._line(look) for look in plan]
        choices = [line.get("choice") for line in lines]
        answered_looks = [look_index for look_index, choice in enumerate(choices) if choice is not None]
        answers = [choice for choice in choices if choice is not None]
        look_index = answered_looks[0] if answered_looks else 0
        if answered_looks:
            reason: Reason = "answered"
        elif "reason" in lines[0]:
            reason = lines[0]["reason"]
        else:
            reason = "budget" if looks[plan[0].key].outcome == "budget" else "failed"
        return Verdict(
            choice=choices[look_index],
            reason=reason,
            order=plan[look_index].order,
            consistent=same_candidate(self.settings, plan[0].question, *answers) if len(answers) == 2 else None,
            usage=sum((self._cost(look) for look in plan if look.key not in counted_keys), Usage()),
            latency=sum(line.get("latency", 0.0) for line in lines),
            retries=sum(line.get("retries", 0) for line in lines if line and line["key"] not in counted_keys),
            cached=cached,
        )

    def _line(self, look: Look) -> dict[str, Any]:
        """The ledger's line about a look, {} if there is none."""
        return self.ledger.answers.get(look.key) or self.ledger.failures.get(look.key) or {}

    def _cost(self, look: Look) -> Usage:
        """The cost of a look so far, including failed attempts of earlier runs."""
        line, lost = self.ledger.answers.get(look.key), self.ledger.lost.get(look.key, Usage())
        return lost if line is None else lost + Usage(**line["usage"])

    @property
    def usage(self) -> Usage:
        """Tokens of all questions of this judge so far, including those paid for by earlier runs."""
        looks = {look.key: look for plan, _ in list(self._verdicts.values()) for look in plan}
        return sum((self._cost(look) for look in looks.values()), Usage())

    def account(self) -> dict[str, Any]:
        """Summary of all questions of this judge so far, as a JSON-able dict.

        ``questions`` = ``answered`` + the sum of ``missing``. An answer from the ledger counts like a new one, so a
        resumed run has the same account as an uninterrupted one. ``spent`` is that of the whole ledger, including other
        styles and earlier runs, as the budget counts it.
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
