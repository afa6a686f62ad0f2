"""How long a solver may take: asked inside the longest loops too, each of which then ends with what it has."""

from __future__ import annotations

from time import perf_counter

from edpbrl_gym._validation import check_number

__all__ = ["NEVER", "Deadline", "WorkLimit", "check_time_limit"]


class Deadline:
    """A point in time, or none.

    Args:
        seconds: From now on; None is never.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else perf_counter() + seconds

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and perf_counter() >= self._end

    @property
    def left(self) -> float | None:
        """Seconds that are left, at least 0; None without a limit."""
        return None if self._end is None else max(0.0, self._end - perf_counter())

    def spend(self, work: float) -> None:
        """Note work that has been done; only a `WorkLimit` counts it."""


class WorkLimit(Deadline):
    """A deadline that passes earlier where too much work has been done; unlike time, it is the same in every run.

    Args:
        deadline: When it passes in any case.
        limit: Work, in the units of `spend`.
    """

    def __init__(self, deadline: Deadline, limit: float) -> None:
        self._deadline, self._left = deadline, limit

    @property
    def spent(self) -> bool:
        """Whether the work is done."""
        return self._left <= 0.0

    @property
    def passed(self) -> bool:
        """Whether the time is up, or the work is done."""
        return self.spent or self._deadline.passed

    @property
    def left(self) -> float | None:
        """Seconds that are left, at least 0; None without a limit."""
        return self._deadline.left

    def spend(self, work: float) -> None:
        """Note work that has been done."""
        self._left -= work


NEVER = Deadline(None)


def check_time_limit(seconds: float | None) -> Deadline:
    """The deadline of a solver that begins now; ValueError if the limit is negative or no number."""
    return Deadline(None if seconds is None else check_number(seconds, "time_limit (seconds)", minimum=0.0))
