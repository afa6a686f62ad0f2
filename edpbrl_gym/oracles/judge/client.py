"""One question to an OpenAI-compatible chat endpoint: keys, attempts, replies."""

from __future__ import annotations

import email.utils
import hashlib
import json
import logging
import math
import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from edpbrl_gym.oracles.judge.questions import Usage
from edpbrl_gym.oracles.judge.settings import OPENAI_KEY, JudgeSettings
from edpbrl_gym.oracles.judge.transport import MAX_BYTES, HttpAnswer, NoAnswerError, Poster, is_loopback

__all__ = ["Attempts", "ChatClient", "Reply"]

_log = logging.getLogger("edpbrl_gym.oracles.judge")

# those of the protocol; other values may be arbitrary text of the server, which is not shown
_FINISHES = ("stop", "length", "tool_calls", "function_call")
_LONGEST_WAIT = 120.0  # seconds, whatever Retry-After says
_LONGEST_NAME = 200  # characters of a model's name
_LARGEST_COUNT = 2**31  # tokens; larger numbers are not counts


@dataclass(frozen=True)
class Reply:
    """The result of sending one question.

    Attributes:
        kind: "text" (the model wrote something), "refused" (the model or the server's filter declined), "rejected" (the
            server does not accept the request: 400, 413, 422), "failed" (no answer after all retries), "stopped" (not
            sent again because the run stops).
        text: Text of the model.
        usage: Tokens reported by the server; None if it reports none.
        status: HTTP status, or the name of the error; never a message of the server, which may contain the prompt.
        model: Name of the model reported by the server, up to 200 characters.
    """

    kind: Literal["text", "refused", "rejected", "failed", "stopped"]
    text: str = ""
    usage: Usage | None = None
    status: str = ""
    model: str = ""


@dataclass
class Attempts:
    """The attempts to send one question.

    Attributes:
        before_sending: Callback, called when the server has been reached and right before each sending; an exception
            ends the question.
        stop: Event after which no attempt begins.
        tries: Number of attempts.
        sent: Number of attempts in which the question was sent.
        lost: Number of these without a readable answer (a timeout, a lost connection, a truncated body): they may have
            been billed.
        refused: Number of these that the server answered with an error.
        key: Key of the question in the ledger.
    """

    before_sending: Callable[[], None]
    stop: threading.Event
    tries: int = 0
    sent: int = 0
    lost: int = 0
    refused: int = 0
    key: str = ""

    def idempotency_key(self, body: bytes) -> str:
        """Key of a request: the same for an attempt without an answer and the next one, also of another process.

        An error is an answer: a server may repeat it for its key, so the attempt after it has another one.
        """
        return hashlib.sha256(f"{self.key} {self.refused} ".encode("ascii") + body).hexdigest()

    @property
    def retries(self) -> int:
        """Number of attempts after the first."""
        return max(0, self.tries - 1)


class ChatClient:
    """Sends questions, and sends them again after temporary errors, as the server's Retry-After says.

    Args:
        settings: Endpoint, model, timeout, retries. The key is read from the environment here and not stored anywhere
            else.

    Raises:
        ValueError: The environment lacks a required key, or has one that is not usable.
    """

    def __init__(self, settings: JudgeSettings) -> None:
        self.settings = settings
        headers = {"User-Agent": "edpbrl-gym", "Accept": "application/json", **_credentials(settings)}
        address = settings.address.rstrip("/") + "/chat/completions"
        self._poster = Poster(address, headers, settings.timeout)
        if urlsplit(address).scheme == "http" and not is_loopback(address):
            key = f" and the key in {settings.key_variable}" if settings.key_variable else ""
            warnings.warn(
                f"Questions{key} go to {settings.address} without encryption, readable by every machine on the way; "
                "use https, or a tunnel to this machine",
                stacklevel=3,
            )

    def close(self) -> None:
        """Close the connections."""
        self._poster.close()

    def ask(self, messages: list[dict[str, Any]], response_format: dict[str, Any] | None, attempts: Attempts) -> Reply:
        """Ask one question; blocks until the answer arrives, all retries are used up or the run stops.

        Args:
            messages: Chat messages.
            response_format: JSON schema of the answer, or None.
            attempts: Record of the attempts, updated during the call.

        Raises:
            ConnectionError: The server rejects the key, does not have the model or address, or redirects, so that no
                question would succeed.
        """
        settings = self.settings
        request: dict[str, Any] = {"model": settings.model, "messages": messages}
        request[self._limit_parameter] = settings.max_answer_tokens
        if settings.temperature is not None:
            request["temperature"] = settings.temperature
        if response_format is not None:
            request["response_format"] = response_format
        body = json.dumps(request).encode("ascii")
        for number in range(settings.max_retries + 1):
            attempts.tries += 1
            reply, wait = self._attempt(body, attempts, number)
            if wait is None or number == settings.max_retries:
                break
            if attempts.stop.wait(wait):
                return Reply("stopped", status="stopped")
        return reply

    def _attempt(self, body: bytes, attempts: Attempts, number: int) -> tuple[Reply, float | None]:
        """The reply to one attempt, and the seconds to wait before another; None if another is pointless."""

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
            _log.debug("attempt %d: %s", attempts.tries, error.status)
            return Reply("failed", status=error.status), _backoff(number)
        _log.debug("attempt %d: answered %d", attempts.tries, answer.status)
        attempts.refused += answer.status >= 400
        if answer.status in (401, 403, 404) or 300 <= answer.status < 400:
            raise ConnectionError(self._refusal(answer.status))
        if answer.status >= 400:
            reply = _from_status(answer)
            return reply, _wait(answer, number) if reply.kind == "failed" else None
        reply = _reply(answer)
        attempts.lost += reply.kind == "failed"
        return reply, None

    @property
    def _limit_parameter(self) -> str:
        if self.settings.limit_parameter != "auto":
            return self.settings.limit_parameter
        return "max_completion_tokens" if self.settings.base_url is None else "max_tokens"

    def _refusal(self, status: int) -> str:
        settings = self.settings
        if status == 404:
            return (
                f"Expected {settings.address} to serve the model {settings.model!r}, it answered 404; check base_url "
                "(it usually ends with /v1) and the name of the model"
            )
        if status < 400:
            return (
                f"Expected {settings.address} to answer questions itself, it redirects elsewhere ({status}); questions "
                "and keys go to no other address than base_url, so set that to the server's real address"
            )
        if settings.key_variable is None:
            return (
                f"Expected {settings.address} to need no key, it answered {status}; put its key into an environment "
                "variable and name that by api_key_variable (--api-key-variable)"
            )
        return (
            f"Expected {settings.address} to take the key in the environment variable {settings.key_variable}, it "
            f"answered {status}; check the key and what it may use"
        )


