"""Questions asked by workers: each shard has a ledger of its own, with which whoever takes it over goes on.

The process that holds the ledger divides the questions into shards by their keys, and what the budget leaves among the
shards, and makes a ledger for each, ``LEDGER.parts/NAME.jsonl``. A worker writes to the one of its shard as one process
writes to its own: an answer is on the disk before it is used. Where a worker dies, the next one opens the same file,
which its lock and the death of its owner hand over, and asks what has no answer there. A question that was under way at
that moment is asked again under the same ``Idempotency-Key``: a server that honours it answers without charging twice;
with others it counts as spent twice in the budget. The lines of a shard come into the ledger when it is finished
(``Ledger.absorb``), those of a run that was killed as a whole when the ledger is opened again. The ledger of the shard
is removed then, and without it nothing is asked: a scheduler may make a call again of which we have had the result.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from edpbrl_gym._executor import Executor
from edpbrl_gym._files import replacing
from edpbrl_gym.oracles.judge.asking import Asker, Look
from edpbrl_gym.oracles.judge.budget import Budget
from edpbrl_gym.oracles.judge.client import ChatClient
from edpbrl_gym.oracles.judge.ledger import Ledger, parts_folder
from edpbrl_gym.oracles.judge.messages import most_input_tokens

__all__ = ["ask_on_workers"]

_SHARD = 32  # questions: few enough for an even division, enough to keep the connections of a worker busy
_TAKEOVER = 120.0  # seconds in which a file system may find out that the owner of a lock is dead

Limits = tuple[int | None, int | None]
_T = TypeVar("_T")


@dataclass
class _Result:
    """What a worker has done with a shard.

    Attributes:
        part: The ledger of the shard.
        outcomes: Outcome of each question, by key.
        structured: Form of the answers that it has found.
        error: Why it has stopped early.
    """

    part: Path
    outcomes: dict[str, Any] = field(default_factory=dict)
    structured: str = "unknown"
    error: BaseException | None = None


def ask_on_workers(executor: Executor, asker: Asker, looks: Sequence[Look], advance: Callable[[], None]) -> None:
    """Ask all looks on the workers; afterwards each has its outcome, and all answers are in the ledger.

    On Ctrl-C nothing more is sent; the workers await pending answers, which are paid for, and end.

    Args:
        executor: The workers.
        asker: Asks here what the division of the budget leaves over; its ledger gets all answers.
        looks: Looks with different keys.
        advance: Callback, called in this thread for each look.

    Raises:
        ConnectionError, OSError, ValueError: As for ``Asker.ask``, of a worker.
    """
    ledger = asker.ledger
    folder = parts_folder(ledger.path.absolute())
    folder.mkdir(parents=True, exist_ok=True)
    with _claimed(ledger, looks):
        for look in looks:
            look.outcome = "answer" if look.key in ledger.answers else None
            if look.outcome:
                advance()
        before = len(looks) + 1
        while (left := sum(look.outcome is None for look in looks)) < before:  # else killed workers have spent it all
            before = left
            with _divided([look for look in looks if look.outcome is None], asker.budget) as shards:
                if shards:
                    _ask_shards(executor, asker, shards, folder, advance)
    with suppress(OSError):
        folder.rmdir()
    rest = [look for look in looks if look.outcome is None]
    if rest:
        asker.ask(rest, advance)


@contextmanager
def _claimed(ledger: Ledger, looks: Sequence[Look]) -> Iterator[None]:
    """Keep other threads from asking the same questions."""
    with ExitStack() as stack:
        for key in sorted(look.key for look in looks):  # in one order, so that nobody waits in a circle
            ledger.claim(key, threading.Event())
            stack.callback(ledger.release, key)
        yield


@contextmanager
def _divided(looks: Sequence[Look], budget: Budget) -> Iterator[list[tuple[list[Look], Limits]]]:
    """Shards by the keys, each with a part of the budget that covers its questions, reserved meanwhile."""
    spending = budget.spending
    ordered = sorted(looks, key=lambda look: look.key)
    shards: list[tuple[list[Look], Limits]] = []
    held_questions = held_tokens = 0
    with spending.changed:
        for start in range(0, len(ordered), _SHARD):
            shard: list[Look] = []
            bound = 0
            for look in ordered[start : start + _SHARD]:
                most = most_input_tokens(look.settings, look.question) + look.settings.max_answer_tokens
                if not budget.fits(len(shard) + 1, bound + most):
                    break
                shard.append(look)
                bound += most
            if shard:
                limits = (
                    None if budget.max_questions is None else len(shard),
                    None if budget.max_tokens is None else bound,
                )
                shards.append((shard, limits))
                spending.held_questions += len(shard)
                spending.held_tokens += bound
                held_questions, held_tokens = held_questions + len(shard), held_tokens + bound
    try:
        yield shards
    finally:
        with spending.changed:
            spending.held_questions -= held_questions
            spending.held_tokens -= held_tokens
            spending.changed.notify_all()


def _ask_shards(
    executor: Executor,
    asker: Asker,
    shards: Sequence[tuple[list[Look], Limits]],
    folder: Path,
    advance: Callable[[], None],
) -> None:
    """Ask shards on the workers, and take their results over as they finish."""
    stop = folder / f"stop-{uuid.uuid4().hex}"
    looks = {look.key: look for shard, _ in shards for look in shard}
    calls = [(folder / f"{_name(shard)}.jsonl", shard, asker.text_only, limits, stop) for shard, limits in shards]
    for part, *_ in calls:
        Ledger(part).close()
    results: queue.SimpleQueue[_Result | BaseException | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            for result in executor.map_unordered(_ask_shard, calls, folder):
                results.put(result)
        except BaseException as error:  # passed to the waiting thread
            results.put(error)
        else:
            results.put(None)

    def take(result: _Result) -> None:
        _when_free(lambda: asker.ledger.absorb(result.part))
        asker.learn_mode(result.structured)
        if result.error is not None:
            raise result.error
        for key, outcome in result.outcomes.items():
            if outcome in ("answer", "failed"):  # what the shard had no budget for may still be asked
                looks[key].outcome = outcome
                advance()

    thread = threading.Thread(target=work, name="judge-workers", daemon=True)
    thread.start()
    try:
        while (result := _next(results)) is not None:
            if isinstance(result, BaseException):
                raise result
            take(result)
    except BaseException:
        with replacing(stop):
            pass  # an empty file
        while thread.is_alive():
            thread.join(0.2)  # repeatedly, as not every system lets Ctrl-C end a long wait
        for part, *_ in calls:
            with suppress(RuntimeError, OSError, ValueError):  # what can't be taken over now is when it is opened again
                asker.ledger.absorb(part)
        raise
    finally:
        stop.unlink(missing_ok=True)


def _next(results: queue.SimpleQueue[_Result | BaseException | None]) -> _Result | BaseException | None:
    """The next result; polls, since not every system lets Ctrl-C end a long wait."""
    while True:
        try:
            return results.get(timeout=0.5)
        except queue.Empty:
            continue


def _when_free(action: Callable[[], _T]) -> _T:
    """Do what needs the ledger of a shard, once the worker that has it is done with it or known to be dead."""
    end = time.monotonic() + _TAKEOVER
    while True:
        try:
            return action()
        except RuntimeError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _name(shard: Sequence[Look]) -> str:
    """Name of the ledger of a shard: by its questions, and another one at every asking."""
    digest = hashlib.sha256("".join(look.key for look in shard).encode("ascii"))
    return f"{digest.hexdigest()[:16]}-{uuid.uuid4().hex[:16]}"


# -- on a worker -------------------------------------------------------------------------------------------------------


class _StopAskingError(Exception):
    """The run stops."""


def _ask_shard(part: Path, looks: list[Look], text_only: bool, limits: Limits, stop: Path) -> _Result:
    """Ask the looks of a shard that have no answer in its ledger."""
    result = _Result(part)
    settings = looks[0].settings

    def check() -> None:
        if stop.exists():
            raise _StopAskingError

    try:
        client = ChatClient(settings)
        try:
            with closing(_when_free(lambda: Ledger(part, create=False))) as ledger:
                if text_only:
                    ledger.text_only.add((settings.model, settings.address))
                asker = Asker(client, ledger, Budget(*limits, ledger.spending))
                check()
                asker.ask([look for look in looks if look.key not in ledger.answers], _nothing, check)
                result.structured = asker.structured
                result.outcomes = {look.key: "answer" if look.key in ledger.answers else look.outcome for look in looks}
        finally:
            client.close()
    except (_StopAskingError, KeyboardInterrupt):  # Ctrl-C reaches processes of the same terminal, too
        result.error = KeyboardInterrupt()
    except Exception as error:
        result.error = error
    return result


def _nothing() -> None:
    """Progress is shown when the shard is finished."""
