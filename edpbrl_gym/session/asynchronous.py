"""A session for asyncio programs, which does not block the event loop and prepares the next question in advance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from edpbrl_gym._validation import check_count
from edpbrl_gym.session.answers import Answer
from edpbrl_gym.session.forecast import Progress
from edpbrl_gym.session.questions import Question
from edpbrl_gym.session.recommendation import Recommendation
from edpbrl_gym.session.session import Session

__all__ = ["AsyncSession"]

T = TypeVar("T")


class AsyncSession:
    """The methods of a :class:`Session` as coroutines.

    The work runs in a thread, one call at a time, in the order of the calls. With ``prefetch`` the next question is
    chosen and embedded as soon as the last one is answered, while the program is still busy with that answer; it is the
    question that ``ask`` would have returned, and ``undo`` drops it.

    A cancelled call may still be carried out, since work in a thread can't be interrupted. The session stays
    consistent; ``pending`` and ``answered`` show its state.

    Args:
        session: The session, which must not be used elsewhere in the meantime.
        prefetch: Prepare the next question in advance.
    """

    def __init__(self, session: Session, *, prefetch: bool = True) -> None:
        self.session = session
        self.prefetch = prefetch
        self._lock = asyncio.Lock()
        self._ahead: asyncio.Task[object] | None = None

    async def _call(self, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        async def alone() -> T:
            async with self._lock:
                return await asyncio.to_thread(work, *arguments, **options)

        # shielded: a cancelled caller must not free the lock while the thread still works
        return await asyncio.shield(asyncio.ensure_future(alone()))

    async def ask(self) -> Question:
        """Return the next question; the same one until it is answered or skipped."""
        return await self._call(self.session.ask)

    async def tell(self, answer: Answer) -> None:
        """Answer the pending question; when this returns, a saved session has the answer on disk.

        Raises:
            RuntimeError: No question waits for an answer.
            ValueError: As for ``Session.tell``.
        """
        number = self.session.answered
        await self._call(self._tell, number, answer)
        if self.prefetch:
            self._ahead = asyncio.ensure_future(self._prepare())
            # an error of the planner or the encoder recurs, and is raised, in the next ask()
            self._ahead.add_done_callback(lambda task: None if task.cancelled() else task.exception())

    async def _prepare(self) -> None:
        """Prepare the next question, then (after other calls that wait) let the planner work ahead."""
        await self._call(self.session.ask)
        await self._call(self.session.think)

    def _tell(self, number: int, answer: Answer) -> None:
        """Tell, unless another answer came first: this one must not count for the next question."""
        if self.session.answered != number:
            raise RuntimeError(
                f"Expected question {number} to wait for an answer, it has been answered in the meantime; "
                "call ask() first"
            )
        self.session.tell(answer)

    async def skip(self) -> None:
        """Skip the question."""
        await self.tell(None)

    async def undo(self) -> Question:
        """Take back the last answer; its question is pending again."""
        return await self._call(self.session.undo)

    async def progress(self, further: Sequence[int] = (0, 6, 12, 30, 60, 120, 240)) -> Progress:
        """Return how well the taste is known, and whether to stop."""
        return await self._call(self.session.progress, further)

    async def recommend(self, count: int = 5, **arguments: Any) -> list[Recommendation]:
        """Return the prompts that this person will like best."""
        return await self._call(self.session.recommend, count, **arguments)

    async def run(
        self,
        answer: Callable[[Question], Awaitable[Answer]],
        questions: int,
        *,
        until_sure: bool = False,
        check_every: int = 6,
    ) -> int:
        """Ask and await answers, up to a number of questions or until the stopping rule says stop.

        Args:
            answer: Coroutine function of a question; returns an answer for ``tell``.
            questions: Maximum number of questions, >= 1.
            until_sure: Stop as soon as ``progress`` says so.
            check_every: Number of questions between two checks of the progress.

        Returns:
            Number of questions asked.
        """
        total, every = check_count(questions, "questions"), check_count(check_every, "check_every")
        for count in range(total):
            if until_sure and count % every == 0 and count and (await self.progress()).should_stop:
                return count
            await self.tell(await answer(await self.ask()))
        return total

    async def close(self) -> None:
        """Wait for the prefetched question, and release the folder."""
        if self._ahead is not None:
            await asyncio.wait([self._ahead])
        await self._call(self.session.close)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
