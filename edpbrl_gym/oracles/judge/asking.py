"""Concurrent requests, each paid for at most once: threads, budget, ledger, and a clean stop.

The way of one question: `Judge.ask` plans its `Request`. Of the threads of `Asker.ask` one claims it
(``_claim_and_ask``), reserves what it may cost (``_ask``), and sends it with a schema if the server takes one
(``_send``, ``_reply``). `ChatClient.ask` makes the attempts, each a `Poster.post`, and reads what comes back
(``reading``, ``refusals``). ``_finish`` reads the label (``labels``) and writes the answer to the ledger, where the
judge finds it for its verdict.
"""

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

from edpbrl_gym._log import Line
from edpbrl_gym.oracles.judge.budget import Budget, BudgetExhausted, Reservation, Trials
from edpbrl_gym.oracles.judge.client import Attempts, ChatClient
from edpbrl_gym.oracles.judge.labels import read_answer
from edpbrl_gym.oracles.judge.ledger import GONE, Ledger
from edpbrl_gym.oracles.judge.messages import Keys, answer_schema, make_messages, most_input_tokens, question_keys
from edpbrl_gym.oracles.judge.questions import JudgeQuestion, Reason, Usage
from edpbrl_gym.oracles.judge.reading import Reply, answer_part
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = ["Asker", "Request"]

_log = logging.getLogger("edpbrl_gym.oracles.judge")
_MAX_FAILURES = 20  # questions in a row without an answer, after which the server counts as down
_LONGEST_TEXT = 500  # characters of a reply that the ledger keeps: its beginning and its end
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(eq=False)
class Request:
    """One question as it is sent, with its candidates in one order."""

    settings: JudgeSettings
    question: JudgeQuestion
    order: tuple[int, ...]  # index of the candidate behind each label
    look: int  # 0, or 1 for the second look
    keys: Keys  # keys of its reply in the ledger
    reminder: Request | None = None  # with a sterner instruction, sent if the reply can't be read; None in a reminder
    # None until it is known; "unread" if the reminder is to be sent, "stopped" if the run stopped before
    outcome: Literal["answer", "unread", "failed", "budget", "stopped"] | None = None
    attempts: Attempts | None = field(default=None, repr=False)
    reservation: Reservation | None = field(default=None, repr=False)
    started: float = 0.0

    @classmethod
    def plan(cls, settings: JudgeSettings, question: JudgeQuestion, order: tuple[int, ...], look: int) -> Request:
        """A request with its reminder."""
        first, second = question_keys(settings, question, order, look)
        return cls(settings, question, order, look, first, cls(settings, question, order, look, second))

    @property
    def key(self) -> str:
        """Key of the request."""
        return self.keys.request

    def result(self, ledger: Ledger) -> Line | None:
        """The line in the ledger that decides, None if something is to be sent."""
        line = ledger.find(self.keys)
        if self.reminder is None or (line is not None and line["reason"] in ("answered", "refused")):
            return line
        return self.reminder.result(ledger) or (None if line is None or line["reason"] == "invalid" else line)

    def find_outcome(self, ledger: Ledger) -> bool:
        """Set the outcome that the ledger knows; whether nothing is left to be sent."""
        if self.result(ledger) is not None:
            self.outcome = "answer"
        elif ledger.find(self.keys) is not None:
            self.outcome = "unread"
        return self.outcome not in (None, "unread")


class _StoppedError(Exception):
    """The run stops; nothing more is sent."""


_Result = tuple[Request, BaseException | None]


