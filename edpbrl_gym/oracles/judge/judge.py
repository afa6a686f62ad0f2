"""A language model as judge: questions in, verdicts out, each paid for once; also as an oracle."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.oracles.base import Answers
from edpbrl_gym.oracles.judge.asking import Asker, Request
from edpbrl_gym.oracles.judge.budget import Budget
from edpbrl_gym.oracles.judge.client import ChatClient
from edpbrl_gym.oracles.judge.ledger import Ledger
from edpbrl_gym.oracles.judge.messages import label_order, same_candidate
from edpbrl_gym.oracles.judge.questions import REASONS, JudgeQuestion, Reason, Usage, Verdict
from edpbrl_gym.oracles.judge.settings import JudgeSettings
from edpbrl_gym.oracles.pictures import OptionPictures

if TYPE_CHECKING:
    from edpbrl_gym.rendering import CachedRenderer

__all__ = ["Judge", "JudgeOracle"]

_log = logging.getLogger("edpbrl_gym.oracles.judge")

Progress = Callable[[int, int], None]

# of the reasons for a missing answer: what can be done
_REMEDIES: dict[Reason, str] = {
    "invalid": "no label beyond doubt: another model may keep to the form",
    "cut": "before the answer was whole: a larger max_answer_tokens asks them again",
    "refused": "by the model or a filter",
    "failed": "no reply, or an empty one: the next run asks them again",
    "budget": "a larger max_questions or max_tokens asks them",
}


class Judge:
    """Asks a model behind an OpenAI-compatible chat endpoint which of K candidates fits a style best.

    Each answer is in the ledger on disk before it is returned; a question with an answer there is never asked again.
    Close the judge when done (it is a context manager): the ledger is locked while it is open.

    Args:
        settings: Model, style, endpoint, limits.
        ledger: File of the answers (created if it does not exist), or an open ledger to share.

    Raises:
        ValueError: A required key is missing, or the file is not a ledger.
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
        self._verdicts: dict[tuple[str, ...], tuple[list[Request], Verdict]] = {}

    def for_style(self, style: str) -> Judge:
        """A judge for another style, with the same model, server, ledger and budget; closing one closes both."""
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

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.close()
        except OSError as unwritten:
            if kind is None or issubclass(kind, Exception):
                raise
            _log.error("%s", unwritten)  # an interrupt remains an interrupt

    def ask(self, questions: Sequence[JudgeQuestion], progress: Progress | None = None) -> list[Verdict]:
        """Ask all questions, ``concurrency`` at once, and return one verdict for each, in order.

        A bad, refused or missing answer is a verdict without a choice, never an exception. On Ctrl-C pending answers
        are awaited and kept.

        The callback gets (requests done, all requests) after each answer, and for those in the ledger.

        Raises:
            ValueError: A question lacks the texts or images to show, or an image is not a picture.
            OSError: A picture or the ledger can't be read or written.
            ConnectionError: The server rejects the key, does not have the model, or stopped answering, or its replies
                are cut or empty one after the other.
        """
        plans = [self._plan(question, number) for number, question in enumerate(questions)]
        requests = {request.key: request for plan in plans for request in plan}
        cached_keys = {key for key, request in requests.items() if request.find_outcome(self.ledger)}
        pending = [request for key, request in requests.items() if key not in cached_keys]
        num_done = len(cached_keys)

        def advance() -> None:
            nonlocal num_done
            num_done += 1
            if progress is not None:
                progress(num_done, len(requests))

        if progress is not None and cached_keys:
            progress(num_done, len(requests))
        if pending:
            self._asker.ask(pending, advance)
        verdicts = []
        counted_keys: set[str] = set()
        for question, plan in zip(questions, plans, strict=True):
            verdict = self._verdict(plan, requests, counted_keys, cached=all(one.key in cached_keys for one in plan))
            counted_keys |= {request.key for request in plan}
            verdicts.append(verdict)
            self._verdicts[(question.identity, *(request.key for request in plan))] = (plan, verdict)
        missing: Counter[Reason] = Counter(verdict.reason for verdict in verdicts if verdict.reason != "answered")
        if missing:
            told = ", ".join(
                f"{missing[reason]} {reason} ({_REMEDIES[reason]})" for reason in REASONS if missing[reason]
            )
            _log.warning("%d of %d questions have no answer: %s", missing.total(), len(verdicts), told)
        return verdicts

    def _plan(self, question: JudgeQuestion, number: int) -> list[Request]:
        settings = self.settings
        if getattr(question, settings.show) is None:
            raise ValueError(
                f"Expected questions with {settings.show}, question {number} has none; give them, or set show="
                f"{'images' if settings.show == 'texts' else 'texts'!r}"
            )
        plan = []
        for look in range(2 if settings.second_look else 1):
            order = label_order(question.identity, question.num_options, settings.seed, look)
            plan.append(Request.plan(settings, question, order, look))
        return plan

    def _verdict(
        self, plan: list[Request], requests: dict[str, Request], counted_keys: set[str], *, cached: bool
    ) -> Verdict:
        """The verdict from the requests of a question, of which some are counted for an equal question."""
        lines = [request.result(self.ledger) or {} for request in plan]
        choices = [line.get("choice") for line in lines]
        answers = [choice for choice in choices if choice is not None]
        decisive = next((look for look, choice in enumerate(choices) if choice is not None), 0)
        if answers:
            reason: Reason = "answered"
        elif "reason" in lines[0]:
            reason = lines[0]["reason"]
        else:
            reason = "budget" if requests[plan[0].key].outcome == "budget" else "failed"
        sent = [(one, [line for key in self._keys(one) if (line := self._sent(key)) is not None]) for one in plan]
        counted = [line for request, lines in sent if request.key not in counted_keys for line in lines]
        return Verdict(
            choice=choices[decisive],
            reason=reason,
            order=plan[decisive].order,
            consistent=same_candidate(self.settings, plan[0].question, *answers) if len(answers) == 2 else None,
            usage=sum((self._cost(request) for request in plan if request.key not in counted_keys), Usage()),
            latency=sum(line["latency"] for _, lines in sent for line in lines),
            retries=sum(line["retries"] for line in counted),
            reminders=sum(one.reminder is not None and self._sent(one.reminder.key) is not None for one in plan),
            cached=cached,
        )

    def _keys(self, request: Request) -> dict[str, None]:
        """Keys of the lines about a request: that which decides, that of the question, and that of its reminder."""
        decides = request.result(self.ledger) or {}
        reminders = [] if request.reminder is None else [request.reminder.key]
        return dict.fromkeys([decides.get("key", request.key), request.key, *reminders])

    def _sent(self, key: str) -> dict[str, Any] | None:
        """The line with what came of a request so far."""
        return self.ledger.answers.get(key) or self.ledger.failures.get(key)

    def _cost(self, request: Request) -> Usage:
        """The cost of a request so far, including failed attempts of earlier runs."""
        answers, lost, keys = self.ledger.answers, self.ledger.lost, self._keys(request)
        paid = [Usage(**answers[key]["usage"]) for key in keys if key in answers]
        return sum(paid + [lost[key] for key in keys if key in lost], Usage())

    @property
    def usage(self) -> Usage:
        """Tokens of all questions of this judge so far, by earlier runs, too."""
        requests = {request.key: request for plan, _ in list(self._verdicts.values()) for request in plan}
        return sum((self._cost(request) for request in requests.values()), Usage())

    def account(self) -> dict[str, Any]:
        """Summary of all questions of this judge so far, as a JSON-able dict.

        An answer from the ledger counts like a new one, so a resumed run has the same account as an uninterrupted one.
        ``spent`` is that of the whole ledger, including other styles and earlier runs.
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
            "reminders": sum(verdict.reminders for verdict in verdicts),
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "unreported_tokens": usage.unreported,
            "cost": usage.cost(*prices),
            "looks_compared": len(pairs),
            "consistency": sum(pairs) / len(pairs) if pairs else None,
            "structured": self._asker.structured,
            "spent": {"questions": self.budget.questions, "tokens": self.budget.tokens},
        }


_DESCRIBED = "model address style show temperature structured max_answer_tokens second_look seed".split()


class JudgeOracle:
    """A :class:`Judge` as an :class:`~edpbrl_gym.oracles.Oracle`.

    A question without an answer is a skip. The identity of a question in the ledger is "episode/step".

    Args:
        judge: The judge.
        renderer: Required if the judge is shown images. A question with a picture that the safety checker has flagged,
            or with an option that could not be drawn, is not asked; the details of the answers count them.
        image_seed: Seed of the noise of all pictures, so that options differ only by their texts.
        name: Name of the oracle, recorded with every comparison.

    Raises:
        ValueError: The judge is shown images, but there is no renderer.
    """

    def __init__(
        self, judge: Judge, renderer: CachedRenderer | None = None, *, image_seed: int = 0, name: str = "judge"
    ) -> None:
        if judge.settings.show == "images" and renderer is None:
            raise ValueError(
                "Expected a renderer for a judge that is shown images, got none; give one, or use "
                "JudgeSettings(show='texts')"
            )
        self.judge = judge
        self.renderer = renderer
        self._pictures = None if renderer is None else OptionPictures(renderer, seed=image_seed)
        self.image_seed = image_seed
        self.name = name

    def describe(self) -> dict[str, Any]:
        """All settings of this oracle, JSON-able."""
        settings = self.judge.settings
        described: dict[str, Any] = {"name": self.name, "kind": "judge"}
        described |= {name: getattr(settings, name) for name in _DESCRIBED}
        if settings.show == "images":
            described["image_size"] = settings.image_size
            described["image_seed"] = self.image_seed
            described["renderer"] = getattr(self.renderer, "fingerprint", type(self.renderer).__name__)
        return described

    def answer(self, queries: Queries) -> Answers:
        """Ask the judge all questions, which must have texts; errors are those of `Judge.ask` and `OptionPictures`."""
        if queries.texts is None:
            raise ValueError(
                "Expected questions with texts for a judge, got features only; use an environment with "
                "trajectory_texts (or state_texts), or give Queries their texts"
            )
        names = [f"{episode}/{step}" for episode, step in zip(queries.episode, queries.step, strict=True)]
        details, indices = self.describe(), np.arange(len(queries))
        images: list[list[bytes] | None] = [None] * len(queries)
        if self.judge.settings.show == "images":
            assert self._pictures is not None
            seen, ends = self._pictures.of(queries), queries.sizes.cumsum()
            indices = np.flatnonzero(~seen.hidden)
            details |= seen.counts()
            for i in indices:
                shown = seen.pictures[ends[i] - queries.sizes[i] : ends[i]]
                images[i] = [picture.png for picture in shown if picture is not None]
        choices = np.full(len(queries), -1, dtype=np.int64)
        asked = [JudgeQuestion(texts=queries.texts[i], images=images[i], identity=names[i]) for i in indices]
        for index, verdict in zip(indices, self.judge.ask(asked), strict=True):
            if verdict.choice is not None:
                choices[index] = verdict.choice
        return Answers.of_choices(choices, details)
