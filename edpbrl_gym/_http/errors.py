"""What a server says in place of an answer.

Servers nest errors each in their own way, some of them as JSON in a string. Messages may repeat the request, so what
they share with the key and the texts of the request is not shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ServerError", "error_of_success", "parse_json", "read_error"]

_LONGEST = 200  # characters of a message that are shown
_RUN = 8  # characters in a row that a message may not share with what is private
_HIDDEN = "***"
_NAME = re.compile(r"[A-Za-z][\w.\-\[\]]{0,63}")
_NESTED = ("error", "detail", "message", "metadata", "raw", "cause", "body", "details")
_NO_QUOTA = re.compile(
    r"insufficient[ _](?:quota|user_quota|balance|credits?|funds)|billing_(?:hard_limit_reached|not_active)|"
    r"account_deactivated|credit balance is too low|requires more credits|hard limit has been reached",
    re.IGNORECASE,
)
_FILTERS = {"content_filter", "content_policy_violation", "contentfilter", "moderation_blocked"}


@dataclass(frozen=True)
class ServerError:
    """The error in the body of an answer."""

    status: int
    code: str = ""  # the server's word for the error, such as "unsupported_value"; "" if there is none
    param: str = ""  # the parameter that it names, such as "temperature"; "" if there is none
    message: str = ""  # message of the server in one line, without control characters; it may repeat the request
    types: frozenset[str] = frozenset()  # all words for the error, in lower case
    headers: Mapping[str, str] = field(default_factory=dict)  # what the body repeats of headers

    @property
    def filtered(self) -> bool:
        """Whether a content filter has declined the request."""
        return bool(self.types & _FILTERS)

    @property
    def no_quota(self) -> bool:
        """Whether the account can ask nothing more before somebody pays; a limit on the rate is no such error."""
        return any(map(_NO_QUOTA.fullmatch, self.types)) or (
            self.status in (400, 402, 403) and bool(_NO_QUOTA.search(self.message))
        )

    def shown(self, private: Iterable[str]) -> str:
        """Code, parameter and message as they may be shown: short, without private texts of the request and keys."""
        hidden = [text for text in private if text.strip()]
        words = [word for word in (self.code, self.param) if word and _masked(word, hidden) == word]
        message = _masked(self.message, hidden)
        if len(message) > _LONGEST:
            message = message[: _LONGEST - 3].rstrip() + "..."
        return ", ".join(words) + (": " if words and message else "") + message

    def words(self, private: Iterable[str]) -> str:
        """Status and code, for records."""
        code = self.code if self.code and _masked(self.code, list(private)) == self.code else ""
        return f"{self.status} {code}".strip()


def parse_json(body: bytes | None) -> Any:
    """The JSON of a body; None if it can't be parsed."""
    try:
        return None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return None


def read_error(status: int, body: bytes | None, named: Callable[[str], str] = lambda message: "") -> ServerError:
    """The error that a body tells of, which may be anything; ``named`` finds a parameter in a message."""
    content = parse_json(body)
    layers = list(_layers(content))
    types: list[str] = []
    params: list[str] = []
    messages: list[str] = []
    for layer in layers:
        types += [str(one) for name in ("code", "type", "status", "reason") if _is_name(one := layer.get(name))]
        param, place = layer.get("param"), layer.get("loc")
        if isinstance(place, list) and place:  # of pydantic: ["body", "temperature"]
            param = place[-1]
        params += [str(param)] if _is_name(param) else []
        messages += [text for name in ("message", "msg", "detail", "error", "errors", "raw")
                     if isinstance(text := layer.get(name), str) and not _is_json(text)]  # fmt: skip
    if not layers and body:
        messages = [body[:2000].decode("utf-8", "replace")] if not body.lstrip().startswith((b"<", b"{", b"[")) else []
    message = _one_line(messages[-1] if messages else "")
    codes = [str(layer["code"]) for layer in layers if _is_name(layer.get("code"))]
    return ServerError(
        status,
        code=codes[-1] if codes else "",
        param=params[-1] if params else named(message),
        message=message,
        types=frozenset(one.lower() for one in types),
        headers=_headers(layers),
    )


def error_of_success(body: bytes) -> int | None:
    """Status of an error that comes as a success, as gateways send it: 0 if it has none; None if it is no error."""
    content = parse_json(body)
    error = content.get("error") if isinstance(content, dict) and not content.get("choices") else None
    if not error:
        return None
    code = str(error.get("code")) if isinstance(error, dict) else ""
    return int(code) if re.fullmatch("[45][0-9]{2}", code) else 0


def _layers(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """The objects of an error, from the outermost to the innermost."""
    if isinstance(value, str) and _is_json(value):
        value = parse_json(value.encode())
    for one in value[:4] if isinstance(value, list) else [value]:
        if isinstance(one, dict) and depth < 6:
            yield one
            for name in _NESTED:
                yield from _layers(one.get(name), depth + 1)


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[") and isinstance(parse_json(text.encode("utf-8", "replace")), (dict, list))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and value.lower() not in ("none", "null")


def _headers(layers: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Headers that a body repeats, and the wait of Google's RetryInfo."""
    found: dict[str, str] = {}
    for layer in layers:
        if isinstance(layer.get("headers"), dict):
            found |= {str(name): str(value) for name, value in layer["headers"].items()}
        if isinstance(layer.get("retryDelay"), str):
            found["retry-after"] = layer["retryDelay"]
    return found


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text[:2000]).split())


def _masked(text: str, private: Iterable[str]) -> str:
    """The text, with the words hidden that share a run of letters with what is private."""
    small = text.casefold()
    if len(small) != len(text):  # some letters have a longer small form
        small = text.lower() if len(text.lower()) == len(text) else text
    secret = [False] * len(text)
    for one in private:
        hidden = " ".join(one.casefold().split())
        if len(hidden) < _RUN:  # as a whole: "red" is not shown by "required"
            for found in re.finditer(rf"(?<!\w){re.escape(hidden)}(?!\w)", small):
                secret[found.start() : found.end()] = [True] * len(hidden)
        for start in range(len(small) - _RUN + 1):
            if small[start : start + _RUN] in hidden:
                secret[start : start + _RUN] = [True] * _RUN
    pieces: list[str] = []
    for word in re.finditer(r"\S+", text):
        is_secret = any(secret[word.start() : word.end()]) or _HIDDEN in word[0]  # the server has hidden a part itself
        if not (is_secret and pieces and pieces[-1] == _HIDDEN):
            pieces.append(_HIDDEN if is_secret else word[0])
    return " ".join(pieces)