class Asker:
    """Sends requests to one server, several at once, and writes all results to the ledger."""

    def __init__(self, client: ChatClient, ledger: Ledger, budget: Budget) -> None:
        self.client = client
        self.ledger = ledger
        self.budget = budget
        settings = client.settings
        self._origin = (settings.model, settings.address)
        self._mode: Literal["schema", "text"] | None = None if settings.structured == "auto" else settings.structured
        if self._mode is None and self._origin in ledger.text_only:
            self._mode = "text"
        self._probing = threading.Lock()
        self._failures = 0
        self._unreadable = 0
        self._trials = Trials(settings)

    @property
    def structured(self) -> str:
        """Form of the answers: "schema", "text", or "unknown" before the first answer."""
        return self._mode or "unknown"

    def ask(self, requests: Sequence[Request], advance: Callable[[], None]) -> None:
        """Ask all requests; afterwards each has its outcome, and all answers are on disk.

        On Ctrl-C nothing more is sent; pending answers, which are paid for, are awaited for at most ``timeout`` seconds
        (another Ctrl-C ends the wait), and the KeyboardInterrupt is raised. A request that another thread is asking is
        awaited.

        Raises:
            ConnectionError, OSError, ValueError: As for `Judge.ask`.
        """
        self._write_pending()
        queued = deque(requests)
        results: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                try:
                    request = queued.popleft()
                except IndexError:
                    return
                error: BaseException | None = None
                try:
                    self._claim_and_ask(request, stop)
                except BaseException as caught:  # passed to the waiting thread
                    error = caught
                    stop.set()
                results.put((request, error))

        num_threads = min(self.client.settings.concurrency, len(requests))
        threads = [threading.Thread(target=work, name=f"judge-{i}", daemon=True) for i in range(num_threads)]
        try:
            for thread in threads:
                thread.start()
            for _ in requests:
                request, error = _next(results)
                if error is not None:
                    raise error
                if request.outcome != "stopped":  # by an error that another thread is about to report
                    advance()
        except BaseException as caught:
            stop.set()
            deadline = time.monotonic() + self.client.settings.timeout + 5.0  # for pending answers
            for thread in threads:
                while thread.is_alive() and time.monotonic() < deadline:
                    thread.join(0.2)  # repeatedly, as not every system lets Ctrl-C end a long wait
            try:
                self._write_pending()
            except OSError as unwritten:
                if isinstance(caught, Exception):
                    raise
                _log.error("%s", unwritten)  # an interrupt remains an interrupt
            raise
        for thread in threads:
            thread.join()

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

    def _claim_and_ask(self, request: Request, stop: threading.Event) -> None:
        """Ask a request unless another thread has asked it in the meantime."""
        if not self.ledger.claim(request.key, stop):
            request.outcome = "stopped"
            return
        try:
            if request.find_outcome(self.ledger):
                return
            if request.outcome is None:
                self._ask(request, stop)
            if request.outcome == "unread":
                assert request.reminder is not None
                self._ask(request.reminder, stop)
                request.outcome = request.reminder.outcome
        finally:
            self.ledger.release(request.key)

    def _ask(self, request: Request, stop: threading.Event) -> None:
        """Ask a request, once the budget has room and no more are under way than may be cut or empty."""
        settings = request.settings
        reminded = request.reminder is None
        if not self._trials.begin(stop):
            request.outcome = "stopped"
            return
        try:
            messages = make_messages(settings, request.question, request.order, reminded=reminded)
            max_tokens = most_input_tokens(settings, request.question, reminded=reminded) + settings.max_answer_tokens
            reservation = request.reservation = self.budget.reserve(max_tokens, stop)
            self._send(request, reservation, messages, stop)
        except BudgetExhausted:
            request.outcome = "stopped" if stop.is_set() else "budget"
        finally:
            self._trials.end()

    def _send(
        self, request: Request, reservation: Reservation, messages: list[dict[str, object]], stop: threading.Event
    ) -> None:
        """Send a request; its outcome is known, and on disk, when this returns."""

        def before_sending() -> None:
            if stop.is_set():
                raise _StoppedError
            is_retry = attempts.sent > 0
            if is_retry and attempts.lost > reservation.renewals:
                reservation.renew()
            line = {
                "kind": "sent",
                "key": request.key,
                "identity": request.question.identity,
                "tokens": reservation.lost + reservation.tokens,
                "refused": dict(attempts.refused),
            }
            self.ledger.append(line | {"again": True} if is_retry else line, durable=False)

        refused = dict(self.ledger.refused.get(request.key, {}))
        attempts = request.attempts = Attempts(before_sending, stop, refused=refused, key=request.key)
        request.started = time.monotonic()
        try:
            reply = self._reply(messages, answer_schema(request.question.num_options), attempts)
        except (_StoppedError, BudgetExhausted) as error:
            outcome: Literal["budget", "stopped"] = "stopped" if isinstance(error, _StoppedError) else "budget"
            self._finish_unanswered(request, outcome, outcome)
        except BaseException:
            with suppress(OSError, ValueError):  # an error is being raised already
                self._finish_unanswered(request, "failed" if attempts.sent else "stopped", "refused by the server")
            raise
        else:
            self._finish(request, reply)

    def _reply(self, messages: list[dict[str, object]], schema: dict[str, object], attempts: Attempts) -> Reply:
        """The reply to a question, sent with the JSON schema if the server accepts it, as the first one finds out."""
        while self._mode is None:
            is_first = self._probing.acquire(timeout=0.2)  # another call may hold it for a long time
            try:
                if attempts.stop.is_set():  # also where the one that held it has failed
                    raise _StoppedError
                if is_first and self._mode is None:
                    return self._probe(messages, schema, attempts)
            except OSError:  # stop before another question fails the same way
                attempts.stop.set()
                raise
            finally:
                if is_first:
                    self._probing.release()
        return self.client.ask(messages, schema if self._mode == "schema" else None, attempts)

    def _probe(self, messages: list[dict[str, object]], schema: dict[str, object], attempts: Attempts) -> Reply:
        reply = self.client.ask(messages, schema, attempts, True)
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

    def _finish(self, request: Request, reply: Reply) -> None:
        """Write the reply to the ledger, then set the request's outcome."""
        assert request.attempts is not None and request.reservation is not None
        if reply.kind in ("failed", "rejected", "stopped"):
            stopped = reply.kind == "stopped"
            self._finish_unanswered(request, "stopped" if stopped else "failed", reply.status, reply.usage)
            if not stopped:
                self._count_failure(reply.status)
            return
        limit = request.settings.max_answer_tokens
        cut = reply.cut or (reply.usage is not None and reply.usage.output_tokens == limit)
        if reply.kind == "text" and not cut and answer_part(reply.text) == "":
            status = "thoughts without an answer" if reply.text else reply.status
            request.attempts.lost += 1
            self._finish_unanswered(request, "failed" if request.reminder is None else "unread", status, reply.usage)
            self._trials.unread(status, self._mode)
            return
        self._failures = 0
        position = None
        if reply.kind == "text":
            shown = request.question.texts if request.settings.show == "texts" else None
            candidates = [] if shown is None else [shown[option] for option in request.order]
            position = read_answer(reply.text, request.question.num_options, cut=cut, candidates=candidates)
        reason: Reason = "refused" if reply.kind == "refused" else "answered"
        if reply.kind == "text" and position is None:
            reason = "cut" if cut else "invalid"
        usage = request.reservation.settle(reply.usage)
        self.ledger.append(
            {
                "kind": "answer",
                **_question_fields(request, usage),
                "answer_key": request.keys.answer,
                "choice": None if position is None else request.order[position],
                "reason": reason,
                "text": _shortened(reply.text),
                "status": reply.status,
                "model": reply.model,
            },
            durable=True,
        )
        request.outcome = "unread" if reason == "invalid" and request.reminder is not None else "answer"
        if reason == "cut":
            self._trials.cut(reply.status, reply.usage)
            return
        self._trials.whole()
        if request.outcome == "answer":
            self._count_unreadable(reason, reply.status)
        else:
            _log.info("a reply names no label beyond doubt (%s); asking once more", reply.status)

    def _count_unreadable(self, reason: str, status: str) -> None:
        """Warn, once in a row, if no answer has the required form, since every answer costs."""
        self._unreadable = 0 if reason == "answered" else self._unreadable + 1
        if reason != "answered":
            _log.info("an answer is missing: %s (%s)", reason, status)
        if self._unreadable == _MAX_FAILURES:
            _log.warning(
                "the last %d questions got no label (the last: %s, %s), and each is paid for; another model or "
                "structured='schema' (--structured schema) may keep to the form that is asked for",
                _MAX_FAILURES,
                reason,
                status,
            )

    def _finish_unanswered(
        self,
        request: Request,
        outcome: Literal["unread", "failed", "budget", "stopped"],
        status: str,
        paid: Usage | None = None,
    ) -> None:
        attempts, reservation = request.attempts, request.reservation
        assert attempts is not None and reservation is not None
        request.outcome = outcome
        usage = reservation.release(lost=attempts.lost > reservation.renewals, usage=paid)
        if attempts.sent or outcome == "failed":
            line = {"kind": "failed", **_question_fields(request, usage), "sent": attempts.sent > 0, "status": status}
            self.ledger.append(line | {"refused": dict(attempts.refused)}, durable=True)

    def _count_failure(self, status: str) -> None:
        self._failures += 1
        _log.log(logging.WARNING if self._failures == 1 else logging.INFO, "a question got no answer (%s)", status)
        if self._failures >= _MAX_FAILURES:
            said = self.client.last_error
            raise ConnectionError(
                f"Expected answers from {self.client.settings.address}, the last {self._failures} questions got none "
                f"(last: {status}{'; the server says: ' if said else ''}{said}); check that the server runs and takes "
                "such requests (a 400: model, temperature, limit_parameter, show), then run this again: nothing that "
                "was answered is asked again"
            )


def _next(results: queue.SimpleQueue[_Result]) -> _Result:
    """The next result; polls, since not every system lets Ctrl-C end a long wait."""
    while True:
        try:
            return results.get(timeout=0.5)
        except queue.Empty:
            continue


def _shortened(text: str) -> str:
    """The text of a reply as the ledger keeps it: without its middle, where that is long."""
    half = _LONGEST_TEXT // 2 - 3
    return text if len(text) <= _LONGEST_TEXT else f"{text[:half]} [...] {text[-half:]}"[:_LONGEST_TEXT]


def _question_fields(request: Request, usage: Usage) -> dict[str, object]:
    assert request.attempts is not None
    return {
        "key": request.key,
        "identity": request.question.identity,
        "look": request.look,
        "order": list(request.order),
        "usage": asdict(usage),
        "latency": round(time.monotonic() - request.started, 4),
        "retries": max(0, request.attempts.tries - 1),
        "lost": request.attempts.lost,
        "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
