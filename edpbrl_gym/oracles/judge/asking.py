"""Many questions under way at once, each paid for at most once: threads, budget, ledger, and a clean stop."""

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

# so many questions in a row without an answer, and the server counts as gone
_GIVE_UP = 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        seconds; another Ctrl-C ends the waiting) and the KeyboardInterrupt goes on. A look that another thread is
        asking is waited for.

        Args:
            looks: With different keys.
            done: Called in this thread after each.

        Raises:
            ConnectionError: The server refuses the key, knows no such model, redirects elsewhere, or stopped answering.
            OSError: The ledger or a picture can't be read or written. Answers that came and could not be written are
                kept in memory, and nothing more is asked until they are written.
            ValueError: Not a picture.
        """
        self._write_rest()
        waiting = deque(looks)
        ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                try:
                    look = waiting.popleft()
                except IndexError:
                    return
                error: BaseException | None = None
                try:
                    self._ask_once(look, stop)
                except BaseException as caught:  # carried over to the thread that waits
                    error = caught
                    stop.set()
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
        except BaseException as caught:
            stop.set()
            self._wait_for(threads)
            try:
                self._write_rest()
            except OSError as unwritten:
                if isinstance(caught, Exception):
                    raise
                _log.error("%s", unwritten)  # an interrupt stays one
            raise
        for thread in threads:
            thread.join()

    def _wait_for(self, threads: list[threading.Thread]) -> None:
        """Wait for answers that are under way; a thread that waits for anything else ends by itself."""
        until = time.monotonic() + self.client.settings.timeout + 5.0
        for thread in threads:
            while thread.is_alive() and time.monotonic() < until:
                thread.join(0.2)  # in short pieces, as not every system lets Ctrl-C end a long wait

    def _write_rest(self) -> None:
        """Write what the disk did not take before; without it nothing more may be asked."""
        try:
            self.ledger.write_rest()
        except OSError as error:
            why, remedy = error.strerror, "put that right and ask again"
            if error.errno in _FULL:
                remedy = "make room and ask again"
            elif error.errno is None:  # of the log: there is no file any more that it could be written to
                why, remedy = "it has been deleted, moved, replaced or cut short", GONE
            raise OSError(
                f"Expected to write to {self.ledger.path}, could not ({why}); what came of "
                f"{len(self.ledger.unwritten)} questions is kept in this process alone, and nothing more is asked "
                f"until it is written: {remedy}"
            ) from None

    def _ask_once(self, look: Look, stop: threading.Event) -> None:
        """Ask a look unless another thread does, or has done since."""
        if not self.ledger.claim(look.key, stop):
            look.outcome = "stopped"
            return
        try:
            if look.key in self.ledger.answers:
                look.outcome = "answer"
            else:
                self._ask_one(look, stop)
        finally:
            self.ledger.disclaim(look.key)

    def _ask_one(self, look: Look, stop: threading.Event) -> None:
        settings = look.settings
        messages = make_messages(settings, look.question, look.order)
        most = most_input_tokens(settings, look.question) + settings.max_answer_tokens
        try:
            reservation = self.budget.reserve(most, stop)
        except BudgetExhausted:
            look.outcome = "stopped" if stop.is_set() else "budget"
            return

        def before_sending() -> None:
            if stop.is_set():
                raise _StoppedError
            again = attempts.sent > 0
            if again and attempts.lost == reservation.renewals:
                return  # the line of the attempt before, which cost nothing, stands for this one
            if again:
                reservation.renew()
            tokens = reservation.lost + reservation.tokens
            line = {"kind": "sent", "key": look.key, "identity": look.question.identity, "tokens": tokens}
            self.ledger.append(line | ({"again": True} if again else {}), durable=False)

        attempts = Attempts(before_sending, stop)
        look.begun = time.monotonic()
        look.reservation, look.attempts = reservation, attempts
        try:
            reply = self._send(look, messages, attempts, stop)
        except (_StoppedError, BudgetExhausted) as error:
            outcome: Literal["budget", "stopped"] = "stopped" if isinstance(error, _StoppedError) else "budget"
            self._end_unanswered(look, outcome, outcome)
        except BaseException:
            with suppress(OSError, ValueError):  # there is an error already
                self._end_unanswered(look, "failed" if attempts.sent else "stopped", "refused by the server")
            raise
        else:
            self._end(look, reply)

    def _send(self, look: Look, messages: list[dict[str, object]], attempts: Attempts, stop: threading.Event) -> Reply:
        """Send a question with the JSON schema where the server takes it; find out with the first question."""
        schema = answer_schema(look.question.num_options)
        if self._how is None:
            while not self._probing.acquire(timeout=0.2):  # another call may hold it for long
                if stop.is_set():
                    raise _StoppedError
            try:
                if self._how is None:
                    try:
                        return self._probe(messages, schema, attempts, stop)
                    except OSError:  # before another one finds out the same
                        stop.set()
                        raise
            finally:
                self._probing.release()
        return self.client.ask(messages, schema if self._how == "schema" else None, attempts)

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
                self._how = "schema"
            return reply
        plain = self.client.ask(messages, None, attempts)
        if plain.kind == "text":  # so it was the schema that the server did not take
            self._how = "text"
            model, address = self._origin
            with suppress(OSError):  # the next run finds out again; the answer here is not to be lost
                line = {"kind": "mode", "model": model, "address": address, "structured": "text"}
                self.ledger.append(line, durable=True)
            _log.info("the server takes no JSON schema; its answers are read as text")
        return plain

    def _end(self, look: Look, reply: Reply) -> None:
        """Write what came back, then say so."""
        assert look.attempts is not None and look.reservation is not None
        if reply.kind in ("failed", "rejected", "stopped"):
            stopped = reply.kind == "stopped"
            self._end_unanswered(look, "stopped" if stopped else "failed", reply.status)
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
        assert attempts is not None and reservation is not None
        look.outcome = outcome
        usage = reservation.release(lost=attempts.lost > reservation.renewals)
        if attempts.sent or outcome == "failed":
            line = {"kind": "failed", **_facts(look, usage), "sent": attempts.sent > 0, "status": status}
            self.ledger.append(line, durable=True)

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
