"""The first questions, asked before there is an encoder: options of a pool that share few phrases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._log import AppendLog, Remedies
from edpbrl_gym._seeds import generator
from edpbrl_gym.likelihood import Response
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary

__all__ = ["Opening", "differing_items"]

_TRIED = 40  # items among which the next option of a question is chosen
_REMEDIES = Remedies(
    held="answer there, or end it first",
    damaged="restore the file from a backup",
    gone="move it back",
    closed="open it again",
)


class Opening:
    """Questions and answers on the disk, until a session has them.

    Args:
        path: File of the answers, made if there is none.
        pool: The items, a vocabulary of one step.
        num_options: Number of options K.
        seed: Seed of the questions.

    Attributes:
        questions: Items of each question, the last one pending.
        responses: Answers so far.

    Raises:
        ValueError: The file is damaged, or was written for another pool.
        RuntimeError: It is open elsewhere.
    """

    def __init__(self, path: Path, pool: Vocabulary, num_options: int, seed: int) -> None:
        self.pool, self.num_options, self._seed = pool, num_options, seed
        self.questions: list[tuple[int, ...]] = []
        self.responses: list[Response] = []
        self._times: list[str] = []
        self._log = AppendLog(path, name=f"The answers in {path}", remedies=_REMEDIES, create=True)
        try:
            header = {"kind": "opening", "format": "edpbrl-gym opening 1", "vocabulary": pool.fingerprint}
            for line in self._log.read(header):
                self._apply(line)
        except BaseException:
            self._log.close()
            raise

    @property
    def answered(self) -> int:
        """Number of answers."""
        return len(self.responses)

    def ask(self) -> tuple[int, ...]:
        """Items of the pending question; the next one is chosen where none is pending."""
        if len(self.questions) == self.answered:
            self._add({"type": "ask", "items": list(self.following())}, durable=False)
        return self.questions[-1]

    def substitute(self, items: Sequence[int]) -> None:
        """Ask about other items, such as in place of one that can't be drawn."""
        self._add({"type": "substitute", "items": list(items)}, durable=False)

    def following(self) -> tuple[int, ...]:
        """Items of the question after the last one, whatever is answered."""
        shown = {item for question in self.questions for item in question}
        return differing_items(self.pool.tokens[0], self.num_options, self._seed, len(self.questions), shown)

    def texts(self, items: Sequence[int]) -> tuple[str, ...]:
        """Texts of items."""
        return tuple(self.pool.tokens[0][item] for item in items)

    def tell(self, response: Response) -> None:
        """Answer the pending question; when this returns, the answer is on the disk."""
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        self._add({"type": "tell", "response": response.checked(self.num_options).as_json(), "at": time}, durable=True)

    def undo(self) -> None:
        """Take back the last answer; its question is pending again."""
        self._add({"type": "undo"}, durable=True)

    def events(self, maker: Any) -> Iterator[dict[str, Any]]:
        """What was answered, as events of a session with this ``QuestionMaker``, whose pool may lack other items."""
        from edpbrl_gym.session.transcript import Transcript

        transcript = Transcript(maker, self.num_options)
        for number, response in enumerate(self.responses):
            tokens = self.tokens(number, maker.vocabulary)[:, None]
            question = maker.make(tokens, number=number, episode=transcript.next_prefixes()[1])
            for event in (transcript.ask_event(question), transcript.tell_event(response, self._times[number])):
                transcript.apply(event)
                yield event

    def tokens(self, number: int, vocabulary: Vocabulary) -> NDArray[np.int64]:
        """The options of a question as tokens of another pool, (K,)."""
        among = vocabulary.tokens[0]
        return np.array([among.index(text) for text in self.texts(self.questions[number])], dtype=np.int64)

    def close(self, *, delete: bool = False) -> None:
        """Let go of the file; ``delete``: a session has what is in it."""
        self._log.close()
        if delete:
            self._log.path.unlink(missing_ok=True)

    def _add(self, line: dict[str, Any], *, durable: bool) -> None:
        self._log.append(line, durable=durable)
        self._apply(line)

    def _apply(self, line: dict[str, Any]) -> None:
        if line["type"] == "ask":
            self.questions.append(tuple(line["items"]))
        elif line["type"] == "substitute":
            self.questions[-1] = tuple(line["items"])
        elif line["type"] == "tell":
            self.responses.append(Response.from_json(line["response"]))
            self._times.append(line["at"])
        else:
            del self.responses[-1], self._times[-1], self.questions[self.answered + 1 :]


def differing_items(
    texts: tuple[str, ...], count: int, seed: int, number: int, without: set[int] | frozenset[int] = frozenset()
) -> tuple[int, ...]:
    """Random items of a pool that share few phrases with each other.

    Args:
        texts: Texts of the items, phrases with ``SEPARATOR`` between them.
        count: Number of items, at most that of the texts.
        seed: Seed of the draw.
        number: Number of the question, another draw.
        without: Items that were shown; they come again only where there are too few others.
    """
    order = generator(seed, "opening", number).permutation(len(texts)).tolist()
    order = [item for item in order if item not in without] + [item for item in order if item in without]
    chosen: list[int] = []
    phrases: list[str] = []
    for _ in range(count):
        tried = [item for item in order if item not in chosen][: max(_TRIED, count)]
        best = min(tried, key=lambda item: sum(phrases.count(part) for part in texts[item].split(SEPARATOR)))
        chosen.append(best)
        phrases += texts[best].split(SEPARATOR)
    return tuple(chosen)
