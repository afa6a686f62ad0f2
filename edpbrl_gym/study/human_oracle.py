"""An oracle that asks a participant of a study: the environment's loop waits for a person's answers."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._validation import check_choice_of, check_number
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import Answers
from edpbrl_gym.study.arms import kind_of
from edpbrl_gym.study.config import CONFIG, Arm, StudyConfig
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.records import AnswerTimeoutError, LoopError, Post
from edpbrl_gym.vocabulary.tokens import fold

__all__ = ["HumanOracle"]

_MAX_NAME = 64  # characters, as wide as its column
_MAX_TEXT = 10_000  # characters of an option


class HumanOracle(AbstractContextManager["HumanOracle"]):
    """Asks one participant of a study the questions of an environment, and waits for the answers.

    The pages of the study (`edpbrl study serve`) show the questions to a participant of an arm with ``planner =
    "oracle"``. Questions and answers are in its database, numbered from the beginning of the loop. After an error, a
    kill or a time-out the loop is run again under the same name, with the same seeds and settings: questions that are
    answered get their stored answers at once, and the first one without an answer is waited for. An answer that
    ``answer`` has returned is final: the participant can no longer take it back.

    Args:
        study: Folder of the study, or its configuration.
        arm: Name of the arm; None: the only one with ``planner = "oracle"``.
        participant: Code or external identifier (such as the PROLIFIC_PID) of the participant; None: the first one of
            the arm who has come to the questions and whom no other oracle asks.
        name: Name of the loop and of the oracle, recorded with every comparison.
        response: Format of the answers that the loop expects; that of the study.
        cant_tell: What "can't tell" is for the loop: a "tie", or a "skip" for those that learn from best options only.
        timeout: Seconds to wait for the next answer, or for a participant; every answer begins them anew. None: no end.
        poll: Seconds between two looks into the database.

    Raises:
        ModuleNotFoundError: The extra ``study`` is not installed.
        FileNotFoundError, Mistakes: As for ``read_config``.
        ValueError: The study has no such arm or another format.
        ConnectionError: The database can't be opened.
    """

    def __init__(
        self,
        study: str | os.PathLike[str] | StudyConfig,
        *,
        arm: str | None = None,
        participant: str | None = None,
        name: str = "human",
        response: str = "best",
        cant_tell: str = "tie",
        timeout: float | None = 600.0,
        poll: float = 0.5,
    ) -> None:
        check_installed(*(Need(package, "the answers of a study") for package in ("sqlalchemy", "alembic")))
        from edpbrl_gym.study.posts import Posts
        from edpbrl_gym.study.store import Store

        if not 1 <= len(name) <= _MAX_NAME:
            raise ValueError(f"Expected a name of 1 to {_MAX_NAME} characters, got {len(name)}; choose another")
        self._timeout = None if timeout is None else check_number(timeout, "timeout", minimum=0.0)
        self._poll = check_number(poll, "poll", minimum=0.0, exclusive=True)
        self.config = study if isinstance(study, StudyConfig) else read_config(Path(study))
        self._arm = _arm_of(self.config, arm)
        if response != self.config.questions.format:
            raise ValueError(
                f"Expected the study's format of answers, response = {self.config.questions.format!r}, got {response!r}"
            )
        self._cant_tell = check_choice_of(cant_tell, "cant_tell", ("tie", "skip"))
        self.name, self.asked = name, 0  # questions of this loop that are answered
        self._wanted = participant
        self._claimed: int | None = None
        self._store = Store(self.config.database_url)
        self._posts = Posts(self._store.database)

    def describe(self) -> dict[str, Any]:
        """What is recorded with every comparison: the study and, by the name in its exports, the participant."""
        described: dict[str, Any] = {
            "name": self.name,
            "kind": "human",
            "study": self.config.title,
            "arm": self._arm.name,
            "config": self.config.fingerprint,
            "response": self.config.questions.format,
            "cant_tell": self._cant_tell,
        }
        if self._claimed is not None:
            from edpbrl_gym.study.export_tables import pseudonym

            described["participant"] = pseudonym(self._store.secret, self._store.record(self._claimed).participant)
        return described

    def answer(self, queries: Queries) -> Answers:
        """Ask the participant, and wait until all questions are answered; one passed over is a skip.

        Raises:
            AnswerTimeoutError: Nobody answered in time; what was answered is stored.
            LoopError: The loop can't go on: it asks another question than before at this point, or more questions than
                the study has; another oracle asks the participant; the participant has left; or it was finished.
            ValueError: The questions are none that the study's pages can show.
        """
        wanted = self._checked(queries)
        if not wanted:
            return Answers(())
        begin = time.monotonic()
        who = f"the participant {self._wanted!r}" if self._wanted else f"a participant of {self._arm.name!r}"
        while self._claimed is None:
            self._claimed = self._posts.claim(self.name, self._arm.name, self._wanted)
            if self._claimed is None:
                self._sleep(begin, f"{who} at the questions", 0)
        self._posts.post(self._claimed, wanted)
        responses = self._wait(self._claimed, len(wanted))
        self.asked += len(wanted)
        if self._cant_tell == "skip":
            responses = tuple(Response.skip() if one.kind == "tie" else one for one in responses)
        return Answers(responses)

    def finish(self) -> None:
        """Let the participant finish: after the questions posted so far their page says thank you.

        Without it the page waits for further questions, also after ``close``. Before any question nothing happens.
        """
        self._posts.finish(self.name)

    def close(self) -> None:
        """Close the database; the loop can be run again."""
        self._store.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _checked(self, queries: Queries) -> list[Post]:
        options, most = self.config.questions.options, self.config.questions.number
        if queries.texts is None:
            raise ValueError(
                "Expected questions with texts for a person, got features only; use an environment with "
                "trajectory_texts (or state_texts), or give Queries their texts"
            )
        if len(queries) and queries.num_options != options:
            raise ValueError(
                f"Expected questions of {options} options, as the study has, got {queries.num_options}; change lanes, "
                f"or options in {CONFIG}"
            )
        for texts in queries.texts:
            _check_texts(texts)
        if self.asked + len(queries) > most:
            raise LoopError(
                f"Expected at most number = {most} questions, as in {CONFIG}, got question {self.asked + len(queries)} "
                f"of the loop {self.name!r}; end the loop earlier. Nothing was asked"
            )
        steps = zip(queries.texts, queries.episode.tolist(), queries.step.tolist(), strict=True)
        return [Post(self.asked + index, list(texts), *step) for index, (texts, *step) in enumerate(steps)]

    def _wait(self, participant: int, count: int) -> tuple[Response, ...]:
        begin, stored = time.monotonic(), -1
        while True:
            total, answered = self._posts.replies(participant)
            if answered >= self.asked + count:
                taken = self._posts.take(participant, self.asked, count)
                if taken is not None:
                    return taken
            if total != stored:
                begin, stored = time.monotonic(), total
            self._sleep(begin, f"an answer to question {answered + 1}", answered)

    def _sleep(self, begin: float, what: str, answered: int) -> None:
        """Sleep until the next look, if there is time left."""
        left = self._poll if self._timeout is None else begin + self._timeout - time.monotonic()
        if left <= 0:
            raise AnswerTimeoutError(
                f"Expected {what} within {self._timeout:g} s, got none; {answered} answers of the loop {self.name!r} "
                "are stored. Run the loop again from its beginning under this name: it goes on with them",
                oracle=self.name,
                answered=answered,
            )
        time.sleep(min(self._poll, left))


def _arm_of(config: StudyConfig, name: str | None) -> Arm:
    arms = [arm for arm in config.arms if kind_of(arm).posted]
    chosen = [arm for arm in arms if name in (None, arm.name)]
    if len(chosen) != 1:
        names = ", ".join(repr(arm.name) for arm in arms) or "none"
        which = "one arm" if name is None else f"the arm {name!r}"
        raise ValueError(
            f"Expected {which} with planner = 'oracle' in {CONFIG}, got {names}; add it, or name one by arm="
        )
    return chosen[0]


def _check_texts(texts: list[str]) -> None:
    """Raise a ValueError for options that a page can't show, or shows twice."""
    for text in texts:
        if not text.strip() or len(text) > _MAX_TEXT or any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(
                f"Expected texts of 1 to {_MAX_TEXT:,} characters of Unicode for people, got {text[:60]!r} "
                f"({len(text):,} characters)"
            )
    if len({fold(text) for text in texts}) < len(texts):
        raise ValueError(
            f"Expected different options for people, got {list(texts)}; for prompts use collect(..., distinct=True) "
            "or DistinctOptions"
        )
