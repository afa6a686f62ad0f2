"""``Session``: questions to a person, a model or a synthetic user, one at a time."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import Feedback, check_count
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import Estimate
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.features import TextEncoder, blocks_of
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.features.notices import differing, same_options
from edpbrl_gym.likelihood import AnswerFormat, Terms
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.session.journal import Journal, check_settings, read_settings, settings_of
from edpbrl_gym.session.outlook import Outlook, Progress
from edpbrl_gym.session.questions import Answer, Question, QuestionMaker, check_answer, check_distinct
from edpbrl_gym.session.recommendation import Recommendation, StepWords, recommend, step_words
from edpbrl_gym.session.stopping import StoppingRule
from edpbrl_gym.session.transcript import Event, RewindablePlanner, Transcript
from edpbrl_gym.vocabulary import Vocabulary
from edpbrl_gym.vocabulary.vocabulary import check_enough_options

__all__ = ["Session"]

_log = logging.getLogger(__name__)
_SNAPSHOT_EVERY = 10  # answers between two snapshots of the planner on disk


class Session:
    """One person's questions and answers: ``ask``, ``tell``, ``undo``, ``skip``, ``save`` and ``resume``.

    It is the same for synthetic users, models and people; :func:`~edpbrl_gym.session.run` asks an oracle. Each
    question extends K prompts by one token; after H questions K new prompts begin. Where complete prompts are compared,
    each question is about K new ones, which the planner chooses token by token. A session with a folder writes every
    answer to the disk before ``tell`` returns, so a kill at any time loses none; a resumed session asks the same
    questions as an uninterrupted one. Not thread-safe.

    Args:
        planner: Planner that chooses the questions, or a function without arguments that creates it. A planner without
            ``reset()`` or ``state()`` and ``restore()`` can't go back: pass the function.
        vocabulary: Vocabulary of the prompts.
        encoder: Encoder of the options, the same one as for the planner's features: one of ``load_encoder``, or an
            instance of a class of one's own.
        num_options: Number of options K; None: the planner's.
        feedback: "truncated" compares partial prompts, "state" the new tokens alone, "prompt" complete prompts, one
            question an episode.
        model: Format of the answers; None: the planner's.
        held_out: Vocabulary of the pairs of prompts for which ``progress`` predicts the accuracy; None: ``vocabulary``.
        prior: Prior of the taste for credible intervals and ``progress``, independent of the planner's; a population
            the planner should have too. None: that of the vocabulary, or the planner's if it maps features.
        stopping: Stopping rule of ``progress``.
        seed: Seed of the held-out pairs and the typical questions of ``progress``.
        who: Name of the person.
        folder: New or empty folder to save to from the beginning.

    Raises:
        TypeError: The encoder lacks a part of the protocol.
        ValueError: Too few options for the format, an unknown feedback, a negative seed, or steps with too few tokens
            for K different options.
        FileExistsError: ``folder`` is not empty.
    """

    def __init__(
        self,
        planner: Planner | Callable[[], Planner],
        *,
        vocabulary: Vocabulary,
        encoder: TextEncoder,
        num_options: int | None = None,
        feedback: Feedback = "truncated",
        model: AnswerFormat | None = None,
        held_out: Vocabulary | None = None,
        prior: TastePrior | None = None,
        stopping: StoppingRule | None = None,
        seed: int = 0,
        who: str = "",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._rewindable = RewindablePlanner(planner)
        self.maker = QuestionMaker(vocabulary, encoder, feedback)
        self.model: AnswerFormat = model or self.planner.model
        of_planner = self.planner.num_options
        self.num_options = check_count(
            of_planner if num_options is None else num_options, "num_options (K)", minimum=self.model.least
        )
        if self.planner.num_options != self.num_options:
            raise ValueError(
                f"Expected a planner of K = {self.num_options} options, got one of {self.planner.num_options}"
            )
        if self.planner.distinct:
            check_enough_options(vocabulary, self.num_options, feedback)
        self.who = who
        self._map = self._feature_map(prior)
        self.memo = MemoEncoder(encoder if self._map is None else self._map.encoder(encoder), vocabulary=vocabulary)
        self.outlook = Outlook(
            self.maker,
            self.memo,
            num_options=self.num_options,
            held_out=vocabulary if held_out is None else held_out,
            rule=stopping or StoppingRule(),
            seed=check_count(seed, "seed", minimum=0),
            prior=self._map if prior is None else prior,
            relative=self.model.relative,
        )
        self.transcript = Transcript(self.maker, self.num_options)
        self._tokens: list[NDArray[np.int64]] = []  # the planner's, step by step, of a question not created yet
        self._told_same = False
        self._in_sync = True  # False after the planner failed to learn an answer
        self._journal: Journal | None = None
        self._events: list[Event] = []  # as long as there is no journal
        if folder is not None:
            self.save(folder)

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", saved in {str(self.folder)!r}"
        return (
            f"<Session of the planner {self.planner.name!r}: {self.answered} answered, K = {self.num_options}, "
            f"{self.maker.feedback!r} of {self.vocabulary.horizon} steps{where}>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Expected a session to be saved by save(folder), or copied by Session.resume(folder, planner, ...): it can "
            "hold a model, and is neither pickled nor deep-copied"
        )

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
        return None if self._journal is None else self._journal.folder

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
        self._warn_of_same_options(question)
        self._add(self.transcript.ask_event(question), durable=False)
        self._tokens = []
        self._rewindable.keep(question.number)
        return self.transcript.questions[-1]

    def _warn_of_same_options(self, question: Question) -> None:
        """Warn, at the first such question, of two options that only a reader can tell apart."""
        found = [] if self._told_same else same_options([question.texts], question.features[None])
        if found:
            self._told_same = True
            _, one, other = found[0]
            _log.warning(
                "The encoder %s gives %r and %r the same embedding: nothing can be learnt about such options",
                self.maker.encoder.name, *differing(question.texts[one], question.texts[other]),
            )  # fmt: skip

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

    def substitute(self, tokens: ArrayLike) -> None:
        """Ask about other items of a pool, (K,), than the planner chose, such as in place of one that can't be shown.

        Raises:
            RuntimeError: The question is asked already.
            ValueError: The vocabulary is no pool, or has no such items.
        """
        if self.pending is not None or self.vocabulary.horizon != 1:
            raise RuntimeError("Expected a question about a pool that is chosen and not asked yet; call choose() first")
        self.choose()
        self._tokens = [self.maker.extended(self.transcript.next_prefixes()[0], tokens)[:, 0]]

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
            self._try_to_write_planner()

    def skip(self) -> None:
        """Skip the question: the next one continues its prompts, or is about others where complete ones are compared.

        Nothing is learnt from a skip.
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

    def _feature_map(self, given: TastePrior | None) -> TastePrior | None:
        """The planner's prior if it maps features, as then theta is about those; None: about the options' own.

        Raises:
            ValueError: The session's prior is about others.
        """
        theirs = getattr(self.planner, "prior", None)
        if given is not None and given.space != getattr(theirs, "space", ""):
            raise ValueError(
                "Expected a prior about the same features as the planner's, whose estimate it is to judge, got another "
                "feature map; leave prior out, or give the planner the same one"
            )
        return theirs if getattr(theirs, "space", "") else None

    def _terms(self, answers: Comparisons | None = None) -> Terms:
        answers = self.comparisons if answers is None else answers
        return (answers if self._map is None else self._map.mapped(answers)).terms(self.model)

    @property
    def theta(self) -> NDArray[np.float64]:
        """The estimated taste, (d,): ``estimate.theta``."""
        return self.estimate.theta

    @property
    def estimate(self) -> Estimate:
        """The taste from all answers so far."""
        return self.planner.estimate

    @property
    def posterior(self) -> Posterior:
        """The planner's posterior; for exact draws see ``draws``."""
        return self.planner.posterior

    def draws(self, answers: Comparisons | None = None) -> NDArray[np.float64]:
        """Draws from the exact posterior of theta (see :class:`~edpbrl_gym.session.outlook.Outlook`), (320, d).

        Args:
            answers: ``comparisons`` of a moment ago, where the session goes on in another thread; None: all.
        """
        return self.outlook.fit_and_draws(self._terms(answers))[1]

    @property
    def comparisons(self) -> Comparisons:
        """All answered and skipped questions; those whose answer names a best option are its ``decided``."""
        encoder = self.maker.encoder
        metadata: dict[str, Any] = {
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
            "vocabulary_fingerprint": self.vocabulary.fingerprint,
            "feedback": self.maker.feedback,
            "planner": self.planner.name,
        }
        if blocks := blocks_of(encoder):
            metadata["blocks"] = list(blocks)
        return self.transcript.comparisons(who=self.who, metadata=metadata)

    def recommend(
        self, count: int = 5, *, level: float = 0.9, vocabulary: Vocabulary | None = None, **search: Any
    ) -> list[Recommendation]:
        """Prompts that this person will like, best first, with credible intervals of their utilities.

        See :func:`~edpbrl_gym.session.recommendation.recommend`: the search maximises the utility by the estimate;
        scores, intervals and order are those of ``draws``. ``vocabulary``: of the prompts; None: the session's own.

        Raises:
            ValueError: Nothing has been learnt yet, or an argument is out of its range.
        """
        search_vocabulary = self.vocabulary if vocabulary is None else vocabulary
        return recommend(
            search_vocabulary, self.memo, self.estimate.theta, self.draws(), count=count, level=level, **search
        )

    def words(self, count: int = 3, *, level: float = 0.9) -> list[StepWords]:
        """The phrases of each step that this person surely likes more or less than the step's average phrase.

        See :func:`~edpbrl_gym.session.recommendation.step_words`, here by ``draws``.
        """
        return step_words(self.vocabulary, self.memo, self.draws(), count=count, level=level)

    def progress(self, further: Sequence[int] = (0, 6, 12, 30, 60, 120, 240)) -> Progress:
        """Predict how well the taste is known, what further questions would add, and whether to stop.

        Args:
            further: Numbers of further questions at which to predict the accuracy; 0 is always among them.
        """
        return self.forecast(further)()

    def forecast(self, further: Sequence[int]) -> Callable[[], Progress]:
        """A function that computes the ``progress`` of the answers so far, also while another thread goes on asking.

        Such functions, and what else reads ``draws``, are called by one thread at a time.
        """
        answers = sum(response.kind != "skip" for response in self.transcript.responses)
        theta, terms, questions = self.estimate.theta, self._terms(), self.answered
        return lambda: self.outlook.progress(
            theta, self.model, terms, questions=questions, answers=answers, further=further
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
        if self._journal is None:
            if folder is None:
                raise ValueError("Expected a folder to save this session in, it has none yet; save(folder)")
            self._journal = Journal.create(Path(folder).absolute(), settings_of(self), self._events)
            self._events = []
        elif folder is not None and Path(folder).absolute() != self._journal.folder:
            raise ValueError(
                f"Expected the session's own folder {self._journal.folder}, got {folder}; copy the folder after close()"
            )
        self._write_planner()
        return self._journal.folder

    def close(self) -> None:
        """Release the folder, so that the session can be resumed elsewhere; a closed session accepts no answers.

        Without effect on a session that is closed already, or has no folder.

        Raises:
            FileNotFoundError: The journal was deleted, moved or replaced; the session is closed nevertheless.
        """
        if self._journal is not None and not self._journal.closed:
            try:
                self._try_to_write_planner()
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
        session._journal = journal
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
        self._events = list(events)
        self._rewindable.replay(self.transcript, exact=exact)

    def _add(self, event: Event, *, durable: bool) -> None:
        """Record an event, then apply it."""
        if self._journal is None:
            self._events.append(event)
        else:
            self._journal.append(event, durable=durable)
        self.transcript.apply(event)

    def _write_planner(self) -> None:
        """Save the planner's state to resume from, where it is that after the recorded events."""
        if self._journal is not None and self._in_sync and not self._tokens:
            self._journal.write_planner(self.planner.state())

    def _try_to_write_planner(self) -> None:
        """The same if possible: the answers are safe, without the state resuming only takes longer."""
        try:
            self._write_planner()
        except OSError as error:
            assert self._journal is not None
            self._journal.check()  # raises if the answers are not safe
            warnings.warn(f"The planner's state could not be saved in {self.folder}: {error}", stacklevel=3)

    def _load(self, events: list[Event], journal: Journal, exact: bool) -> None:
        """Apply the events of a journal, and bring the planner to the same state."""
        position, state = journal.read_planner() or (None, None)
        counts = self.transcript.read(events, position, name=str(journal.path))
        self._rewindable.replay(self.transcript, None if counts is None else state, counts or (0, 0), exact=exact)
