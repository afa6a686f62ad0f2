"""``Session``: ask a person, a model or a synthetic user, one question at a time, and know when to stop."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_count
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import Estimate
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.likelihood import ResponseModel
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.session.answers import Answer, check_answer
from edpbrl_gym.session.forecast import Progress, StoppingRule
from edpbrl_gym.session.journal import Journal, is_plain, read_settings
from edpbrl_gym.session.outlook import Outlook
from edpbrl_gym.session.questions import Feedback, Question, QuestionMaker, check_distinct
from edpbrl_gym.session.recommendation import Recommendation, recommend
from edpbrl_gym.session.rewind import RewindablePlanner
from edpbrl_gym.session.transcript import Event, Transcript
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Session"]

_SNAPSHOT_EVERY = 10  # answers between two snapshots of the planner on disk


class Session:
    """One person's questions and answers: ``ask``, ``tell``, ``undo``, ``skip``, ``save``, and ``resume`` later.

    It is the same for synthetic users, models and people; :func:`~edpbrl_gym.session.run` asks an oracle,
    :class:`~edpbrl_gym.session.AsyncSession` serves asyncio. K prompts grow side by side, one token a question; after H
    questions the next K begin. A session that was saved (or made with ``folder``) writes every answer to the disk
    before ``tell`` returns, so a kill at any time loses none; a resumed session asks what the uninterrupted one would
    have asked. Not thread-safe.

    Args:
        planner: Decides what is asked; or a function without arguments that makes it. A planner that has neither
            ``reset()`` nor ``state()`` and ``restore()`` can't go back: give the function.
        vocabulary: What prompts are made of.
        encoder: Embeds what is compared; it must be the one that the planner's features come from.
        num_options: K.
        feedback: "truncated" compares partial prompts, "state" the new tokens alone.
        model: Format of the answers; None: the planner's.
        held_out: Vocabulary of the pairs of prompts by which ``progress`` predicts the accuracy; None: ``vocabulary``.
        prior: Of the taste, for credible intervals and ``progress``; None: of the vocabulary. The planner has its own.
        stopping: When ``progress`` says to stop.
        seed: Of the held-out pairs and the typical questions of ``progress``.
        who: Who answers.
        folder: Where to save from the beginning; a new or empty folder.

    Raises:
        ValueError: K < 2, an unknown feedback, or a negative seed.
        FileExistsError: ``folder`` holds something.
    """

    def __init__(
        self,
        planner: Planner | Callable[[], Planner],
        *,
        vocabulary: Vocabulary,
        encoder: TextEncoder,
        num_options: int = 4,
        feedback: Feedback = "truncated",
        model: ResponseModel | None = None,
        held_out: Vocabulary | None = None,
        prior: VocabularyPrior | None = None,
        stopping: StoppingRule | None = None,
        seed: int = 0,
        who: str = "",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._line = RewindablePlanner(planner)
        self.maker = QuestionMaker(vocabulary, encoder, feedback)
        self.num_options = check_count(num_options, "num_options (K)", minimum=2)
        if self.planner.num_options != self.num_options:
            raise ValueError(
                f"Expected a planner of K = {self.num_options} options, got one of {self.planner.num_options}"
            )
        self.model: ResponseModel = model or self.planner.model
        self.who = who
        self.memo = MemoEncoder(encoder)
        self.outlook = Outlook(
            self.maker,
            self.memo,
            num_options=self.num_options,
            held_out=vocabulary if held_out is None else held_out,
            rule=stopping or StoppingRule(),
            seed=check_count(seed, "seed", minimum=0),
            prior=prior,
        )
        self.transcript = Transcript(self.maker, self.num_options)
        self._tokens: NDArray[np.int64] | None = None  # of a question that could not be made yet
        self._in_step = True  # False once the planner has failed to learn an answer
        self._events: list[Event] = []  # what a journal would hold, while there is none
        self._journal: Journal | None = None
        if folder is not None:
            self.save(folder)

    # asking and telling

    @property
    def planner(self) -> Planner:
        """Who decides what is asked."""
        return self._line.planner

    @property
    def answered(self) -> int:
        """Number of questions that were answered or skipped."""
        return self.transcript.answered

    @property
    def vocabulary(self) -> Vocabulary:
        """What prompts are made of."""
        return self.maker.vocabulary

    @property
    def folder(self) -> Path | None:
        """Where the session is saved; None where it isn't."""
        return None if self._journal is None else self._journal.folder

    @property
    def pending(self) -> Question | None:
        """The question that waits for an answer, None before the next ``ask``."""
        return self.transcript.pending

    def ask(self) -> Question:
        """The next question; the same one until it is answered or skipped.

        Raises:
            ValueError: The planner returned no legal tokens, or an option twice (unless its ``distinct`` is False).
            OSError: It could not be saved.
        """
        waiting = self.pending
        if waiting is not None:
            return waiting
        prefixes, episode = self.transcript.next_prefixes()
        if self._tokens is None:  # else an encoder or a disk failed below: the planner must not be asked twice
            self._tokens = self.planner.ask(prefixes)
        question = self.maker.make(prefixes, self._tokens, number=self.answered, episode=episode)
        if self.planner.distinct:
            check_distinct(question, self.planner.name)
        self._record(self.transcript.ask_event(question), durable=False)
        self._tokens = None
        self._line.keep(question.number)
        return self.transcript.questions[-1]

    def think(self) -> None:
        """Let the planner do, while the person looks at the options, what would make them wait after the answer.

        Without effect on what is asked.
        """
        self.planner.think()

    def tell(self, answer: Answer) -> None:
        """Answer the question that was asked; on return a saved session has it on the disk.

        Args:
            answer: A ``Response`` of the session's format, the index of the best option, or None to skip.

        Raises:
            RuntimeError: No question waits for an answer.
            TypeError: No answer of these kinds.
            ValueError: An option that the question doesn't have, or a format that the model doesn't know.
            OSError: It could not be saved; the question still waits.
        """
        question = self.pending
        if question is None:
            raise RuntimeError("Expected a question that waits for an answer, there is none; call ask() first")
        response = check_answer(answer, self.model, self.num_options)
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        self._record(self.transcript.tell_event(response, time), durable=True)
        before, self._in_step = self._in_step, False
        self._line.teach(question, response)
        self._in_step = before
        if self.answered % _SNAPSHOT_EVERY == 0:
            self._spare_replaying()

    def skip(self) -> None:
        """Pass the question: nothing is learnt from it, and the next one continues its prompts."""
        self.tell(None)

    def undo(self) -> Question:
        """Take the last answer (or skip) back; its question waits again, and the planner has never heard the answer.

        A question that was asked after it is dropped. May be called again, back to the first question.

        Returns:
            The question that waits now.

        Raises:
            RuntimeError: Nothing has been answered.
            TypeError: A planner that can't go back.
        """
        if not self.answered:
            raise RuntimeError("Expected an answer to take back, none has been given")
        self._line.check_can_go_back()
        self._record(self.transcript.undo_event(), durable=True)
        self._tokens = None
        before, self._in_step = self._in_step, False
        self._line.back_to(self.transcript)
        self._in_step = before
        return self.transcript.questions[-1]

    # what has been learnt

    @property
    def estimate(self) -> Estimate:
        """The taste from all answers so far."""
        return self.planner.estimate

    @property
    def posterior(self) -> Posterior:
        """How sure the planner is of it; for exact draws see ``draws``."""
        return self.planner.posterior

    def draws(self) -> NDArray[np.float64]:
        """Draws from the exact posterior of theta (see :class:`~edpbrl_gym.session.outlook.Outlook`), (320, d)."""
        return self.outlook.learnt(self.comparisons.terms(self.model))[1]

    @property
    def comparisons(self) -> Comparisons:
        """All answered and skipped questions; those whose answer names a best option are its ``decided``."""
        encoder = self.maker.encoder
        metadata = {
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
            "feedback": self.maker.feedback,
            "planner": self.planner.name,
        }
        return self.transcript.comparisons(who=self.who, metadata=metadata)

    def recommend(
        self, count: int = 5, *, level: float = 0.9, vocabulary: Vocabulary | None = None, **search: Any
    ) -> list[Recommendation]:
        """The prompts that this person will like best, with credible intervals of their utilities.

        The search looks for the largest utility by the estimate; scores, intervals and order are those of ``draws``.

        Args:
            count: Prompts wanted.
            level: Of the credible intervals, in (0, 1).
            vocabulary: Where to look; None: the session's own.
            **search: ``base``, ``width``, ``shortlist``, ``per_base`` of ``best_prompts``.

        Returns:
            The prompts, best first.

        Raises:
            ValueError: Nothing has been learnt yet, or an argument out of its range.
        """
        words = self.vocabulary if vocabulary is None else vocabulary
        return recommend(words, self.memo, self.estimate.theta, self.draws(), count=count, level=level, **search)

    def progress(self, further: Sequence[int] = (0, 6, 12, 30, 60, 120, 240)) -> Progress:
        """How well the taste is known, how much more questions would teach, and whether to stop.

        Args:
            further: Numbers of further questions at which to predict the accuracy; 0 is always among them.
        """
        answers = sum(response.kind != "skip" for response in self.transcript.responses)
        terms = self.comparisons.terms(self.model)
        return self.outlook.progress(
            self.estimate.theta, self.model, terms, questions=self.answered, answers=answers, further=further
        )

    # on disk

    def save(self, folder: str | os.PathLike[str] | None = None) -> Path:
        """Save to a new folder, whole or not at all, and keep it up to date from now on.

        In a session that has its folder already: write the planner's state there too, so that resuming is quick.

        Args:
            folder: A new or empty folder; None (or the session's own) where it has been saved before.

        Raises:
            ValueError: No folder for a session that has none, or another one than it has.
            FileExistsError: The folder holds something.
            OSError: It can't be written.
        """
        target = None if folder is None else Path(folder)
        if self._journal is None:
            if target is None:
                raise ValueError("Expected a folder to save this session in, it has none yet; save(folder)")
            self._journal = Journal.create(target.absolute(), self._settings(), self._events)
            self._events = []
        elif target is not None and target.absolute() != self._journal.folder:
            raise ValueError(
                f"Expected the session's own folder {self._journal.folder}, got {target}; copy the folder after close()"
            )
        self._snapshot()
        return self._journal.folder

    def close(self) -> None:
        """Release the folder, so that the session can be resumed elsewhere; a closed session can't be told more.

        Without effect on a session that is closed already, or has no folder.

        Raises:
            FileNotFoundError: The journal was deleted, moved or replaced; the session is closed all the same.
        """
        if self._journal is not None and not self._journal.closed:
            try:
                self._spare_replaying()
            finally:
                self._journal.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @classmethod
    def resume(
        cls,
        folder: str | os.PathLike[str],
        planner: Planner | Callable[[], Planner],
        *,
        vocabulary: Vocabulary,
        encoder: TextEncoder,
        exact: bool = True,
        **arguments: Any,
    ) -> Session:
        """Go on where a saved session was, with a new planner, vocabulary and encoder like those it began with.

        Args:
            folder: Of the session.
            planner: A planner with the same arguments (fresh: nothing asked or told), or a function that makes one.
            vocabulary: The same vocabulary.
            encoder: The same encoder.
            exact: Refuse a planner that asks other questions than it did (other arguments, or the rounding of another
                machine); False goes on with the questions and answers that there are.
            **arguments: ``model``, ``held_out``, ``prior`` and ``stopping`` of the constructor; the others come from
                the folder.

        Raises:
            FileNotFoundError: No session there.
            ValueError: A damaged session, or another vocabulary, encoder, answer format or planner than it began with.
            RuntimeError: It is open elsewhere.
        """
        place = Path(folder).absolute()
        settings = read_settings(place)
        session = cls(
            planner,
            vocabulary=vocabulary,
            encoder=encoder,
            num_options=settings["num_options"],
            feedback=settings["feedback"],
            seed=settings["seed"],
            who=settings["who"],
            **arguments,
        )
        for key, value in session._settings().items():
            if key != "created" and settings.get(key) != value:
                raise ValueError(
                    f"Expected the {key.replace('_', ' ')} with which the session in {place} began "
                    f"({settings.get(key)!r}), got {value!r}"
                )
        journal, events = Journal.open(place)
        try:
            session._load(events, journal, exact)
        except BaseException:
            journal.close()
            raise
        session._journal = journal
        return session

    def _settings(self) -> dict[str, Any]:
        """What must be the same when the session is resumed."""
        encoder = self.maker.encoder
        return {
            "num_options": self.num_options,
            "feedback": self.maker.feedback,
            "seed": self.outlook.seed,
            "who": self.who,
            "vocabulary_fingerprint": self.vocabulary.fingerprint,
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
            "model": repr(self.model),
            "planner": self.planner.name,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _record(self, event: Event, *, durable: bool) -> None:
        """Write an event down, then do what it says."""
        if self._journal is None:
            self._events.append(event)
        else:
            self._journal.append(event, durable=durable)
        self.transcript.apply(event)

    def _snapshot(self) -> None:
        if self._journal is None or self._tokens is not None or not self._in_step:
            return  # the planner has seen other things than the journal: a state that must not be resumed from
        state = self._line.state()
        if state is not None and is_plain(state):
            self._journal.write_planner(state)

    def _spare_replaying(self) -> None:
        """Save the planner's state if that can be done: the answers are safe, without it only resuming takes longer."""
        try:
            self._snapshot()
        except OSError as error:
            assert self._journal is not None
            self._journal.check()  # else they are not
            warnings.warn(f"The planner's state could not be saved in {self.folder}: {error}", stacklevel=3)

    def _load(self, events: list[Event], journal: Journal, exact: bool) -> None:
        """Take the events of a journal and bring the planner to where it was."""
        snapshot = journal.read_planner()
        seen = self.transcript.read(events, None if snapshot is None else snapshot[0], name=str(journal.path))
        if snapshot is None or seen is None:
            self._line.replay(self.transcript, exact=exact)
        else:
            self._line.replay(self.transcript, state=snapshot[1], questions=seen[0], answers=seen[1], exact=exact)
