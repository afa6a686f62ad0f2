"""``Session``: questions to a person, a model or a synthetic user, one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._feedback import Feedback
from edpbrl_gym._validation import check_count
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import Estimate
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import Population
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.likelihood import ResponseModel
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.session.answers import Answer, check_answer
from edpbrl_gym.session.forecast import Progress
from edpbrl_gym.session.journal import Journal, read_settings
from edpbrl_gym.session.outlook import Outlook
from edpbrl_gym.session.questions import Question, QuestionMaker, check_distinct
from edpbrl_gym.session.recommendation import Recommendation, recommend
from edpbrl_gym.session.rewind import RewindablePlanner
from edpbrl_gym.session.saving import SessionRecord, check_settings, settings_of
from edpbrl_gym.session.stopping import StoppingRule
from edpbrl_gym.session.transcript import Event, Transcript
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Session"]

_SNAPSHOT_EVERY = 10  # answers between two snapshots of the planner on disk


class Session:
    """One person's questions and answers: ``ask``, ``tell``, ``undo``, ``skip``, ``save`` and ``resume``.

    It is the same for synthetic users, models and people; :func:`~edpbrl_gym.session.run` asks an oracle,
    :class:`~edpbrl_gym.session.AsyncSession` is for asyncio. Each question extends K prompts by one token; after H
    questions K new prompts begin. Where complete prompts are compared, each question is about K new ones, which the
    planner chooses token by token. A session with a folder writes every answer to the disk before ``tell`` returns, so
    a kill at any time loses none; a resumed session asks the same questions as an uninterrupted one. Not thread-safe.

    Args:
        planner: Planner that chooses the questions, or a function without arguments that creates it. A planner without
            ``reset()`` or ``state()`` and ``restore()`` can't go back: pass the function.
        vocabulary: Vocabulary of the prompts.
        encoder: Encoder of the options, the same one as for the planner's features.
        num_options: Number of options K.
        feedback: "truncated" compares partial prompts, "state" the new tokens alone, "prompt" complete prompts, one
            question an episode.
        model: Format of the answers; None: the planner's.
        held_out: Vocabulary of the pairs of prompts for which ``progress`` predicts the accuracy; None: ``vocabulary``.
        prior: Prior of the taste for credible intervals and ``progress``, independent of the planner's, or a
            population, which then the planner should have too; None: that of the vocabulary.
        stopping: Stopping rule of ``progress``.
        seed: Seed of the held-out pairs and the typical questions of ``progress``.
        who: Name of the person.
        folder: New or empty folder to save to from the beginning.

    Raises:
        ValueError: K < 2, an unknown feedback, or a negative seed.
        FileExistsError: ``folder`` is not empty.
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
        prior: VocabularyPrior | Population | None = None,
        stopping: StoppingRule | None = None,
        seed: int = 0,
        who: str = "",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._rewindable = RewindablePlanner(planner)
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
        self._tokens: list[NDArray[np.int64]] = []  # the planner's, step by step, of a question not created yet
        self._in_sync = True  # False after the planner failed to learn an answer
        self._record = SessionRecord()
        if folder is not None:
            self.save(folder)

    # asking and telling

    @property
    def planner(self) -> Planner:
        """Planner that chooses the questions."""
        return self._rewindable.planner

    @property
    def answered(self) -> int:
        """Number of questions answered or skipped."""
        return self.transcript.answered

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the prompts."""
        return self.maker.vocabulary

    @property
    def folder(self) -> Path | None:
        """Folder of the session, or None if it isn't saved."""
        return self._record.folder

    @property
    def pending(self) -> Question | None:
        """The question without an answer yet, or None before the next ``ask``."""
        return self.transcript.pending

    def ask(self) -> Question:
        """Return the next question; the same one until it is answered or skipped.

        Raises:
            ValueError: The planner returned illegal tokens, or an option twice (unless its ``distinct`` is False).
            OSError: The question could not be saved.
        """
        waiting = self.pending
        if waiting is not None:
            return waiting
        prompts = self.choose()
        question = self.maker.make(prompts, number=self.answered, episode=self.transcript.next_prefixes()[1])
        self._add(self.transcript.ask_event(question), durable=False)
        self._tokens = []
        self._rewindable.keep(question.number)
        return self.transcript.questions[-1]

    def choose(self) -> NDArray[np.int64]:
        """Choose the next question, the one that ``ask`` returns, before its texts are embedded.

        Returns:
            Prompts so far of each option, (K, h + 1).

        Raises:
            ValueError: As for ``ask``.
        """
        if self.pending is not None:
            return self.pending.tokens
        prompts, _ = self.transcript.next_prefixes()
        for number in range(self.maker.num_new):
            if number == len(self._tokens):  # otherwise chosen before: the planner must not be asked twice
                self._tokens.append(self.planner.ask(prompts))
            prompts = self.maker.extended(prompts, self._tokens[number])
        if self.planner.distinct:
            texts, step = self.maker.texts(prompts), prompts.shape[1] - 1
            check_distinct(texts, self.planner.name, number=self.answered, step=step)
        return prompts

    def think(self) -> None:
        """Compute ahead while the person looks at the options: for the next question, and for the first ``progress``.

        Without effect on questions and results.
        """
        self.planner.think()
        self.outlook.think()

    def tell(self, answer: Answer) -> None:
        """Answer the pending question; when this returns, a saved session has the answer on disk.

        Args:
            answer: A ``Response`` of the session's format, the index of the best option, or None to skip.

        Raises:
            RuntimeError: No question is pending.
            TypeError: The answer has another type.
            ValueError: The question doesn't have the option, or the model doesn't support the format.
            OSError: The answer could not be saved; the question is still pending.
        """
        question = self.pending
        if question is None:
            raise RuntimeError("Expected a question that waits for an answer, there is none; call ask() first")
        response = check_answer(answer, self.model, self.num_options)
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        self._add(self.transcript.tell_event(response, time), durable=True)
        in_sync, self._in_sync = self._in_sync, False
        self._rewindable.teach(question, response)
        self._in_sync = in_sync
        if self.answered % _SNAPSHOT_EVERY == 0:
            self._record.try_to_write_planner(self._state())

    def skip(self) -> None:
        """Skip the question: the next one continues its prompts, or is about others where complete ones are compared.

        Nothing is learnt from a skip, unless the planner's model says what it means (``WithOutside``).
        """
        self.tell(None)

    def undo(self) -> Question:
        """Take back the last answer (or skip); its question is pending again, and the planner forgets the answer.

        A question asked after it is dropped. Can be repeated, back to the first question.

        Returns:
            The pending question.

        Raises:
            RuntimeError: Nothing has been answered.
            TypeError: The planner can't go back.
        """
        if not self.answered:
            raise RuntimeError("Expected an answer to take back, none has been given")
        self._rewindable.check_can_go_back()
        self._add(self.transcript.undo_event(), durable=True)
        self._tokens = []
        in_sync, self._in_sync = self._in_sync, False
        self._rewindable.back_to(self.transcript)
        self._in_sync = in_sync
        return self.transcript.questions[-1]

    # what has been learnt

    @property
    def estimate(self) -> Estimate:
        """The taste from all answers so far."""
        return self.planner.estimate

    @property
    def posterior(self) -> Posterior:
        """The planner's posterior; for exact draws see ``draws``."""
        return self.planner.posterior

    def draws(self) -> NDArray[np.float64]:
        """Draws from the exact posterior of theta (see :class:`~edpbrl_gym.session.outlook.Outlook`), (320, d)."""
        return self.outlook.fit_and_draws(self.comparisons.terms(self.model))[1]

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
        """Return the prompts that this person will like best, with credible intervals of their utilities.

        The search maximises the utility by the estimate; scores, intervals and order are those of ``draws``.

        Args:
            count: Number of prompts.
            level: Level of the credible intervals, in (0, 1).
            vocabulary: Vocabulary of the prompts; None: the session's own.
            **search: ``base``, ``width``, ``shortlist``, ``per_base``, ``method`` of ``best_prompts``; if they aren't
                given, the method is "model" and the width 16.

        Returns:
            The prompts, best first.

        Raises:
            ValueError: Nothing has been learnt yet, or an argument is out of its range.
        """
        search_vocabulary = self.vocabulary if vocabulary is None else vocabulary
        return recommend(
            search_vocabulary, self.memo, self.estimate.theta, self.draws(), count=count, level=level, **search
        )

    def progress(self, further: Sequence[int] = (0, 6, 12, 30, 60, 120, 240)) -> Progress:
        """Predict how well the taste is known, what further questions would add, and whether to stop.

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
        """Save atomically to a new folder, which every later answer is written to.

        If the session has a folder already, the planner's state is written to it, so that resuming is quick.

        Args:
            folder: A new or empty folder; None (or the session's own) if the session has one already.

        Raises:
            ValueError: The session has no folder and none is given, or it has another one.
            FileExistsError: The folder is not empty.
            OSError: It can't be written.
        """
        place = self._record.begin(None if folder is None else Path(folder), lambda: settings_of(self))
        self._record.write_planner(self._state())
        return place

    def close(self) -> None:
        """Release the folder, so that the session can be resumed elsewhere; a closed session accepts no answers.

        Without effect on a session that is closed already, or has no folder.

        Raises:
            FileNotFoundError: The journal was deleted, moved or replaced; the session is closed nevertheless.
        """
        journal = self._record.journal
        if journal is not None and not journal.closed:
            try:
                self._record.try_to_write_planner(self._state())
            finally:
                journal.close()

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
        """Continue a saved session with a new planner, vocabulary and encoder like the original ones.

        Args:
            folder: Folder of the session.
            planner: A new planner with the same arguments, or a function that creates one.
            vocabulary: The same vocabulary.
            encoder: The same encoder.
            exact: Reject a planner that does not ask the same questions again (because of other arguments, or the
                rounding of another machine); False continues with the saved questions and answers.
            **arguments: ``model``, ``held_out``, ``prior`` and ``stopping`` of the constructor; the others come from
                the folder.

        Raises:
            FileNotFoundError: There is no session.
            ValueError: The session is damaged, or has another vocabulary, encoder, answer format or planner.
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
        check_settings(session, settings, place)
        journal, events = Journal.open(place)
        try:
            session._load(events, journal, exact)
        except BaseException:
            journal.close()
            raise
        session._record.journal = journal
        return session

    def replay(self, events: Sequence[Event], *, exact: bool = True) -> None:
        """Bring a new session to where another record of its events ends, such as the database of a study.

        Args:
            events: Events of ``Transcript``, in order.
            exact: Reject a planner that does not ask the same questions again; False goes on with these.

        Raises:
            RuntimeError: The session has questions already.
            ValueError: The events do not form a session, or with ``exact`` the planner asks other questions.
        """
        if self.transcript.questions or self.folder is not None:
            raise RuntimeError("Expected a new session without a folder to replay events in, got one in use")
        self.transcript.read(list(events), None, name="the record to replay")
        self._record.remember(events)
        self._rewindable.replay(self.transcript, exact=exact)

    def _add(self, event: Event, *, durable: bool) -> None:
        """Record an event, then apply it."""
        self._record.append(event, durable=durable)
        self.transcript.apply(event)

    def _state(self) -> dict[str, Any] | None:
        """The planner's state to resume from; None where it is not that after the recorded events, or not needed."""
        return None if self.folder is None or self._tokens or not self._in_sync else self._rewindable.state()

    def _load(self, events: list[Event], journal: Journal, exact: bool) -> None:
        """Apply the events of a journal, and bring the planner to the same state."""
        snapshot = journal.read_planner()
        counts = self.transcript.read(events, None if snapshot is None else snapshot[0], name=str(journal.path))
        if snapshot is None or counts is None:
            self._rewindable.replay(self.transcript, exact=exact)
        else:
            self._rewindable.replay(
                self.transcript, state=snapshot[1], questions=counts[0], answers=counts[1], exact=exact
            )
