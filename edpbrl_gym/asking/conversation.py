"""``Conversation``: what a person is asked and has answered, how sure the session is, and its end."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym.asking.opening import Opening
from edpbrl_gym.likelihood import AnswerFormat, Response

if TYPE_CHECKING:
    from edpbrl_gym.asking.ending import Ending
    from edpbrl_gym.asking.pool_pictures import PoolPictures
    from edpbrl_gym.session import Left, Session

__all__ = ["Asked", "Certainty", "Conversation"]

_PAUSE = 0.4  # seconds in which the next question comes to the page before anything else is computed
_OUTCOMES = 8  # of answers whose next question is computed ahead, at most


@dataclass(frozen=True)
class Asked:
    """The question on the page."""

    number: int
    """From 0."""
    key: str
    """Random; an answer names the question that it is about."""
    texts: tuple[str, ...]
    undo_key: str | None
    """Key of the question whose answer can be taken back."""
    following: tuple[str, ...] = ()
    """Texts of the next question, where it does not depend on the answer."""
    ready: bool = True
    """Whether all of it can be seen, so that it can be answered."""


@dataclass(frozen=True)
class Certainty:
    """How sure a session is."""

    accuracy: float
    """How often it would know which of two options the person likes better."""
    left: Left
    """Questions left by the stopping rule."""

    @classmethod
    def of(cls, session: Session) -> Callable[[], Certainty]:
        """A function that computes that of a session as it is now, wherever it is called."""
        later = session.forecast(())

        def compute() -> Certainty:
            progress = later()
            return cls(progress.accuracy, progress.left)

        return compute


@dataclass
class _Answers:
    """Keys of the questions that were answered, in order, and what was answered."""

    keys: list[str] = field(default_factory=list)
    told: dict[str, Response] = field(default_factory=dict)


class Conversation:
    """Asks one person: an opening first, where the session is new, then the session. Calls may come from any thread.

    Args:
        format: Format of the answers.
        make: Makes the session: a new one without a folder, or that of a folder; loads all that it needs.
        keep: Saves a new session on the disk.
        conclude: Writes what was learnt and returns it, None: nothing yet; it is given what to hold while it reads the
            session.
        publish: Writes what takes longer, such as pictures; it is given a function that says whether to hurry.
        opening: The first questions; None: the session goes on.
        pictures: Pictures of the options; an option whose picture is refused gives way to another item of the pool
            before the question can be answered. None: texts are shown.
        failed: Is called where the session could not be made.
        questions: Number of questions after which to end; None: the person says when.
    """

    def __init__(
        self,
        format: AnswerFormat,
        make: Callable[[], Session],
        *,
        keep: Callable[[Session], object],
        conclude: Callable[[Session, AbstractContextManager[object]], Ending | None],
        publish: Callable[[Ending, Callable[[], bool]], object] = lambda ending, stopping: None,
        opening: Opening | None = None,
        pictures: PoolPictures | None = None,
        failed: Callable[[BaseException], object] = lambda error: None,
        questions: int | None = None,
    ) -> None:
        self.format, self._questions = format, questions
        self.opening = opening
        self.session: Session | None = None
        self.failure: BaseException | None = None
        self._make, self._keep, self._pictures, self._failed = make, keep, pictures, failed
        self._conclude, self._publish = conclude, publish
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._answers = _Answers()
        self._key = secrets.token_urlsafe(9)
        self._seen = False  # whether all of the question on the page could be seen
        self._certainty: tuple[int, Certainty | None] = (-1, None)
        self._version = 0  # of the answers
        self._ending: tuple[int, Ending | None] | None = None
        self._published = -1
        self._wanted = False
        self._closing = False
        if opening is not None:
            opening.ask()
            self._answers.keys = [secrets.token_urlsafe(9) for _ in opening.responses]
        self._thread = threading.Thread(target=self._work, name="edpbrl-conversation", daemon=True)

    def start(self) -> None:
        """Begin to make the session, which takes the processor from everything else; once is enough."""
        with self._lock:
            if self._thread.ident is None:
                self._thread.start()

    # what a person does

    def asked(self) -> Asked | None:
        """The question that waits for an answer; None: the session is not ready."""
        with self._lock:
            state = self._state
            if state is None:
                return None
            texts, following = self._shown(), tuple[str, ...]()
            if state is self.opening:
                following = self.opening.texts(self.opening.following())
            keys = self._answers.keys
            return Asked(state.answered, self._key, texts, keys[-1] if keys else None, following, self._seen)

    def answer(self, key: str, response: Response) -> bool:
        """Answer a question; when this returns, the answer is on the disk.

        Returns:
            Whether it is the answer of this question: False where another one came first, or was taken back.
        """
        with self._changed:
            state = self._state
            if key != self._key or state is None:
                return self._answers.told.get(key) == response
            state.ask()  # in a session the question is asked once it was seen
            state.tell(response)
            self._answers.keys.append(key)
            self._answers.told[key] = response
            self._went_on(seen=False)
            return True

    def undo(self, key: str) -> bool:
        """Take back the answer to the question with this key, if it was the last one."""
        with self._changed:
            state, keys = self._state, self._answers.keys
            if state is None or not keys or key != keys[-1]:
                return False
            state.undo()
            self._answers.told.pop(keys.pop(), None)
            self._went_on(seen=True)
            return True

    @property
    def enough(self) -> bool:
        """Whether as many questions are answered as were wanted."""
        return self._questions is not None and self.answered >= self._questions

    @property
    def answered(self) -> int:
        """Number of questions answered or skipped."""
        state = self._state
        return 0 if state is None else state.answered

    @property
    def certainty(self) -> tuple[bool, Certainty | None]:
        """Whether it is known how sure the session is, and how sure, by the last answers for which it is known."""
        version, known = self._certainty
        return version == self._version, known

    def finish(self) -> None:
        """Let the thread write what was learnt."""
        with self._changed:
            if not self.ending[0]:
                self._wanted = True
                self._changed.notify_all()

    @property
    def published(self) -> bool:
        """Whether what takes longer is written too."""
        return self._published == self._version

    @property
    def ending(self) -> tuple[bool, Ending | None]:
        """Whether what was learnt from all answers is written, and what it is."""
        known = self._ending
        return (False, None) if known is None or known[0] != self._version else (True, known[1])

    def close(self) -> Ending | None:
        """End the thread, and write what was learnt where that is not done yet.

        Raises:
            Exception: What kept the session from being made; the answers are on the disk.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.start()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        assert self.session is not None
        if not self.ending[0] or not self.published:
            self._end(self.session)
        return self.ending[1]

    # within the lock

    @property
    def _state(self) -> Any:
        """What asks: the session, or the opening before it is there."""
        return self.opening if self.session is None else self.session

    def _went_on(self, *, seen: bool) -> None:
        self._version += 1
        self._key, self._seen = secrets.token_urlsafe(9), seen
        self._shown()
        self._changed.notify_all()

    def _shown(self) -> tuple[str, ...]:
        """The options of the question on the page, with others in the place of those whose pictures are refused."""
        state, pictures, is_opening = self._state, self._pictures, self._state is self.opening
        texts: tuple[str, ...] = state.texts(state.ask()) if is_opening else state.maker.texts(state.choose())
        if pictures is not None and not self._seen:
            pool = (state.pool if is_opening else state.vocabulary).tokens[0]
            others = pictures.without_refused(texts, pool)
            if others != texts:
                state.substitute([pool.index(text) for text in others])
                texts, self._key = others, secrets.token_urlsafe(9)
        self._seen = self._seen or pictures is None or all(map(pictures.drawn, texts))
        return texts

    # the thread

    def _work(self) -> None:
        try:
            self._begin()
            while self._wait():
                if self._wanted and self.session is not None:
                    self._end(self.session)
                else:
                    self._think()
        except BaseException as error:
            self.failure = error
            self._failed(error)

    def _begin(self) -> None:
        session = self._make()
        with self._changed:
            if self.opening is not None:
                self._shown()
                session.replay(list(self.opening.events(session.maker)), exact=False)
                self._keep(session)
                session.substitute(self.opening.tokens(session.answered, session.vocabulary))
                self.opening.close(delete=True)
            else:
                self._answers.keys = [secrets.token_urlsafe(9) for _ in range(session.answered)]
                self._seen = session.pending is not None
                session.choose()
            self.session = session
            self._changed.notify_all()

    def _wait(self) -> bool:
        """Wait for something to do; False: it is over."""
        with self._changed:
            while not (self._closing or self._wanted or self._certainty[0] != self._version):
                self._changed.wait()
            self._changed.wait_for(lambda: self._closing or self._wanted, _PAUSE)
            return not self._closing

    def _think(self) -> None:
        """Compute how sure the session is, and what it may ask next."""
        session = self.session
        assert session is not None
        with self._lock:
            version = self._version
            informative = any(response.kind != "skip" for response in session.transcript.responses)
            later = Certainty.of(session) if informative else None
        self._look_ahead(session, version)
        self._certainty = version, None if later is None else later()

    def _look_ahead(self, session: Session, version: int) -> None:
        """Tell which texts the next question has, for each answer that may come."""
        outcomes, pictures = self.format.outcomes(session.num_options), self._pictures
        if len(outcomes) > _OUTCOMES or pictures is None or not pictures.ahead(()):
            return
        for outcome in outcomes:
            with self._lock:
                if version != self._version or self._closing:
                    return
                state, planner, texts = session.planner.state(), session.planner, self._shown()
                if state is None:
                    return
                planner.tell(session.maker.encoder.encode(list(texts))[None], [outcome])
                tokens = planner.ask(np.empty((session.num_options, 0), dtype=np.int64))
                planner.restore(state)
                following = session.maker.texts(tokens[:, None])
            pictures.ahead(following)

    def _end(self, session: Session) -> None:
        """Write what was learnt; answers may come meanwhile."""
        self._wanted, version = False, self._version
        done, ending = self.ending
        if not done:
            ending = self._conclude(session, self._lock)
            self._ending = version, ending
        if ending is not None:
            self._publish(ending, lambda: self._closing)
        self._published = version
