"""A hard budget in questions and tokens, which concurrent requests can't overspend."""

from __future__ import annotations

import threading

from edpbrl_gym.oracles.judge.questions import Usage

__all__ = ["Budget", "BudgetExhausted", "Reservation", "Spending"]


class BudgetExhausted(Exception):
    """There is no room in the budget for another question."""


class Spending:
    """Spending so far, and reservations for pending requests; each ledger has one.

    Attributes:
        questions: Number of questions spent.
        tokens: Number of tokens spent.
        held_questions: Number of questions reserved.
        held_tokens: Number of tokens reserved.
        changed: Condition that protects the numbers; notified when a reservation ends.
    """

    def __init__(self, questions: int = 0, tokens: int = 0) -> None:
        self.questions = questions
        self.tokens = tokens
        self.held_questions = 0
        self.held_tokens = 0
        self.changed = threading.Condition()


class Budget:
    """Limits on spending.

    Before a request, one question and the maximum number of tokens that it can cost are reserved; the answer replaces
    them by its actual cost. So spending plus reservations never exceeds the limits. A request that fits only if pending
    ones cost less than reserved waits for them.

    Args:
        max_questions: Maximum number of questions; None: no limit.
        max_tokens: Maximum number of tokens; None: no limit.
        spending: Spending that counts against the limits; None: a new one.

    Attributes:
        largest: Largest number of tokens of an answer that exceeded its reservation, 0 if there is none.
    """

    def __init__(self, max_questions: int | None, max_tokens: int | None, spending: Spending | None = None) -> None:
        self.max_questions = max_questions
        self.max_tokens = max_tokens
        self.spending = Spending() if spending is None else spending
        self.largest = 0

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

        Args:
            tokens: Maximum cost of the request. After an answer that cost more than reserved, at least as many tokens
                as it cost are reserved.
            stop: Event that ends the wait.

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
    """The reservation of one request, made by ``Budget.reserve`` and ended by ``settle`` or ``release``.

    Attributes:
        tokens: Number of tokens reserved for the present attempt.
        lost: Number of tokens of attempts that got no answer but may have been billed.
        renewals: Number of attempts booked as lost.
    """

    def __init__(self, budget: Budget, tokens: int) -> None:
        self._budget = budget
        self._open = True
        self.tokens = tokens
        self.lost = 0
        self.renewals = 0

    def renew(self) -> None:
        """Book the present attempt as lost (it may have been billed), and reserve the same for another.

        Raises:
            BudgetExhausted: There is no room for another attempt; the lost one is booked nevertheless.
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
        """Book the cost of an answer, or the whole reservation if the server reports no usage.

        Returns:
            Total usage of the request, including lost attempts.
        """
        spent = Usage(input_tokens=self.tokens, unreported=self.tokens) if usage is None else usage
        return self._finish(spent, question=True)

    def release(self, *, lost: bool) -> Usage:
        """Book a request without an answer: the whole reservation if the last attempt was lost, otherwise nothing.

        Returns:
            Total usage of the request, including lost attempts.
        """
        spent = Usage(input_tokens=self.tokens, unreported=self.tokens) if lost else Usage()
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
