"""What ends a run: the budget in questions and tokens, and replies that are cut or empty, each of them paid for."""

from __future__ import annotations

import logging
import threading

from edpbrl_gym.oracles.judge.questions import Usage
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = ["Budget", "BudgetExhausted", "Reservation", "Spending", "Trials"]

_log = logging.getLogger("edpbrl_gym.oracles.judge")
_MAX_AT_FIRST = 5  # cut or empty replies before any was whole
_MAX_LATER = 20  # in a row


class BudgetExhausted(Exception):
    """There is no room in the budget for another question."""


class Spending:
    """Spending so far, and what is held for pending requests; each ledger has one."""

    def __init__(self, questions: int = 0, tokens: int = 0) -> None:
        self.questions = questions
        self.tokens = tokens
        self.held_questions = 0
        self.held_tokens = 0
        self.changed = threading.Condition()  # protects the numbers; notified when a reservation ends


class Budget:
    """Limits on spending.

    Before a request, one question and the maximum number of tokens that it can cost are reserved; the answer replaces
    them by its actual cost. So spending plus reservations never exceeds the limits. A request that fits only if pending
    ones cost less than reserved waits for them. A limit of None is none.
    """

    def __init__(self, max_questions: int | None, max_tokens: int | None, spending: Spending | None = None) -> None:
        self.max_questions = max_questions
        self.max_tokens = max_tokens
        self.spending = Spending() if spending is None else spending
        self.largest = 0  # tokens of an answer that exceeded its reservation, 0 if there is none

    @property
    def questions(self) -> int:
        """Number of questions spent so far."""
        return self.spending.questions

    @property
    def tokens(self) -> int:
        """Number of tokens spent so far."""
        return self.spending.tokens

    def reserve(self, tokens: int, stop: threading.Event | None = None) -> Reservation:
        """Reserve one question and ``tokens`` tokens, waiting for pending requests if that may help.

        Raises:
            BudgetExhausted: There is no room, or ``stop`` was set.
        """
        spending = self.spending
        with spending.changed:
            while True:
                if stop is not None and stop.is_set():
                    raise BudgetExhausted
                needed = max(tokens, self.largest)
                if self.fits(1, needed):
                    spending.held_questions += 1
                    spending.held_tokens += needed
                    return Reservation(self, needed)
                if not spending.held_questions:
                    raise BudgetExhausted
                spending.changed.wait(timeout=0.2)

    def fits(self, questions: int, tokens: int) -> bool:
        """Whether there is room for more, beside what is spent and reserved; hold ``spending.changed``."""
        spending = self.spending
        total_questions = spending.questions + spending.held_questions + questions
        total_tokens = spending.tokens + spending.held_tokens + tokens
        return (self.max_questions is None or total_questions <= self.max_questions) and (
            self.max_tokens is None or total_tokens <= self.max_tokens
        )


class Reservation:
    """The reservation of one request, made by ``Budget.reserve`` and ended by ``settle`` or ``release``."""

    def __init__(self, budget: Budget, tokens: int) -> None:
        self._budget = budget
        self._open = True
        self.tokens = tokens  # reserved for the present attempt
        self.lost = 0  # tokens of attempts that got no answer but may have been billed
        self.renewals = 0  # number of attempts booked as lost

    def renew(self) -> None:
        """Book the present attempt as lost (it may have been billed), and reserve the same for another.

        Raises:
            BudgetExhausted: There is no room for another attempt.
        """
        spending = self._budget.spending
        with spending.changed:
            self.lost += self.tokens
            self.renewals += 1
            spending.tokens += self.tokens
            if self._budget.fits(0, 0):
                return
            spending.held_tokens -= self.tokens
            self.tokens = 0
            spending.changed.notify_all()
        raise BudgetExhausted

    def settle(self, usage: Usage | None) -> Usage:
        """Book the cost of an answer, or all that is reserved if the server reports none; the request's total usage."""
        spent = Usage(input_tokens=self.tokens, unreported=self.tokens) if usage is None else usage
        return self._finish(spent, question=True)

    def release(self, *, lost: bool, usage: Usage | None = None) -> Usage:
        """Book a request without an answer: the whole reservation if the last attempt was lost."""
        bound = Usage(input_tokens=self.tokens, unreported=self.tokens)
        spent = Usage() if not lost else bound if usage is None else usage
        return self._finish(spent, question=bool(self.lost or lost))

    def _finish(self, spent: Usage, *, question: bool) -> Usage:
        spending = self._budget.spending
        with spending.changed:
            if self._open:
                self._open = False
                spending.held_questions -= 1
                spending.held_tokens -= self.tokens
                spending.questions += question
                spending.tokens += spent.total
                if spent.total > self.tokens:  # the bound is too low for this judge
                    self._budget.largest = max(self._budget.largest, spent.total)
                spending.changed.notify_all()
        return spent + Usage(input_tokens=self.lost, unreported=self.lost)


class Trials:
    """Counts replies that are cut or empty, and raises when there are too many of them.

    Until a reply was whole, no more questions are under way than may still be cut or empty.
    """

    def __init__(self, settings: JudgeSettings) -> None:
        self.settings = settings
        self._changed = threading.Condition()
        self._is_trusted = False
        self._under_way = 0
        self._unread = 0

    def begin(self, stop: threading.Event) -> bool:
        """Wait until a question may be sent; False if ``stop`` was set before. ``end`` must follow."""
        with self._changed:
            while not self._is_trusted and self._under_way + self._unread >= _MAX_AT_FIRST:
                if stop.is_set():
                    return False
                self._changed.wait(timeout=0.2)
            self._under_way += 1
            return True

    def end(self) -> None:
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def whole(self) -> None:
        """A reply was whole, with an answer or without."""
        with self._changed:
            self._is_trusted, self._unread = True, 0
            self._changed.notify_all()

    def cut(self, status: str, usage: Usage | None) -> None:
        limit = self.settings.max_answer_tokens
        problem = f"were cut at max_answer_tokens={limit} before they had one"
        remedy = "give a larger max_answer_tokens (--max-answer-tokens; a model that thinks needs thousands)"
        if usage is not None and 0 < usage.output_tokens < 0.9 * limit:
            problem = f"were cut after {usage.output_tokens} tokens of max_answer_tokens={limit} before they had one"
            remedy = (
                "enlarge the server's own limit (its context length) and give a larger max_answer_tokens "
                "(--max-answer-tokens)"
            )
        self._count(status, problem, remedy)

    def unread(self, status: str, mode: str | None) -> None:
        """A reply had no text, but ``status``; ``mode`` is the form of the answers, as far as it is known."""
        remedy = "check the model and its chat template"
        if "thoughts" in status and mode != "text":
            remedy = "try structured='text' (--structured text): some servers put what a schema asks for there"
        self._count(status, f"had none ({status})", remedy)

    def _count(self, status: str, problem: str, remedy: str) -> None:
        _log.info("a reply without an answer (%s)", status)
        with self._changed:
            self._unread += 1
            unread = self._unread
            if unread < (_MAX_LATER if self._is_trusted else _MAX_AT_FIRST):
                return
            self._unread = 0
        raise ConnectionError(
            f"Expected an answer in each reply of {self.settings.model!r} at {self.settings.address}, but the last "
            f"{unread} {problem}; {remedy}, then run this again: only what has no answer is asked again"
        )
