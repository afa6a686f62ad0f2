"""A hard budget in questions and tokens that requests under way at once can't overspend."""

from __future__ import annotations

import threading

from edpbrl_gym.oracles.judge.questions import Usage

__all__ = ["Budget", "BudgetExhausted", "Reservation", "Spending"]


class BudgetExhausted(Exception):
    """There is no room in the budget for another question."""


class Spending:
    """What was spent and what is set aside for requests under way; one of these belongs to each ledger.

    Attributes:
        questions: Spent so far.
        tokens: Spent so far.
        held_questions: Set aside.
        held_tokens: Set aside.
        changed: Held while one of these is read or changed, notified when something is freed.
    """

    def __init__(self, questions: int = 0, tokens: int = 0) -> None:
        self.questions = questions
        self.tokens = tokens
        self.held_questions = 0
        self.held_tokens = 0
        self.changed = threading.Condition()


class Budget:
    """Limits of what may be spent.

    Before a request, one question and the most tokens that it can cost are set aside; the answer replaces them by what
    it did cost. So spent + set aside never exceeds the limits. A request for which there is room only if those under
    way cost less than was set aside waits for them.

    Args:
        max_questions: None has no limit.
        max_tokens: None has no limit.
        spending: What the limits are held against; None begins with nothing.

    Attributes:
        largest: Most tokens of an answer that cost more than was set aside for it, 0 before there is one.
    """

    def __init__(self, max_questions: int | None, max_tokens: int | None, spending: Spending | None = None) -> None:
        self.max_questions = max_questions
        self.max_tokens = max_tokens
        self.spending = Spending() if spending is None else spending
        self.largest = 0

    @property
    def questions(self) -> int:
        """Questions spent so far."""
        return self.spending.questions

    @property
    def tokens(self) -> int:
        """Tokens spent so far."""
        return self.spending.tokens

    def reserve(self, tokens: int, stop: threading.Event | None = None) -> Reservation:
        """Set aside one question and ``tokens`` tokens, after waiting for room where there may be some.

        Args:
            tokens: the most that the request can cost. Where a server has reported more than it was thought to be able
                to, at least as much as its most expensive answer is set aside from then on.
            stop: ends the waiting.

        Raises:
            BudgetExhausted: no room, or ``stop`` was set.
        """
        spending = self.spending
        with spending.changed:
            while True:
                if stop is not None and stop.is_set():
                    raise BudgetExhausted
                needed = max(tokens, self.largest)
                if self._fits(1, needed):
                    spending.held_questions += 1
                    spending.held_tokens += needed
                    return Reservation(self, needed)
                if not spending.held_questions:
                    raise BudgetExhausted
                spending.changed.wait(timeout=0.2)

    def _fits(self, questions: int, tokens: int) -> bool:
        spending = self.spending
        asked = spending.questions + spending.held_questions + questions
        used = spending.tokens + spending.held_tokens + tokens
        return (self.max_questions is None or asked <= self.max_questions) and (
            self.max_tokens is None or used <= self.max_tokens
        )


class Reservation:
    """What is set aside for one request; made by ``Budget.reserve``, ended by ``settle`` or ``release``.

    Attributes:
        tokens: tokens set aside for the attempt under way.
        lost: tokens of attempts that got no answer and may have been billed.
        renewals: how many attempts were booked as lost.
    """

    def __init__(self, budget: Budget, tokens: int) -> None:
        self._budget = budget
        self._open = True
        self.tokens = tokens
        self.lost = 0
        self.renewals = 0

    def renew(self) -> None:
        """Book the attempt under way as lost (it may have been billed) and set the same aside for another.

        Raises:
            BudgetExhausted: no room for another attempt; the lost one is booked all the same.
        """
        spending = self._budget.spending
        with spending.changed:
            self.lost += self.tokens
            self.renewals += 1
            spending.tokens += self.tokens
            if self._budget._fits(0, 0):
                return
            spending.held_tokens -= self.tokens
            self.tokens = 0
            spending.changed.notify_all()
        raise BudgetExhausted

    def settle(self, usage: Usage | None) -> Usage:
        """An answer came: book what it has cost, or all that was set aside where the server reports nothing.

        Returns:
            All that was booked for the request, lost attempts included.
        """
        spent = Usage(input_tokens=self.tokens, unreported=self.tokens) if usage is None else usage
        return self._end(spent, question=True)

    def release(self, *, lost: bool) -> Usage:
        """No answer came: book nothing, or all that was set aside where the last attempt was lost (not refused).

        Returns:
            All that was booked for the request, lost attempts included.
        """
        spent = Usage(input_tokens=self.tokens, unreported=self.tokens) if lost else Usage()
        return self._end(spent, question=bool(self.lost or lost))

    def _end(self, spent: Usage, *, question: bool) -> Usage:
        spending = self._budget.spending
        with spending.changed:
            if self._open:
                self._open = False
                spending.held_questions -= 1
                spending.held_tokens -= self.tokens
                spending.questions += question
                spending.tokens += spent.total
                if spent.total > self.tokens:  # so the bound is too low for this judge; others have their own
                    self._budget.largest = max(self._budget.largest, spent.total)
                spending.changed.notify_all()
        return spent + Usage(input_tokens=self.lost, unreported=self.lost)