def _credentials(settings: JudgeSettings) -> dict[str, str]:
    """The headers of the account; none if no key is to be sent."""
    variable = settings.key_variable
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ValueError(
            f"Expected the key of the endpoint in the environment variable {variable}, got none; set it, or name an "
            "endpoint that needs none by base_url"
        )
    headers = {"Authorization": f"Bearer {key}"}
    if variable == OPENAI_KEY:  # these variables belong to the same account
        for header, name in (("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID")):
            if os.environ.get(name, "").strip():
                headers[header] = os.environ[name].strip()
    for value in headers.values():
        if not (value.isascii() and value.isprintable()):
            raise ValueError(
                f"Expected letters that a key can have in the environment variable {variable} (and OPENAI_ORG_ID, "
                "OPENAI_PROJECT_ID), got others; copy it again"
            )
    return headers


def _backoff(number: int) -> float:
    """Seconds to wait after a number of retries: 0.5 to 8, doubling, reduced by up to a quarter at random."""
    return min(0.5 * 2.0 ** min(number, 10), 8.0) * (1 - 0.25 * random.random())


def _wait(answer: HttpAnswer, number: int) -> float | None:
    """Seconds to wait before sending a rejected request again; None if that is pointless."""
    advised = answer.headers.get("x-should-retry")
    is_temporary = answer.status in (408, 409, 429) or answer.status >= 500
    if not (is_temporary if advised not in ("true", "false") else advised == "true"):
        return None
    retry_after = _retry_after(answer.headers)
    return _backoff(number) if retry_after is None or not retry_after > 0 else min(retry_after, _LONGEST_WAIT)


def _retry_after(headers: Mapping[str, str] | Any) -> float | None:
    for header, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(header, "")) * unit
        except ValueError:
            continue
        return seconds if math.isfinite(seconds) else None
    try:
        return email.utils.parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None


def _json(body: bytes | None) -> Any:
    """The JSON of a body; None if it can't be parsed."""
    try:
        return None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return None


def _from_status(answer: HttpAnswer) -> Reply:
    """The reply for an error status (400 or above)."""
    status, content = str(answer.status), _json(answer.body)
    error = content.get("error", content) if isinstance(content, dict) else None
    if isinstance(error, dict) and error.get("code") in ("content_filter", "content_policy_violation"):
        return Reply("refused", usage=Usage(), status=f"{status} content filter")
    if answer.status in (400, 413, 415, 422):
        return Reply("rejected", status=status)
    return Reply("failed", status=status)


def _reply(answer: HttpAnswer) -> Reply:
    """The reply from an answer, whose body may be anything."""
    content = _json(answer.body)
    if not isinstance(content, dict):
        large = answer.body is None
        problem = f"a body above {MAX_BYTES} bytes or packed in a way not asked for" if large else "no JSON to be read"
        return Reply("failed", status=f"{answer.status}, but {problem}")
    choices = content.get("choices")
    if not isinstance(choices, list):  # truncated, or not a chat endpoint
        return Reply("failed", status=f"{answer.status}, but no chat completion")
    model = content.get("model")
    fields: dict[str, Any] = {"model": model[:_LONGEST_NAME] if isinstance(model, str) else ""}
    fields["usage"] = _usage(content.get("usage"))
    if not choices:
        return Reply("text", status="no choices in the answer", **fields)
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message, finish = choice.get("message"), choice.get("finish_reason")
    message = message if isinstance(message, dict) else {}
    if message.get("refusal") or finish == "content_filter":
        return Reply("refused", status="content_filter" if finish == "content_filter" else "refusal", **fields)
    text = message.get("content")
    status = finish if finish in _FINISHES else "an unknown finish reason"
    return Reply("text", text if isinstance(text, str) else "", status=status, **fields)


def _usage(reported: Any) -> Usage | None:
    """Tokens reported by the server; None if they can't be counts."""
    counts = (
        [reported.get(name) for name in ("prompt_tokens", "completion_tokens")]
        if isinstance(reported, dict)
        else [None]
    )
    if not all(type(count) is int and 0 <= count < _LARGEST_COUNT for count in counts):
        return None
    return Usage(*counts)
