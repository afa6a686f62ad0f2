"""The ledger of all answers, written before they are used: a log of JSON lines with checksums (``edpbrl_gym._log``).

The first line names the format. Then, one line each:

sent     a question is sent: its key and the maximum number of tokens that it can cost. After a kill it shows which
         questions were under way. With "again" it replaces the previous line: an attempt was lost, and the tokens are
         those of both.
answer   the reply, with key, verdict, order, tokens, latency, retries; on disk before it is returned. Its "answer_key"
         has no limit on the reply's length: an answer is found under it with any limit, a reply that was cut or can't
         be read only under its own key.
failed   a question got no answer after all retries; the next run asks it again.
mode     the server does not accept a JSON schema, so its answers are read as text.

In "sent" and "failed" lines, "refused" counts the errors that the server has answered, for each body, so that the next
process sends an attempt that was under way with the same Idempotency-Key.

With every "sent" line, room for the answer is reserved in the file, so that a full disk stops further questions rather
than losing an answer. The ledger contains no texts or images of questions, no style and no key of a server: a question
is a sha256.
"""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path

from edpbrl_gym._log import AppendLog, Line, Remedies
from edpbrl_gym.oracles.judge.budget import Spending
from edpbrl_gym.oracles.judge.messages import Keys
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
_MAX_LINE_BYTES = 12_000  # of the line of an answer, without the question's identity


