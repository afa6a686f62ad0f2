"""One question to an OpenAI-compatible chat endpoint: keys, attempts, waits, refusals."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from edpbrl_gym._addresses import key_headers
from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._http.errors import error_of_success
from edpbrl_gym._http.waits import LONGEST_WAIT, announced_limit, backoff, in_words, wait_before_next
from edpbrl_gym.oracles.judge.questions import Usage
from edpbrl_gym.oracles.judge.reading import Reply, read_completion
from edpbrl_gym.oracles.judge.refusals import LIMIT_PARAMETERS, JudgeError, read_error
from edpbrl_gym.oracles.judge.settings import JudgeSettings

if TYPE_CHECKING:
    from edpbrl_gym._http.transport import HttpAnswer

__all__ = ["NEEDS", "Attempts", "ChatClient"]

NEEDS = Need("httpx2", "a language model as judge", "judge")

_log = logging.getLogger("edpbrl_gym.oracles.judge")

_SHORTEST_LIMIT = 0.1  # seconds; a shorter wait is only advice on how to retry
_TOLD = 1.0  # seconds of a wait of which the user is told
_TOLD_EVERY = 30.0  # seconds between two such lines
_REJECTED = (400, 413, 415, 422, 501)
_AGAIN = "run this again then: nothing that was answered is asked again"


@dataclass
class Attempts:
    """The attempts to send one question."""

    # called when the server has been reached, before each sending; an exception ends the question
    before_sending: Callable[[], None]
    stop: threading.Event  # event after which no attempt begins
    tries: int = 0  # number of attempts
    sent: int = 0  # number of attempts in which the question was sent
    lost: int = 0  # number of these without a readable answer: they may have been billed
    # for each body, by the start of its sha256: how often the server answered it with an error, in this process or, as
    # the ledger tells, in an earlier one
    refused: dict[str, int] = field(default_factory=dict)
    key: str = ""  # key of the question in the ledger

    def idempotency_key(self, body: bytes) -> str:
        """Key of a request: the same for an attempt without an answer and the next one, but not after an error."""
        refused = self.refused.get(_digest(body), 0)
        return hashlib.sha256(f"{self.key} {refused} ".encode("ascii") + body).hexdigest()

    def count_refusal(self, body: bytes) -> None:
        """Count an error as the answer to a body."""
        name = _digest(body)
        self.refused[name] = self.refused.get(name, 0) + 1


class ChatClient:
    """Sends questions, and sends them again after temporary errors, when the server wants it.

    Raises:
        ModuleNotFoundError: The extra ``judge`` is not installed.
        ValueError: The environment lacks a required key, or has one that is not usable; or the address can't be used.
    """

    def __init__(self, settings: JudgeSettings) -> None:
        check_installed(NEEDS)
        from edpbrl_gym._http.transport import Poster, is_loopback

        self.settings = settings
        self.last_error = ""  # what the server said last of a request that it did not take, "" if nothing
        account = key_headers(settings.key_variable, settings.address)
        self._secrets = tuple(value.removeprefix("Bearer ") for value in account.values())
        headers = {"User-Agent": "edpbrl-gym", "Accept": "application/json", **account}
        self._poster = Poster(settings.chat_address, headers, settings.timeout)
        name = settings.limit_parameter
        if name == "auto":
            name = "max_completion_tokens" if settings.base_url is None else "max_tokens"
        self._limit_parameter: str = name
        self._wrong_names: set[str] = set()
        self._answered = 0
        self._told_until = 0.0
        self._lock = threading.Lock()
        if urlsplit(settings.address).scheme == "http" and not is_loopback(settings.address):
            key = f" and the key in {settings.key_variable}" if settings.key_variable else ""
            warnings.warn(
                f"Questions{key} go to {settings.address} without encryption, readable by every machine on the way; "
                "use https, or a tunnel to this machine",
                stacklevel=3,
            )

    def close(self) -> None:
        """Close the connections."""
        self._poster.close()

    def ask(
        self,
        messages: list[dict[str, Any]],
        response_format: dict[str, Any] | None,
        attempts: Attempts,
        probing: bool = False,
    ) -> Reply:
        """Ask one question; blocks until the answer arrives, all retries are used up or the run stops.

        A limit that the server announces is waited for. It counts as a retry only where the whole wait has passed and
        no question was answered in the meantime. While it is ``probing``, whether the server takes a schema, that is
        "rejected" by 501 and by a repeated 500, too.

        Raises:
            ConnectionError: No question would succeed.
        """
        settings = self.settings
        private = (*self._secrets, settings.style, *_texts(messages))
        retries, waited, answered = 0, 0.0, self._answered
        while True:
            request: dict[str, Any] = {"model": settings.model, "messages": messages}
            request[self._limit_parameter] = settings.max_answer_tokens
            if settings.temperature is not None:
                request["temperature"] = settings.temperature
            if response_format is not None:
                request["response_format"] = response_format
            body = json.dumps(request).encode("ascii")
            attempts.tries += 1
            answer, reply = self._attempt(body, attempts, private)
            announced = None
            wait: float | None = backoff(retries)
            if answer is not None:
                if answer.status < 400:
                    return reply
                error = read_error(answer.status, answer.body)
                self.last_error = error.shown(private)
                if self._renamed(error, request):
                    continue
                on_trial = probing and response_format is not None
                is_repeated = retries >= min(1, settings.max_retries)
                reply = self._refused(error, request, private, on_trial=on_trial)
                if on_trial and error.status == 500 and (error.blames_schema or is_repeated):
                    return Reply("rejected", status=reply.status)
                wait = wait_before_next(answer, retries) if reply.kind == "failed" else None
                announced = announced_limit(answer, error) if error.status == 429 else None
            if wait is None:
                return reply
            counts = True
            if announced is not None and announced >= _SHORTEST_LIMIT and settings.max_retries:
                self._wait_for_limit(announced, waited, reply.status)
                waited += wait
                counts = announced <= LONGEST_WAIT and self._answered == answered
            if counts and retries == settings.max_retries:
                return reply
            retries += counts
            answered = self._answered
            if attempts.stop.wait(wait):
                return Reply("stopped", status="stopped")

    def _attempt(self, body: bytes, attempts: Attempts, private: tuple[str, ...]) -> tuple[HttpAnswer | None, Reply]:
        """The answer to one attempt, None if none came; and the reply, unless the answer is an error."""
        from edpbrl_gym._http.transport import MAX_BYTES, NoAnswerError

        def before_sending() -> None:
            attempts.before_sending()
            attempts.sent += 1

        try:
            answer = self._poster.post(body, before_sending, {"Idempotency-Key": attempts.idempotency_key(body)})
        except NoAnswerError as error:
            if error.final:
                raise ConnectionError(
                    f"Expected {self.settings.address} to prove its identity, it has {error.status}; check the "
                    "address, or name the file of the certificates to trust in the environment variable SSL_CERT_FILE"
                ) from None
            attempts.lost += error.sent
            self.last_error = ""
            _log.debug("attempt %d: %s", attempts.tries, error.status)
            return None, Reply("failed", status=error.status)
        _log.debug("attempt %d: answered %d", attempts.tries, answer.status)
        if 300 <= answer.status < 400:
            attempts.count_refusal(body)
            raise ConnectionError(
                f"Expected {self.settings.address} to answer questions itself, it redirects elsewhere "
                f"({answer.status}); questions and keys go to no other address than base_url, so set that to the "
                "server's real address"
            )
        if answer.status >= 400:
            attempts.count_refusal(body)
            return answer, Reply("failed")
        if answer.body is None:
            problem = f"a body above {MAX_BYTES} bytes or packed in a way not asked for"
            reply = Reply("failed", status=f"{answer.status}, but {problem}")
        else:
            reply = read_completion(answer.body, answer.status)
            self.last_error = ""
            status = error_of_success(answer.body)
            if status is not None:
                self.last_error = read_error(answer.status, answer.body).shown(private)
            if status:
                attempts.count_refusal(body)
                return replace(answer, status=status), Reply("failed")
        self._answered += 1
        attempts.lost += reply.kind == "failed"
        return answer, reply

    def _refused(
        self, error: JudgeError, request: Mapping[str, Any], private: tuple[str, ...], *, on_trial: bool
    ) -> Reply:
        """The reply for an error; raises if no question would be answered, except for a schema that is on trial."""
        settings, status = self.settings, error.status
        if error.no_quota:
            raise ConnectionError(
                f"Expected the account at {settings.address} to have something left, it answered {status}; add credit "
                f"or raise the limit of the account there, and {_AGAIN}{self._said()}"
            )
        if access := _access(settings, status):
            raise ConnectionError(access + self._said())
        remedy = "" if on_trial and error.blames_schema else error.remedy(settings, request)
        if remedy:
            raise ConnectionError(
                f"Expected {settings.address} to take this request, it answered {status}; {remedy}{self._said()}"
            )
        if error.filtered:
            return Reply("refused", usage=Usage(), status=f"{status} content filter")
        return Reply("rejected" if status in _REJECTED else "failed", status=error.words(private))

    def _renamed(self, error: JudgeError, request: Mapping[str, Any]) -> bool:
        """Whether the server wants the limit on tokens under its other name, which is used from now on."""
        if self.settings.limit_parameter != "auto":
            return False
        (used,) = (name for name in LIMIT_PARAMETERS if name in request)
        if not error.wrong_name(used):
            return False
        with self._lock:
            self._wrong_names.add(used)
            left = [name for name in LIMIT_PARAMETERS if name not in self._wrong_names]
            if not left:
                return False
            if self._limit_parameter != left[0]:
                _log.info("the server takes no %s; the limit on tokens is sent as %s", used, left[0])
            self._limit_parameter = left[0]
        return True

    def _wait_for_limit(self, announced: float, waited: float, status: str) -> None:
        """Tell the user of a limit that is being waited for; raise if it lasts too long."""
        settings = self.settings
        if waited + announced > settings.max_wait:
            raise ConnectionError(
                f"Expected {settings.address} to take questions again within {in_words(settings.max_wait)} "
                f"(max_wait, --max-wait), its limit ({status}{self._said()}) lasts for another "
                f"{in_words(announced)}; {_AGAIN}"
            )
        with self._lock:
            now = time.monotonic()
            if announced < _TOLD or now < self._told_until:
                return
            self._told_until = now + max(announced, _TOLD_EVERY)
        _log.warning(
            "%s has a limit (%s%s): waiting for another %s, and never longer than %s in all (max_wait); Ctrl-C stops, "
            "and nothing that was answered is asked again",
            settings.address, status, self._said(), in_words(announced), in_words(settings.max_wait),
        )  # fmt: skip

    def _said(self) -> str:
        return f"; the server says: {self.last_error}" if self.last_error else ""


def _access(settings: JudgeSettings, status: int) -> str:
    if status == 404:
        return (
            f"Expected {settings.address} to serve the model {settings.model!r}, it answered 404; check base_url "
            "(it usually ends with /v1) and the name of the model"
        )
    if status not in (401, 403):
        return ""
    if settings.key_variable is None:
        return (
            f"Expected {settings.address} to need no key, it answered {status}; put its key into an environment "
            "variable and name that by api_key_variable (--api-key-variable)"
        )
    return (
        f"Expected {settings.address} to take the key in the environment variable {settings.key_variable}, it "
        f"answered {status}; check the key and what it may use"
    )


def _texts(messages: list[dict[str, Any]]) -> list[str]:
    """The texts of the question, without the instructions of the first message."""
    texts = []
    for message in messages[1:]:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        for part in parts:
            texts += str(part.get("text") or "").splitlines()
    return texts


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]
