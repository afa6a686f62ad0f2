"""Concurrent questions, each paid for at most once: threads, budget, ledger, and a clean stop."""

from __future__ import annotations

import errno
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
from edpbrl_gym.oracles.judge.ledger import GONE, Ledger
from edpbrl_gym.oracles.judge.messages import answer_schema, make_messages, most_input_tokens
from edpbrl_gym.oracles.judge.questions import JudgeQuestion, Usage
from edpbrl_gym.oracles.judge.reading import read_answer
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = ["Asker", "Look"]

_log = logging.getLogger("edpbrl_gym.oracles.judge")

_MAX_FAILURES = 20  # questions in a row without an answer, after which the server counts as down
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _go_on() -> None:
    """Nothing stops the questions but Ctrl-C."""


class _StoppedError(Exception):
    """The run stops; nothing more is sent."""


@dataclass(eq=False)
class Look:
    """One question as it is sent, with its candidates in one order.

    Attributes:
        settings: Settings of the judge.
        question: The candidates.
        order: Index of the candidate behind each label.
        look: 0, or 1 for the second look.
        key: Key of its answer in the ledger.
        outcome: Outcome, None until it is known; "stopped" if the run stopped before.
    """

    settings: JudgeSettings
    question: JudgeQuestion
    order: tuple[int, ...]
    look: int
    key: str
    outcome: Literal["answer", "failed", "budget", "stopped"] | None = None
    attempts: Attempts | None = field(default=None, repr=False)
    reservation: Reservation | None = field(default=None, repr=False)
    started: float = 0.0


