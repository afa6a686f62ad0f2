"""The only place that knows HTTP: one question to a chat endpoint, through the openai package."""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from edpbrl_gym.oracles.judge.questions import Usage
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = ["Attempts", "ChatClient", "Reply", "import_openai"]

# those of the protocol; anything else may be text of the server's own, which is not shown
_FINISHES = ("stop", "length", "tool_calls", "function_call")
_INSTALL = "pip install 'edpbrl-gym[judge]'"


def import_openai() -> Any:
    """The openai package.

    Raises:
        ModuleNotFoundError: It isn't installed; the message says how to install it.
    """
    try:
        import openai
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Expected the package 'openai' for the judge, got no such package; run: {_INSTALL}", name="openai"
        ) from error
    return openai


@dataclass(frozen=True)
class Reply:
    """What came of sending one question.

    Attributes:
        kind: "text" (the model wrote something), "refused" (it, or the server's filter, declined), "rejected" (the
            server takes no such request: 400, 413, 422), "failed" (no answer after all retries), "stopped" (not sent
            to the end: the run stops or the budget has no room for a retry).
        text: what the model wrote.
        usage: tokens as the server reports them; None where it does not.
        status: HTTP status, or the name of what went wrong; never a message of the server, which may hold the prompt.
        model: name of the model as the server gives it.
    """

    kind: Literal["text", "refused", "rejected", "failed", "stopped"]
    text: str = ""
    usage: Usage | None = None
    status: str = ""
    model: str = ""


@dataclass
class Attempts:
    """How often one question went out, told by hooks in the HTTP client.

    Attributes:
        before_sending: called before every sending, with whether the one before got no answer; an exception ends the
            question.
        sent: how often it went out.
        lost: how many of these got no answer that can be read (a timeout, a lost connection, a body cut off): they may
            have been billed.
        sent_at: when it went out last (``time.monotonic``); None while nothing is under way.
        ready: whether what came of it is there, and only has to be kept.
    """

    before_sending: Callable[[bool], None]
    sent: int = 0
    lost: int = 0
    sent_at: float | None = None
    ready: bool = False
    ended: BaseException | None = field(default=None, repr=False)

    @property
    def retries(self) -> int:
        """How often it was sent again."""
        return max(0, self.sent - 1)


class ChatClient:
    """Sends questions with the SDK's own retries, which wait as long as the server's Retry-After says.

    Args:
        settings: Endpoint, model, timeout, retries. The key is read from the environment here and is not kept anywhere
            else.

    Raises:
        ModuleNotFoundError: The extra ``judge`` is not installed.
        ValueError: No key in the environment for OpenAI's own endpoint.
    """

    def __init__(self, settings: JudgeSettings) -> None:
        self._openai = import_openai()
        self.settings = settings
        self._here = threading.local()
        key = os.environ.get(settings.api_key_variable, "")
        if not key and settings.base_url is None:
            raise ValueError(
                f"Expected the key of the endpoint in the environment variable {settings.api_key_variable}, got none; "
                f"set it, or name an endpoint that needs none by base_url"
            )
        # a class of the SDK's own kind, since it sends anything else again
        self._stop_type: type[Exception] = type("_Stop", (self._openai.OpenAIError,), {})
        http = self._openai.DefaultHttpxClient(
            event_hooks={"request": [self._on_request], "response": [self._on_response]},
            trust_env=not _is_loopback(settings.address),  # a proxy does not lead back to this machine
        )
        self._client = self._openai.OpenAI(
            api_key=key or "no-key",
            base_url=settings.address,
            timeout=settings.timeout,
            max_retries=settings.max_retries,
            http_client=http,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, messages: list[dict[str, Any]], response_format: dict[str, Any] | None, attempts: Attempts) -> Reply:
        """Put one question; blocks until the answer is there or all retries are used up.

        Args:
            messages: Chat messages.
            response_format: The JSON schema; None asks without.
            attempts: Filled in while the question is under way.

        Raises:
            ConnectionError: The server refuses this key, or knows no such model or address: no question would succeed.
        """
        settings, openai = self.settings, self._openai
        request: dict[str, Any] = {"model": settings.model, "messages": messages}
        request[self._limit_parameter] = settings.max_answer_tokens
        if settings.temperature is not None:
            request["temperature"] = settings.temperature
        if response_format is not None:
            request["response_format"] = response_format
        self._here.attempts = attempts
        attempts.ready = False
        try:
            reply = _read(self._client.chat.completions.create(**request))
            attempts.lost += reply.kind == "failed"
            return reply
        except self._stop_type:
            return Reply("stopped", status=type(attempts.ended).__name__)
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
            raise ConnectionError(self._refusal(error.status_code)) from None
        except openai.APIStatusError as error:
            return _from_status(error)
        except openai.APIConnectionError as error:  # a timeout is one
            attempts.lost += attempts.sent_at is not None
            return Reply("failed", status=type(error.__cause__ or error).__name__)
        except (openai.OpenAIError, ValueError) as error:  # an answer that nobody can read
            attempts.lost += 1
            return Reply("failed", status=type(error).__name__)
        finally:
            self._here.attempts = None
            attempts.ready = True  # first: an answer that is there must never look like a question that waits
            attempts.sent_at = None

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
        return (
            f"Expected {settings.address} to take the key in the environment variable {settings.api_key_variable}, it "
            f"answered {status}; check the key and what it may use"
        )

    def _on_request(self, _request: Any) -> None:
        attempts: Attempts | None = getattr(self._here, "attempts", None)
        if attempts is None:
            return
        lost = attempts.sent_at is not None
        attempts.lost += lost
        # under way before it is asked whether the run stops: a stop after that waits for the answer
        attempts.sent_at = time.monotonic()
        try:
            attempts.before_sending(lost)
        except Exception as error:
            attempts.sent_at = None
            attempts.ended = error
            raise self._stop_type("stopped") from None
        attempts.sent += 1

    def _on_response(self, response: Any) -> None:
        attempts: Attempts | None = getattr(self._here, "attempts", None)
        if attempts is not None and response.status_code >= 400:
            attempts.sent_at = None  # answered, and not billed


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_status(error: Any) -> Reply:
    """A reply for a status that the SDK does not send again, or sent again in vain."""
    status = str(error.status_code)
    if getattr(error, "code", None) in ("content_filter", "content_policy_violation"):
        return Reply("refused", usage=Usage(), status=f"{status} content filter")
    if error.status_code in (400, 413, 415, 422):
        return Reply("rejected", status=status)
    return Reply("failed", status=status)


def _read(completion: Any) -> Reply:
    """A reply from what the SDK made of the server's answer, which may be anything."""
    usage = getattr(completion, "usage", None)
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
    read, written = counts
    reported = None
    if isinstance(read, int) and isinstance(written, int) and min(read, written) >= 0:
        reported = Usage(read, written)
    model = getattr(completion, "model", None)
    model = model if isinstance(model, str) else ""
    choices = getattr(completion, "choices", None)
    if not isinstance(choices, list):  # cut off on the way, or no chat endpoint at all
        return Reply("failed", status="200, but no chat completion")
    if not choices:
        return Reply("text", usage=reported, status="no choices in the answer", model=model)
    message, finish = getattr(choices[0], "message", None), getattr(choices[0], "finish_reason", None)
    if getattr(message, "refusal", None) or finish == "content_filter":
        status = "content_filter" if finish == "content_filter" else "refusal"
        return Reply("refused", usage=reported, status=status, model=model)
    text = getattr(message, "content", None)
    status = finish if finish in _FINISHES else "an unknown finish reason"
    return Reply("text", text if isinstance(text, str) else "", reported, status, model)
