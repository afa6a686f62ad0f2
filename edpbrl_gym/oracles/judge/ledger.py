"""Everything that was paid for, on disk before it is used: a log of JSON lines with checksums (``edpbrl_gym._log``).

The first line names the format. Then, one line each:

sent     a question goes out: its key and the most tokens that it can cost. Tells, after a kill, what was under way.
         With "again" it replaces the line before: an attempt was lost, and the tokens are those of both.
answer   what came back, with key, verdict, order, tokens, latency, retries. On the disk before anybody sees it.
failed   a question got no answer after all retries; it will be asked again by the next run.
mode     the server takes no JSON schema, so its answers are read as text.

With every "sent", room for the answer is set aside in the file, so that a disk that is full takes no more questions
rather than lose an answer. The texts and images of the questions are not in it, nor the style, nor a key of any server:
a question is a sha256.
"""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path

from edpbrl_gym._log import AppendLog, Line, Remedies
from edpbrl_gym.oracles.judge.budget import Spending
from edpbrl_gym.oracles.judge.questions import Usage

__all__ = ["FORMAT", "GONE", "Ledger"]

FORMAT = "edpbrl-gym judge ledger 2"

_HEADER: Line = {"kind": "ledger", "format": FORMAT}
_REMEDIES = Remedies(
    held="wait for that run or stop it, or give this one a ledger of its own",
    damaged="restore the file from a backup, or delete that line, unless it is the first "
    "(its question is then asked again)",
    gone="if it was moved, move it back and ask again; otherwise begin again with a new Judge, on a backup of the file "
    "where there is one",
    closed="make a new Judge",
)
GONE = _REMEDIES.gone
_MOST_BYTES = 12_000  # of an answer's line, without the question's identity


class Ledger:
    """The open ledger of one or more judges; made where there is none.

    Attributes:
        path: The file.
        answers: The answer lines by key.
        failures: The last failed line of every key that has no answer.
        lost: What failed attempts of a key have cost, as usage, answered later or not.
        under_way: Tokens set aside for questions that went out and of which nothing more is known: the run was killed.
            They may have been billed, so they count as spent; they are asked again.
        unwritten: Lines that the disk did not take, about what was paid for; written before anything else.
        spending: What all judges on this ledger have spent and set aside, for their budgets.

    Raises:
        ValueError: A file of another format, or a line that is damaged or malformed.
        RuntimeError: Another process has it open.
        OSError: It can't be made or read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.answers: dict[str, Line] = {}
        self.failures: dict[str, Line] = {}
        self.lost: dict[str, Usage] = {}
        self.under_way: dict[str, list[int]] = {}
        self.text_only: set[tuple[str, str]] = set()
        self.unwritten: list[Line] = []
        self.questions = 0
        self.tokens = 0
        self._taking = threading.Lock()
        self._writing_rest = threading.Lock()
        self._closed = False
        self._promised: dict[str, int] = {}
        self._asked: set[str] = set()
        self._asking = threading.Condition()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._log = AppendLog(self.path, name=f"the ledger {self.path}", remedies=_REMEDIES, create=True)
        try:
            for number, line in enumerate(self._log.read(_HEADER), start=2):
                self._check(line, number)
                self._take(line)
        except BaseException:
            self._log.close()
            raise
        self.spending = Spending(*self.spent)

    def _check(self, line: Line, number: int) -> None:
        wrong = _wrong(line)
        if wrong:
            raise ValueError(
                f"Expected lines of a judge's ledger in {self.path}, line {number} is not a valid line: {wrong}; "
                f"{_REMEDIES.damaged}"
            )

    def _take(self, line: Line) -> None:
        """Keep a line in memory; one that was written again, as its way to the disk had failed, counts once."""
        kind, key = line["kind"], line.get("key", "")
        if kind in ("answer", "failed") and line in (self.answers.get(key), self.failures.get(key)):
            return
        if kind == "sent":
            sent = self.under_way.setdefault(key, [])
            sent[len(sent) - bool(line.get("again")) :] = [line["tokens"]]
        elif kind == "answer":
            self.answers[key] = line
            self.failures.pop(key, None)
        elif kind == "failed":
            self.failures[key] = line
            self.lost[key] = self.lost.get(key, Usage()) + Usage(**line["usage"])
        elif line["structured"] == "text":
            self.text_only.add((line["model"], line["address"]))
        if kind in ("answer", "failed"):
            if line.get("sent", True) and self.under_way.get(key):
                self.under_way[key].pop()
            usage = line["usage"]
            self.tokens += usage["input_tokens"] + usage["output_tokens"]
            self.questions += bool(kind == "answer" or line["lost"])

    @property
    def spent(self) -> tuple[int, int]:
        """Questions and tokens spent so far, with those that were under way when a run was killed."""
        waiting = [tokens for sent in self.under_way.values() for tokens in sent]
        return self.questions + len(waiting), self.tokens + sum(waiting)

    def append(self, line: Line, *, durable: bool) -> None:
        """Add a line; when this returns it is on the disk (``durable``) or at least out of this process.

        What was paid for (an answer, a failed question) is kept in memory also where the disk does not take it.

        Raises:
            OSError: The disk is full or the file is gone; the file is as before.
            ValueError: The ledger is closed.
        """
        key, kind = line.get("key", ""), line["kind"]
        with self._taking:
            self._promised.pop(key, None)
            if kind == "sent":
                self._promised[key] = _MOST_BYTES + 12 * len(line.get("identity", ""))
            room = sum(self._promised.values())
        try:
            self._log.append(line, durable=durable, room=room)
        except OSError:
            with self._taking:
                self._promised.pop(key, None)
                if kind in ("answer", "failed"):
                    self.unwritten.append(line)
                    self._take(line)
            raise
        with self._taking:
            self._take(line)

    def write_rest(self) -> None:
        """Write the lines that the disk did not take before.

        Raises:
            OSError: It does not take them now either.
        """
        with self._writing_rest:  # not _taking: answers that come meanwhile are taken
            while self.unwritten:
                self._log.append(self.unwritten[0], durable=True)
                del self.unwritten[0]

    def claim(self, key: str, stop: threading.Event) -> bool:
        """Wait until no other thread asks a question and claim it; False where ``stop`` was set before.

        Whoever claims it looks whether it has been answered meanwhile, and must ``disclaim`` it.
        """
        with self._asking:
            while key in self._asked:
                if stop.is_set():
                    return False
                self._asking.wait(timeout=0.2)
            self._asked.add(key)
            return True

    def disclaim(self, key: str) -> None:
        """Let other threads ask a question."""
        with self._asking:
            self._asked.discard(key)
            self._asking.notify_all()

    def close(self) -> None:
        """Release the file; another process may open it then. Closing again does nothing.

        Raises:
            OSError: There are lines that the disk does not take; they are lost.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self.write_rest()
        finally:
            self._log.close()