class Asker:
    """Sends looks to one server, several at once, and writes all results to the ledger.

    Args:
        client: Client that sends one question.
        ledger: Ledger of all answers that were paid for.
        budget: Limits on questions and tokens.
    """

    def __init__(self, client: ChatClient, ledger: Ledger, budget: Budget) -> None:
        self.client = client
        self.ledger = ledger
        self.budget = budget
        settings = client.settings
        self._origin = (settings.model, settings.address)
        self._mode: Literal["schema", "text"] | None = None if settings.structured == "auto" else settings.structured
        if self._mode is None and self.text_only:
            self._mode = "text"
        self._probing = threading.Lock()
        self._failures = 0
        self._unreadable = 0

    @property
    def text_only(self) -> bool:
        """Whether the server is known to take no JSON schema."""
        return self._origin in self.ledger.text_only

    def learn_mode(self, structured: str) -> None:
        """Take over the form of the answers that a worker has found."""
        if self._mode is None and structured in ("schema", "text"):
            self._mode = "schema" if structured == "schema" else "text"

    @property
    def structured(self) -> str:
        """Form of the answers: "schema", "text", or "unknown" before the first answer."""
        return self._mode or "unknown"

    def ask(self, looks: Sequence[Look], advance: Callable[[], None], check: Callable[[], None] = _go_on) -> None:
        """Ask all looks; afterwards each has its outcome, and all answers are on disk.

        On Ctrl-C nothing more is sent; pending answers, which are paid for, are awaited for at most ``timeout`` seconds
        (another Ctrl-C ends the wait), and the KeyboardInterrupt is raised. A look that another thread is asking is
        awaited.

        Args:
            looks: Looks with different keys.
            advance: Callback, called in this thread after each look.
            check: Callback, called in this thread at least twice a second; an exception stops as Ctrl-C does.

        Raises:
            ConnectionError: The server rejects the key, does not have the model, redirects, or stopped answering.
            OSError: The ledger or a picture can't be read or written. Answers that could not be written are kept in
                memory, and nothing more is asked until they are written.
            ValueError: A file is not a picture.
        """
        self._write_pending()
        queued = deque(looks)
        results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                try:
                    look = queued.popleft()
                except IndexError:
                    return
                error: BaseException | None = None
                try:
                    self._claim_and_ask(look, stop)
                except BaseException as caught:  # passed to the waiting thread
                    error = caught
                    stop.set()
                results.put(error)

        num_threads = min(self.client.settings.concurrency, len(looks))
        threads = [threading.Thread(target=work, name=f"judge-{i}", daemon=True) for i in range(num_threads)]
        try:
            for thread in threads:
                thread.start()
            for _ in looks:
                error = _next(results, check)
                if error is not None:
                    raise error
                advance()
        except BaseException as caught:
            stop.set()
            self._wait_for(threads)
            try:
                self._write_pending()
            except OSError as unwritten:
                if isinstance(caught, Exception):
                    raise
                _log.error("%s", unwritten)  # an interrupt remains an interrupt
            raise
        for thread in threads:
            thread.join()

    def _wait_for(self, threads: list[threading.Thread]) -> None:
        """Wait for pending answers; a thread that waits for anything else ends by itself."""
        deadline = time.monotonic() + self.client.settings.timeout + 5.0
        for thread in threads:
            while thread.is_alive() and time.monotonic() < deadline:
                thread.join(0.2)  # repeatedly, as not every system lets Ctrl-C end a long wait

    def _write_pending(self) -> None:
        """Write earlier lines that the disk did not accept; nothing more is asked until they are written."""
        try:
            self.ledger.write_pending()
        except OSError as error:
            problem, remedy = error.strerror, "solve that and ask again"
            if error.errno in _DISK_FULL:
                remedy = "make room and ask again"
            elif error.errno is None:  # from the log: the file is no longer there
                problem, remedy = "it has been deleted, moved, replaced or cut short", GONE
            raise OSError(
                f"Expected to write to {self.ledger.path}, could not ({problem}); the results of "
                f"{len(self.ledger.unwritten)} questions are kept only in this process, and nothing more is asked "
                f"until they are written: {remedy}"
            ) from None

    def _claim_and_ask(self, look: Look, stop: threading.Event) -> None:
        """Ask a look unless another thread is asking it or has asked it in the meantime."""
        if not self.ledger.claim(look.key, stop):
            look.outcome = "stopped"
            return
        try:
            if look.key in self.ledger.answers:
                look.outcome = "answer"
            else:
                self._ask_look(look, stop)
        finally:
            self.ledger.release(look.key)

    def _ask_look(self, look: Look, stop: threading.Event) -> None:
        settings = look.settings
        messages = make_messages(settings, look.question, look.order)
        max_tokens = most_input_tokens(settings, look.question) + settings.max_answer_tokens
        try:
            reservation = self.budget.reserve(max_tokens, stop)
        except BudgetExhausted:
            look.outcome = "stopped" if stop.is_set() else "budget"
            return

        def before_sending() -> None:
            if stop.is_set():
                raise _StoppedError
            is_retry = attempts.sent > 0
            if is_retry and attempts.lost == reservation.renewals:
                return  # the line of the previous attempt, which cost nothing, also covers this one
            if is_retry:
                reservation.renew()
            tokens = reservation.lost + reservation.tokens
            line = {"kind": "sent", "key": look.key, "identity": look.question.identity, "tokens": tokens}
            self.ledger.append(line | ({"again": True} if is_retry else {}), durable=False)

        attempts = Attempts(before_sending, stop, key=look.key)
        look.started = time.monotonic()
        look.reservation, look.attempts = reservation, attempts
        try:
            reply = self._send(look, messages, attempts, stop)
        except (_StoppedError, BudgetExhausted) as error:
            outcome: Literal["budget", "stopped"] = "stopped" if isinstance(error, _StoppedError) else "budget"
            self._finish_unanswered(look, outcome, outcome)
        except BaseException:
            with suppress(OSError, ValueError):  # an error is being raised already
                self._finish_unanswered(look, "failed" if attempts.sent else "stopped", "refused by the server")
            raise
        else:
            self._finish(look, reply)

    def _send(self, look: Look, messages: list[dict[str, object]], attempts: Attempts, stop: threading.Event) -> Reply:
        """Send a question, with the JSON schema if the server accepts it, as the first question finds out."""
        schema = answer_schema(look.question.num_options)
        if self._mode is None:
            while not self._probing.acquire(timeout=0.2):  # another call may hold it for a long time
                if stop.is_set():
                    raise _StoppedError
            try:
                if self._mode is None:
                    try:
                        return self._probe(messages, schema, attempts, stop)
                    except OSError:  # stop before another question fails the same way
                        stop.set()
                        raise
            finally:
                self._probing.release()
        return self.client.ask(messages, schema if self._mode == "schema" else None, attempts)

    def _probe(
        self,
        messages: list[dict[str, object]],
        schema: dict[str, object],
        attempts: Attempts,
        stop: threading.Event,
    ) -> Reply:
        if stop.is_set():
            raise _StoppedError
        reply = self.client.ask(messages, schema, attempts)
        if reply.kind != "rejected":
            if reply.kind == "text":
                self._mode = "schema"
            return reply
        plain = self.client.ask(messages, None, attempts)
        if plain.kind == "text":  # so the server rejected the schema
            self._mode = "text"
            model, address = self._origin
            with suppress(OSError):  # the next run can find out again; this answer must not be lost
                line = {"kind": "mode", "model": model, "address": address, "structured": "text"}
                self.ledger.append(line, durable=True)
            _log.info("the server takes no JSON schema; its answers are read as text")
        return plain

    def _finish(self, look: Look, reply: Reply) -> None:
        """Write the reply to the ledger, then set the look's outcome."""
        assert look.attempts is not None and look.reservation is not None
        if reply.kind in ("failed", "rejected", "stopped"):
            stopped = reply.kind == "stopped"
            self._finish_unanswered(look, "stopped" if stopped else "failed", reply.status)
            if not stopped:
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
                **_question_fields(look, usage),
                "choice": None if position is None else look.order[position],
                "reason": reason,
                "text": reply.text[:500],
                "status": reply.status,
                "model": reply.model,
            },
            durable=True,
        )
        look.outcome = "answer"
        self._count_unreadable(reason, reply.status)

    def _count_unreadable(self, reason: str, status: str) -> None:
        """Warn, once in a row, if no answer has the required form, since every answer costs."""
        self._unreadable = 0 if reason == "answered" else self._unreadable + 1
        if reason != "answered":
            _log.info("an answer is missing: %s (%s)", reason, status)
        if self._unreadable == _MAX_FAILURES:
            _log.warning(
                "the last %d answers named no label (the last: %s, %s), and each is paid for; a model that thinks "
                "before it answers needs a larger max_answer_tokens",
                _MAX_FAILURES,
                reason,
                status,
            )

    def _finish_unanswered(self, look: Look, outcome: Literal["failed", "budget", "stopped"], status: str) -> None:
        attempts, reservation = look.attempts, look.reservation
        assert attempts is not None and reservation is not None
        look.outcome = outcome
        usage = reservation.release(lost=attempts.lost > reservation.renewals)
        if attempts.sent or outcome == "failed":
            line = {"kind": "failed", **_question_fields(look, usage), "sent": attempts.sent > 0, "status": status}
            self.ledger.append(line, durable=True)

    def _count_failure(self, status: str) -> None:
        self._failures += 1
        # one warning for several in a row: the error at the end, or the account, reports the rest
        _log.log(logging.WARNING if self._failures == 1 else logging.INFO, "a question got no answer (%s)", status)
        if self._failures >= _MAX_FAILURES:
            raise ConnectionError(
                f"Expected answers from {self.client.settings.address}, the last {self._failures} questions got none "
                f"(last: {status}); check that the server runs and takes such requests (a 400: model, temperature, "
                "limit_parameter, show), then run this again: nothing that was answered is asked again"
            )


def _next(results: queue.SimpleQueue[BaseException | None], check: Callable[[], None]) -> BaseException | None:
    """The next result; polls, since not every system lets Ctrl-C end a long wait."""
    while True:
        check()
        try:
            return results.get(timeout=0.5)
        except queue.Empty:
            continue


def _question_fields(look: Look, usage: Usage) -> dict[str, object]:
    """Fields of every line about a question."""
    assert look.attempts is not None
    return {
        "key": look.key,
        "identity": look.question.identity,
        "look": look.look,
        "order": list(look.order),
        "usage": asdict(usage),
        "latency": round(time.monotonic() - look.started, 4),
        "retries": look.attempts.retries,
        "lost": look.attempts.lost,
        "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
