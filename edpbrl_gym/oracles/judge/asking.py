"""Many questions under way at once, each paid for at most once: threads, budget, ledger, and a clean stop."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Literal

from edpbrl_gym.oracles.judge.budget import Budget, BudgetExhausted, Reservation
from edpbrl_gym.oracles.judge.client import Attempts, ChatClient, Reply
from edpbrl_gym.oracles.judge.ledger import Ledger
from edpbrl_gym.oracles.judge.messages import answer_schema, make_messages, most_input_tokens
from edpbrl_gym.oracles.judge.questions import JudgeQuestion, Usage
from edpbrl_gym.oracles.judge.reading import read_answer
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = ["Asker", "Look"]

_log = logging.getLogger("edpbrl_gym.oracles.judge")

# so many questions in a row without an answer, and the server counts as gone
_GIVE_UP = 20


class _StoppedError(Exception):
    """The run stops; nothing more is sent."""


@dataclass(eq=False)
class Look:
    """One question as it is sent: with its candidates in one order.

    Attributes:
        settings: what the judge is told.
        question: the candidates.
        order: which candidate each label names.
        look: 0, or 1 for the second look.
        key: the name of its answer in the ledger.
        outcome: what came of it: None until it is known, "stopped" where the run stopped before.
        over: whether the thread that asked it is done with it.
    """

    settings: JudgeSettings
    question: JudgeQuestion
    order: tuple[int, ...]
    look: int
    key: str
    outcome: Literal["answer", "failed", "budget", "stopped"] | None = None
    attempts: Attempts | None = field(default=None, repr=False)
    reservation: Reservation | None = field(default=None, repr=False)
    begun: float = 0.0
    over: bool = False
    _claim: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def claim(self) -> bool:
        """Whether the caller is the first to end this look; only the first writes what came of it."""
        return self._claim.acquire(blocking=False)


class Asker:
    """Asks looks of one server, several at once, and writes all that comes back to the ledger.

    Args:
        client: Sends one question.
        ledger: Takes what was paid for.
        budget: What may be spent.
    """

    def __init__(self, client: ChatClient, ledger: Ledger, budget: Budget) -> None:
        self.client = client
        self.ledger = ledger
        self.budget = budget
        settings = client.settings
        self._origin = (settings.model, settings.address)
        self._how: Literal["schema", "text"] | None = None if settings.structured == "auto" else settings.structured
        if self._how is None and self._origin in ledger.text_only:
            self._how = "text"
        self._probing = threading.Lock()
        self._failures = 0
        self._unread = 0

    @property
    def structured(self) -> str:
        """How answers are asked for: "schema", "text", or "unknown" before the first answer."""
        return self._how or "unknown"

    def ask(self, looks: Sequence[Look], done: Callable[[], None]) -> None:
        """Ask all looks; afterwards each has its outcome, and what was answered is on the disk.

        On Ctrl-C nothing more is sent, the answers under way are waited for (they are paid for; at most ``timeout``
        seconds; another Ctrl-C ends the waiting) and the KeyboardInterrupt goes on.

        Args:
            looks: With different keys.
            done: Called in this thread after each.

        Raises:
            ConnectionError: The server refuses the key, knows no such model, or stopped answering.
            OSError: The ledger or a picture can't be read or written.
            ValueError: A picture that is none.
        """
        waiting = deque(looks)
        started: list[Look] = []
        ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                try:
                    look = waiting.popleft()
                except IndexError:
                    return
                started.append(look)
                error: BaseException | None = None
                try:
                    self._ask_one(look, stop)
                except BaseException as caught:  # carried over to the thread that waits
                    error = caught
                look.over = True
                ended.put(error)

        number = min(self.client.settings.concurrency, len(looks))
        threads = [threading.Thread(target=work, name=f"judge-{i}", daemon=True) for i in range(number)]
        try:
            for thread in threads:
                thread.start()
            for _ in looks:
                error = _next(ended)
                if error is not None:
                    raise error
                done()
        except BaseException:
            stop.set()
            self._wait_for(started)
            raise
        for thread in threads:
            thread.join()

    def _wait_for(self, started: list[Look]) -> None:
        """Wait for answers that are under way; end the looks that wait to be sent again."""
        longest = self.client.settings.timeout + 1.0
        for look in list(started):
            while not look.over:
                if _is_idle(look, longest) and look.claim():
                    with suppress(OSError, ValueError):  # there is an error already
                        self._end_unanswered(look, "stopped", "stopped")
                    break
                time.sleep(0.005)

    def _ask_one(self, look: Look, stop: threading.Event) -> None:
        settings = look.settings
        messages = make_messages(settings, look.question, look.order)
        most = most_input_tokens(settings, look.question) + settings.max_answer_tokens
        try:
            reservation = self.budget.reserve(most, stop)
        except BudgetExhausted:
            look.outcome = "stopped" if stop.is_set() else "budget"
            return

        def sent(**more: bool) -> None:
            tokens = reservation.lost + reservation.tokens
            self.ledger.append({"kind": "sent", "key": look.key, "tokens": tokens, **more}, durable=False)

        def before_sending(lost: bool) -> None:
            if stop.is_set():
                raise _StoppedError
            if lost:
                reservation.renew()
                sent(again=True)

        attempts = Attempts(before_sending)
        look.begun = time.monotonic()
        look.reservation, look.attempts = reservation, attempts
        try:
            sent()
            reply = self._send(look, messages, attempts, stop)
            if attempts.ended is not None and not isinstance(attempts.ended, (_StoppedError, BudgetExhausted)):
                raise attempts.ended  # the ledger can't be written
        except BaseException:
            if look.claim():
                self._end_unanswered(look, "failed", "refused by the server")
            raise
        if look.claim():
            self._end(look, reply)

    def _send(self, look: Look, messages: list[dict[str, object]], attempts: Attempts, stop: threading.Event) -> Reply:
        """Send a question with the JSON schema where the server takes it; find out with the first question."""
        schema = answer_schema(look.question.num_options)
        if self._how is None:
            with self._probing:
                if self._how is None:
                    return self._probe(messages, schema, attempts, stop)
        if stop.is_set():
            return Reply("stopped", status="stopped")
        return self.client.ask(messages, schema if self._how == "schema" else None, attempts)

    def _probe(
        self,
        messages: list[dict[str, object]],
        schema: dict[str, object],
        attempts: Attempts,
        stop: threading.Event,
    ) -> Reply:
        if stop.is_set():
            return Reply("stopped", status="stopped")
        reply = self.client.ask(messages, schema, attempts)
        if reply.kind != "rejected":
            if reply.kind == "text":
                self._how = "schema"
            return reply
        plain = self.client.ask(messages, None, attempts)
        if plain.kind == "text":  # so it was the schema that the server did not take
            self._how = "text"
            model, address = self._origin
            self.ledger.append({"kind": "mode", "model": model, "address": address, "structured": "text"}, durable=True)
            _log.info("the server takes no JSON schema; its answers are read as text")
        return plain

    def _end(self, look: Look, reply: Reply) -> None:
        """Write what came back, then say so."""
        assert look.attempts is not None and look.reservation is not None
        if reply.kind in ("failed", "rejected", "stopped"):
            budget = isinstance(look.attempts.ended, BudgetExhausted)
            outcome: Literal["failed", "budget", "stopped"] = (
                "budget" if budget else "stopped" if reply.kind == "stopped" else "failed"
            )
            self._end_unanswered(look, outcome, reply.status)
            if outcome == "failed":
                self._count_failure(reply.status)
            return
        self._failures = 0
        strict = look.settings.structured == "schema"
        position = None
        if reply.kind == "text":
            position = read_answer(reply.text, look.question.num_options, "schema" if strict else "text")
        reason = "refused" if reply.kind == "refused" else "invalid" if position is None else "answered"
        usage = look.reservation.settle(reply.usage)
        self.ledger.append(
            {
                "kind": "answer",
                **_facts(look, usage),
                "choice": None if position is None else look.order[position],
                "reason": reason,
                "text": reply.text[:500],
                "status": reply.status,
                "model": reply.model,
            },
            durable=True,
        )
        look.outcome = "answer"
        self._watch(reason, reply.status)

    def _watch(self, reason: str, status: str) -> None:
        """Warn, once in a row, where the model answers but never in the agreed form: every answer costs."""
        self._unread = 0 if reason == "answered" else self._unread + 1
        if reason != "answered":
            _log.info("an answer is missing: %s (%s)", reason, status)
        if self._unread == _GIVE_UP:
            _log.warning(
                "the last %d answers named no label (the last: %s, %s), and each is paid for; a model that thinks "
                "before it answers needs a larger max_answer_tokens",
                _GIVE_UP,
                reason,
                status,
            )

    def _end_unanswered(self, look: Look, outcome: Literal["failed", "budget", "stopped"], status: str) -> None:
        attempts, reservation = look.attempts, look.reservation
        if reservation is not None and attempts is not None:
            if attempts.sent_at is not None:  # given up while it was under way
                attempts.lost, attempts.sent_at = attempts.lost + 1, None
            usage = reservation.release(lost=attempts.lost > reservation.renewals)
            self.ledger.append({"kind": "failed", **_facts(look, usage), "status": status}, durable=True)
        look.outcome = outcome

    def _count_failure(self, status: str) -> None:
        self._failures += 1
        # of several in a row one warning is enough: the error at the end, or the account, tells the rest
        _log.log(logging.WARNING if self._failures == 1 else logging.INFO, "a question got no answer (%s)", status)
        if self._failures >= _GIVE_UP:
            raise ConnectionError(
                f"Expected answers from {self.client.settings.address}, the last {self._failures} questions got none "
                f"(last: {status}); check that the server runs and takes such requests (a 400: model, temperature, "
                "limit_parameter, show), then run this again: nothing that was answered is asked again"
            )


def _next(ended: queue.SimpleQueue[BaseException | None]) -> BaseException | None:
    """The next result; waits in short pieces, since not every system lets Ctrl-C end a long wait."""
    while True:
        try:
            return ended.get(timeout=0.5)
        except queue.Empty:
            continue


def _is_idle(look: Look, longest: float) -> bool:
    """Whether a stopped run may give a look up: it waits to be sent, which it will not be, or its server is silent.

    Not one that has not come that far (it sees the stop by itself), nor one whose answer is there to be kept.
    """
    attempts = look.attempts
    if attempts is None or attempts.ready:
        return False
    sent_at = attempts.sent_at
    waits = sent_at is None or time.monotonic() > sent_at + longest
    return waits and not attempts.ready  # the answer may have come between the two


def _facts(look: Look, usage: Usage) -> dict[str, object]:
    """What every line about a question tells."""
    assert look.attempts is not None
    return {
        "key": look.key,
        "identity": look.question.identity,
        "look": look.look,
        "order": list(look.order),
        "usage": asdict(usage),
        "latency": round(time.monotonic() - look.begun, 4),
        "retries": look.attempts.retries,
        "lost": look.attempts.lost,
        "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