def _wrong(line: Line) -> str:
    """What is wrong with a line, "" for nothing."""
    kind = line.get("kind")
    texts = {"mode": ("model", "address", "structured")}.get(str(kind), ("key",))
    if kind not in ("sent", "answer", "failed", "mode"):
        return f"its kind is {kind!r}"
    for name in texts:
        if not isinstance(line.get(name), str):
            return f"it needs {name!r} as a text"
    counts = {"sent": {"tokens": line.get("tokens")}, "mode": {}}.get(kind, {"lost": line.get("lost")})
    if kind in ("answer", "failed"):
        usage = line.get("usage")
        if not isinstance(usage, dict) or set(usage) != {"input_tokens", "output_tokens", "unreported"}:
            return "it needs 'usage' with input_tokens, output_tokens and unreported"
        counts |= {**usage, "retries": line.get("retries")}
    for name, value in counts.items():
        if type(value) is not int or value < 0:
            return f"it needs {name!r} as a whole number, 0 or more"
    return _wrong_facts(line) if kind in ("answer", "failed") else ""


def _wrong_facts(line: Line) -> str:
    """What is wrong with what a line tells of a question, "" for nothing."""
    order, choice, reason = line.get("order"), line.get("choice"), line.get("reason")
    latency = line.get("latency")
    if not isinstance(latency, (int, float)) or isinstance(latency, bool) or not 0 <= latency < math.inf:
        return "it needs 'latency' as a number, 0 or more"
    if not isinstance(order, list) or [type(place) for place in order] != [int] * len(order):
        return "it needs 'order' as a list of whole numbers"
    if len(order) < 2 or sorted(order) != list(range(len(order))):
        return "it needs 'order' as the numbers from 0 to K - 1, each once"
    if line["kind"] == "failed":
        return "a question that failed has no 'choice' and no 'reason'" if {"choice", "reason"} & set(line) else ""
    if reason not in ("answered", "invalid", "refused"):
        return "it needs 'reason' as answered, invalid or refused"
    if reason == "answered":
        right = type(choice) is int and choice in order
        return "" if right else "it needs 'choice' as one of the numbers in 'order', as it is answered"
    return "" if choice is None else f"it needs no 'choice', as it is {reason}"
