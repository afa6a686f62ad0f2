"""One question to a chat endpoint that speaks the OpenAI protocol: keys, attempts, and what came back."""

from __future__ import annotations

import email.utils
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

from edpbrl_gym.oracles.judge.posting import MOST_BYTES, NoAnswerError, Posted, Poster, is_loopback
from edpbrl_gym.oracles.judge.questions import Usage
from edpbrl_gym.oracles.judge.settings import OPENAI_KEY, JudgeSettings

__all__ = ["Attempts", "ChatClient", "Reply"]

_log = logging.getLogger("edpbrl_gym.oracles.judge")

# those of the protocol; anything else may be text of the server's own, which is not shown
_FINISHES = ("stop", "length", "tool_calls", "function_call")
_LONGEST_WAIT = 120.0  # seconds, whatever Retry-After says
_LONGEST_NAME = 200  # letters of a model's name
_LARGEST_COUNT = 2**31  # tokens; more is no count


@dataclass(frozen=True)
class Reply:
    """What came of sending one question.

    Attributes:
        kind: "text" (the model wrote something), "refused" (it, or the server's filter, declined), "rejected" (the
            server takes no such request: 400, 413, 422), "failed" (no answer after all retries), "stopped" (not sent
            again: the run stops).
        text: what the model wrote.
        usage: tokens as the server reports them; None where it does not.
        status: HTTP status, or the name of what went wrong; never a message of the server, which may hold the prompt.
        model: name of the model as the server gives it, its first 200 letters.
    """

    kind: Literal["text", "refused", "rejected", "failed", "stopped"]
    text: str = ""
    usage: Usage | None = None
    status: str = ""
    model: str = ""


@dataclass
class Attempts:
    """How often one question was tried.

    Attributes:
        before_sending: called right before every sending, when the server has been reached; an exception ends the
            question.
        stop: no attempt begins once it is set.
        tries: attempts begun.
        sent: how many of these were sent.
        lost: how many of those got no answer that can be read (a timeout, a lost connection, a body cut off): they may
            have been billed.
    """

    before_sending: Callable[[], None]
    stop: threading.Event
    tries: int = 0
    sent: int = 0
    lost: int = 0

    @property
    def retries(self) -> int:
        """How often it was tried again."""
        return max(0, self.tries - 1)


class ChatClient:
    """Sends questions; again after what may pass by itself, waiting as long as the server's Retry-After says.

    Args:
        settings: Endpoint, model, timeout, retries. The key is read from the environment here and is not kept anywhere
            else.

    Raises:
        ValueError: No key in the environment where one is needed, or one that is not usable.
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
        """Put one question; blocks until the answer is there, all retries are used up or the run stops.

        Args:
            messages: Chat messages.
            response_format: The JSON schema; None asks without.
            attempts: Filled in while the question is under way.

        Raises:
            ConnectionError: The server refuses this key, knows no such model or address, or redirects elsewhere: no
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
        """What came of one attempt, and the seconds after which another makes sense; None: it makes none."""

        def before_sending() -> None:
            attempts.before_sending()
            attempts.sent += 1

        try:
            posted = self._poster.post(body, before_sending)
        except NoAnswerError as error:
            if error.final:
                raise ConnectionError(
                    f"Expected {self.settings.address} to be who it says, it has {error.status}; check the address, or "
                    "name the file of the certificates to trust in the environment variable SSL_CERT_FILE"
                ) from None
            attempts.lost += error.sent
            _log.debug("attempt %d: %s", attempts.tries, error.status)
            return Reply("failed", status=error.status), _backoff(number)
        _log.debug("attempt %d: answered %d", attempts.tries, posted.status)
        if posted.status in (401, 403, 404) or 300 <= posted.status < 400:
            raise ConnectionError(self._refusal(posted.status))
        if posted.status >= 400:
            reply = _from_status(posted)
            return reply, _wait(posted, number) if reply.kind == "failed" else None
        reply = _read(posted)
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
                "and keys go to no other address than base_url, so set that to where the server really is"
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
    """The headers that say who asks: none where no key is to be sent."""
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
    if variable == OPENAI_KEY:  # these belong to that account
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
    """Seconds to wait after so many retries: 0.5 to 8, doubling, up to a quarter less so that not all come at once."""
    return min(0.5 * 2.0 ** min(number, 10), 8.0) * (1 - 0.25 * random.random())


def _wait(posted: Posted, number: int) -> float | None:
    """Seconds after which to send again what the server did not take; None where that makes no sense."""
    advised = posted.headers.get("x-should-retry")
    again = posted.status in (408, 409, 429) or posted.status >= 500
    if not (again if advised not in ("true", "false") else advised == "true"):
        return None
    told = _retry_after(posted.headers)
    return _backoff(number) if told is None or not told > 0 else min(told, _LONGEST_WAIT)


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
    """What a body says, None where nobody can read it."""
    try:
        return None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return None


def _from_status(posted: Posted) -> Reply:
    """A reply for a status from 400."""
    status, said = str(posted.status), _json(posted.body)
    error = said.get("error", said) if isinstance(said, dict) else None
    if isinstance(error, dict) and error.get("code") in ("content_filter", "content_policy_violation"):
        return Reply("refused", usage=Usage(), status=f"{status} content filter")
    if posted.status in (400, 413, 415, 422):
        return Reply("rejected", status=status)
    return Reply("failed", status=status)


def _read(posted: Posted) -> Reply:
    """A reply from an answer, which may be anything."""
    said = _json(posted.body)
    if not isinstance(said, dict):
        large = posted.body is None
        what = f"a body above {MOST_BYTES} bytes or packed in a way not asked for" if large else "no JSON to be read"
        return Reply("failed", status=f"{posted.status}, but {what}")
    choices = said.get("choices")
    if not isinstance(choices, list):  # cut off on the way, or no chat endpoint at all
        return Reply("failed", status=f"{posted.status}, but no chat completion")
    model = said.get("model")
    known: dict[str, Any] = {"model": model[:_LONGEST_NAME] if isinstance(model, str) else ""}
    known["usage"] = _usage(said.get("usage"))
    if not choices:
        return Reply("text", status="no choices in the answer", **known)
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message, finish = choice.get("message"), choice.get("finish_reason")
    message = message if isinstance(message, dict) else {}
    if message.get("refusal") or finish == "content_filter":
        return Reply("refused", status="content_filter" if finish == "content_filter" else "refusal", **known)
    text = message.get("content")
    status = finish if finish in _FINISHES else "an unknown finish reason"
    return Reply("text", text if isinstance(text, str) else "", status=status, **known)


def _usage(said: Any) -> Usage | None:
    """Tokens as the server reports them, None for what can't be a count."""
    counts = [said.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(said, dict) else [None]
    if not all(type(count) is int and 0 <= count < _LARGEST_COUNT for count in counts):
        return None
    return Usage(*counts)