class Ledger:
    """The open ledger of one or more judges.

    Raises:
        ValueError: The file has another format, or a line is damaged or malformed.
        RuntimeError: Another process has it open.
        OSError: It can't be created or read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.answers: dict[str, Line] = {}  # the answer lines by key
        self.known: dict[str, Line] = {}  # answers and refusals, by their key without the limit on the reply's length
        self.failures: dict[str, Line] = {}  # the last failed line of every key without an answer
        self.lost: dict[str, Usage] = {}  # of the failed attempts of a key, answered later or not
        self.refused: dict[str, dict[str, int]] = {}  # errors of the server by body, for each key without an answer
        # tokens of questions that were sent but have no result, since the run was killed: they may have been billed, so
        # they count as spent; the questions are asked again
        self.under_way: dict[str, list[int]] = {}
        self.text_only: set[tuple[str, str]] = set()  # models and addresses that take no schema
        self.unwritten: list[Line] = []  # about paid requests, which the disk did not accept; written before others
        self.questions = 0
        self.tokens = 0
        self._lock = threading.Lock()
        self._writing_pending = threading.Lock()
        self._closed = False
        self._reserved: dict[str, int] = {}
        self._copied: set[tuple[str, str, int]] = set()
        self._claimed: set[str] = set()
        self._claims = threading.Condition()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._log = AppendLog(self.path, name=f"The ledger {self.path}", remedies=_REMEDIES, create=True)
        try:
            for number, line in enumerate(self._log.read(_HEADER), start=2):
                if problem := _line_problem(line):
                    raise ValueError(
                        f"Expected lines of a judge's ledger in {self.path}, line {number} is not a valid line: "
                        f"{problem}; {_REMEDIES.damaged}"
                    )
                self._apply(line)
            self.spending = Spending(*self.spent)
            self._check_shards()
        except BaseException:
            self._log.close()
            raise

    def _check_shards(self) -> None:
        """Refuse a ledger whose worker processes, which asked for it before there were none, were all killed."""
        folder = self.path.with_name(f"{self.path.name}.parts")
        if any(folder.glob("*.jsonl")):
            raise ValueError(
                f"Expected a ledger with all its answers, some are still in the shards in {folder}, which this version "
                "does not read; open the ledger once with the version that wrote them, or remove the folder"
            )

    def _apply(self, line: Line) -> None:
        """Apply a line to memory; one that was written twice, because the first write failed, counts once."""
        kind, key = line["kind"], line.get("key", "")
        if kind in ("answer", "failed") and line in (self.answers.get(key), self.failures.get(key)):
            return
        if kind == "sent":
            if "part" in line:
                copied = key, line["part"], line.get("copy", 0)
                if copied in self._copied:
                    return
                self._copied.add(copied)
            self.refused[key] = line.get("refused", {})
            tokens_under_way = self.under_way.setdefault(key, [])
            tokens_under_way[len(tokens_under_way) - bool(line.get("again")) :] = [line["tokens"]]
        elif kind == "answer":
            self.answers[key] = line
            if line["reason"] in ("answered", "refused"):
                self.known[line["answer_key"]] = line
            self.failures.pop(key, None)
            self.refused.pop(key, None)
        elif kind == "failed":
            self.refused[key] = line.get("refused", {})
            self.failures[key] = line
            self.lost[key] = self.lost.get(key, Usage()) + Usage(**line["usage"])
        elif line["structured"] == "text":
            self.text_only.add((line["model"], line["address"]))
        if kind in ("answer", "failed"):
            if line.get("sent", True) and "part" not in line and self.under_way.get(key):
                self.under_way[key].pop()  # of a worker's question, only what had no result was copied
            usage = line["usage"]
            self.tokens += usage["input_tokens"] + usage["output_tokens"]
            self.questions += bool(kind == "answer" or line["lost"])

    def find(self, keys: Keys) -> Line | None:
        """The line with the reply to a request, None if it is to be sent."""
        return self.known.get(keys.answer) or self.answers.get(keys.request)

    @property
    def spent(self) -> tuple[int, int]:
        """Questions and tokens spent so far, including those under way when a run was killed."""
        tokens_under_way = [tokens for tokens_of_key in self.under_way.values() for tokens in tokens_of_key]
        return self.questions + len(tokens_under_way), self.tokens + sum(tokens_under_way)

    def append(self, line: Line, *, durable: bool) -> None:
        """Add a line; when this returns it is on the disk (``durable``) or at least out of this process.

        A line about a paid request (an answer, a failed question) is kept in memory if the disk does not accept it.

        Raises:
            OSError: The disk is full or the file was removed; the file is unchanged.
            ValueError: The ledger is closed.
        """
        key, kind = line.get("key", ""), line["kind"]
        with self._lock:
            self._reserved.pop(key, None)
            if kind == "sent":
                self._reserved[key] = _MAX_LINE_BYTES + 12 * len(line.get("identity", ""))
            room = sum(self._reserved.values())
        try:
            self._log.append(line, durable=durable, room=room)
        except OSError:
            with self._lock:
                self._reserved.pop(key, None)
                if kind in ("answer", "failed"):
                    self.unwritten.append(line)
                    self._apply(line)
            raise
        with self._lock:
            self._apply(line)

    def write_pending(self) -> None:
        """Write the lines that the disk did not accept before."""
        with self._writing_pending:  # not _lock: new answers must be accepted in the meantime
            while self.unwritten:
                self._log.append(self.unwritten[0], durable=True)
                del self.unwritten[0]

    def claim(self, key: str, stop: threading.Event) -> bool:
        """Wait until no other thread asks a question, and claim it; False if ``stop`` was set before.

        The caller must check whether the question has been answered in the meantime, and ``release`` it.
        """
        with self._claims:
            while key in self._claimed:
                if stop.is_set():
                    return False
                self._claims.wait(timeout=0.2)
            self._claimed.add(key)
            return True

    def release(self, key: str) -> None:
        """Release a claimed question for other threads."""
        with self._claims:
            self._claimed.discard(key)
            self._claims.notify_all()

    def close(self) -> None:
        """Release the file, so that another process can open it. Closing again does nothing.

        Raises:
            OSError: The disk does not accept some lines; they are lost.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self.write_pending()
        finally:
            self._log.close()


def _line_problem(line: Line) -> str:
    """The problem with a line, "" if there is none."""
    kind = line.get("kind")
    texts = {"mode": ("model", "address", "structured"), "answer": ("key", "answer_key")}.get(str(kind), ("key",))
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
    refused = line.get("refused", {})
    if not isinstance(refused, dict):
        return "it needs 'refused' as counts by name"
    counts |= {f"refused {name}": value for name, value in refused.items()}
    for name, value in counts.items():
        if type(value) is not int or value < 0:
            return f"it needs {name!r} as a whole number, 0 or more"
    return _answer_problem(line) if kind in ("answer", "failed") else ""


def _answer_problem(line: Line) -> str:
    """The problem with an "answer" or "failed" line, "" if there is none."""
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
    if reason not in ("answered", "invalid", "cut", "refused"):
        return "it needs 'reason' as answered, invalid, cut or refused"
    if reason == "answered":
        is_option = type(choice) is int and choice in order
        return "" if is_option else "it needs 'choice' as one of the numbers in 'order', as it is answered"
    return "" if choice is None else f"it needs no 'choice', as it is {reason}"
