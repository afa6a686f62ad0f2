"""What a server says in place of an answer: the error, the setting to change, and how long to wait.

Servers nest errors each in their own way, some of them as JSON in a string. Messages may repeat the request, so what
they share with the key and the texts of the question is not shown.
"""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from edpbrl_gym.oracles.judge.reading import parse_json
from edpbrl_gym.oracles.judge.settings import JudgeSettings

__all__ = ["LIMIT_PARAMETERS", "ServerError", "announced_wait", "error_of_success", "read_error"]

LIMIT_PARAMETERS = ("max_tokens", "max_completion_tokens")
_LONGEST = 200  # characters of a message that are shown
_RUN = 8  # characters in a row that a message may not share with what is private
_HIDDEN = "***"
_NAME = re.compile(r"[A-Za-z][\w.\-\[\]]{0,63}")
_NESTED = ("error", "detail", "message", "metadata", "raw", "cause", "body", "details")
_PARAMETERS = ("temperature", *LIMIT_PARAMETERS, "response_format", "json_schema")
# what servers call a parameter, or a value of it, that no question can be sent with
_UNSUPPORTED = re.compile(
    r"unsupported|(?:not|n't|only|no longer) (?:be )?(?:support|permit|allow|accept|recogni)\w*|unrecogni[sz]ed|"
    r"unknown|unexpected|extra (?:inputs|fields|params)|extra_forbidden|deprecated|must be|"
    r"should be|invalid|does not accept",
    re.IGNORECASE,
)
_ONE_QUESTION = re.compile(r"context.?(?:length|window|size)|too long|input tokens|prompt is", re.IGNORECASE)
_NO_QUOTA = re.compile(
    r"insufficient[ _](?:quota|user_quota|balance|credits?|funds)|billing_(?:hard_limit_reached|not_active)|"
    r"account_deactivated|credit balance is too low|requires more credits|hard limit has been reached",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"invalid_api_key|api_key_invalid|api key not valid|incorrect api key", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model_not_found|modelnotfound|deploymentnotfound|unsupported_model|invalid_model", re.IGNORECASE
)
_SCHEMA = re.compile(r"response_format|json_?\s?schema|structured.?output|grammar|guided", re.IGNORECASE)
_NO_PICTURES = re.compile(
    r"(?:image|vision|multi-?modal)\w*.{0,60}(?:not |n't |only |unsupported|at most 0)|"
    r"(?:not |n't |only |unsupported|at most 0).{0,60}(?:image|vision|multi-?modal)",
    re.IGNORECASE | re.DOTALL,
)
_FILTERS = {"content_filter", "content_policy_violation", "contentfilter"}


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
        """Whether a content filter has declined the question."""
        return bool(self.types & _FILTERS)

    @property
    def blames_schema(self) -> bool:
        """Whether it is about the JSON schema of the answer."""
        return self.param in ("response_format", "json_schema") or bool(_SCHEMA.search(self.message))

    @property
    def no_quota(self) -> bool:
        """Whether the account can ask nothing more before somebody pays; a limit on the rate is no such error."""
        return any(map(_NO_QUOTA.fullmatch, self.types)) or (
            self.status in (400, 402, 403) and bool(_NO_QUOTA.search(self.message))
        )

    @property
    def unsupported(self) -> str:
        """The parameter that the server takes from nobody, "" if it names none."""
        if self.status not in (400, 422) or _ONE_QUESTION.search(self.message):
            return ""
        return self.param if self.param in _PARAMETERS else ""

    def wrong_name(self, parameter: str) -> bool:
        """Whether the server wants a limit on tokens under another name than this."""
        other = LIMIT_PARAMETERS[parameter == LIMIT_PARAMETERS[0]]
        is_name = any("unsupported_parameter" in one or "extra_forbidden" in one for one in self.types)
        told = rf"{other}\W{{1,3}}instead|unsupported parameter|extra.(?:inputs|fields|forbidden)|unrecogni|"
        told += "unknown|unexpected|not (?:supported|permitted|allowed)"
        return self.unsupported == parameter and (is_name or bool(re.search(told, self.message, re.IGNORECASE)))

    def remedy(self, settings: JudgeSettings, sent: Mapping[str, Any]) -> str:
        """What to change so that the server takes what is sent; "" if it may take the next question as it is."""
        if self.status not in (400, 403, 422, 500):
            return ""
        if self.types and any(map(_BAD_KEY.fullmatch, self.types)) or _BAD_KEY.search(self.message):
            return f"check the key in the environment variable {settings.key_variable}"
        if any(map(_NO_MODEL.fullmatch, self.types)):
            return "check the name of the model"
        if settings.show == "images" and _NO_PICTURES.search(self.message):
            return "this model reads no pictures: name another, or show texts (show='texts')"
        parameter = self.unsupported
        if parameter not in sent and not (parameter == "json_schema" and "response_format" in sent):
            return ""
        if parameter == "temperature":
            return "leave the temperature to the server: temperature=None (--temperature None)"
        if parameter in LIMIT_PARAMETERS:
            if self.wrong_name(parameter):
                return f"choose another limit_parameter (--limit-parameter) than {parameter}"
            return "change max_answer_tokens (--max-answer-tokens)"
        if self.code:  # a message alone may be about one question's schema
            return "let it answer in words: structured='text' (--structured text), or 'auto'"
        return ""

    def shown(self, private: Iterable[str]) -> str:
        """Code, parameter and message as they may be shown: short, without private texts of the request and keys."""
        hidden = [text for text in private if text.strip()]
        words = [word for word in (self.code, self.param) if word and _masked(word, hidden) == word]
        message = _masked(self.message, hidden)
        if len(message) > _LONGEST:
            message = message[: _LONGEST - 3].rstrip() + "..."
        return ", ".join(words) + (": " if words and message else "") + message

    def words(self, private: Iterable[str]) -> str:
        """Status and code, for the ledger."""
        code = self.code if self.code and _masked(self.code, list(private)) == self.code else ""
        return f"{self.status} {code}".strip()


def read_error(status: int, body: bytes | None) -> ServerError:
    """The error that a body tells of, which may be anything."""
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
        messages += [text for name in ("message", "msg", "detail", "error", "raw")
                     if isinstance(text := layer.get(name), str) and not _is_json(text)]  # fmt: skip
    if not layers and body:
        messages = [body[:2000].decode("utf-8", "replace")] if not body.lstrip().startswith((b"<", b"{", b"[")) else []
    message = _one_line(messages[-1] if messages else "")
    codes = [str(layer["code"]) for layer in layers if _is_name(layer.get("code"))]
    return ServerError(
        status,
        code=codes[-1] if codes else "",
        param=params[-1] if params else _named(message),
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


def _named(message: str) -> str:
    """The first of our parameters in a message that says that something is not supported."""
    if not _UNSUPPORTED.search(message):
        return ""
    places = {name: found.start() for name in _PARAMETERS if (found := re.search(rf"\b{name}\b", message))}
    return min(places, key=places.__getitem__) if places else ""


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


# -- waits -------------------------------------------------------------------------------------------------------------

# No two servers write it alike: seconds (Retry-After: 20, x-ratelimit-reset: 1.5), milliseconds (retry-after-ms), a
# duration (x-ratelimit-reset-tokens: 6m0s), a moment (a Unix time in seconds or milliseconds, an HTTP date, an ISO date
# as in anthropic-ratelimit-requests-reset), a structured field (RateLimit: "default";r=0;t=30, of
# draft-ietf-httpapi-ratelimit-headers), or a sentence of the error ("try again in 1m2s").

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONG_UNITS = {"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "hr": "h", "day": "d"}
_PART = r"(\d+(?:\.\d+)?)\s*(seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|ns|us|µs|ms|s|m|h|d)(?![a-z])\s*"
_DURATION = re.compile(rf"(?:{_PART})+", re.IGNORECASE)
_SENTENCE = re.compile(rf"\b(?:try(?: it)? again|retry(?:ing)?|reset[s]?) (?:in|after) ((?:{_PART})+)", re.IGNORECASE)
_LIMIT = re.compile(r"(rate|token|request|query|quota)s?-?limit")
_EPOCH = 1e9  # a number above is a moment (2001 or later), below it is a number of seconds


def announced_wait(headers: Mapping[str, str] | Any, message: str = "", *, limits: bool = True) -> float | None:
    """Seconds until the server wants to be asked again, above 0; None if it does not say.

    ``Retry-After`` counts if there is one. Otherwise that limit does which is exhausted: of which nothing remains, or
    the smallest part; of limits whose remainder is not told, the one that lasts longest. Where no limit is the reason,
    only Retry-After counts, since some servers tell their ``limits`` with every answer.
    """
    told = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    date = _moment(told.get("date", ""))
    now = time.time() if date is None else date  # a server's clock may be wrong, its own moments are right by it
    for suffix, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        for name, value in sorted(told.items(), key=lambda pair: len(pair[0])):
            if name.endswith(suffix) and (seconds := _seconds(value, now, unit)) is not None and seconds > 0:
                return seconds
    if not limits:
        return None
    resets = [*_resets(told, now), *_structured(told.get("ratelimit", ""))]
    if resets:
        smallest = min(part for part, _ in resets)
        return max(seconds for part, seconds in resets if part == smallest)
    sentence = _SENTENCE.search(message)
    return None if sentence is None else _duration(sentence[1])


def _resets(told: Mapping[str, str], now: float) -> Iterable[tuple[float, float]]:
    """For each limit the part that remains (0 to 1), and the seconds to its reset."""
    for name, value in told.items():
        if "reset" not in name or not _LIMIT.search(name):
            continue
        seconds = _seconds(value, now, 1e-3 if name.endswith("-ms") else 1.0)
        if seconds is None or seconds <= 0:
            continue
        remaining, limit = (_number(told.get(name.replace("reset", word), "")) for word in ("remaining", "limit"))
        if remaining is None:
            remaining, limit = 0.0, None
        yield (remaining / limit if limit else min(remaining, 1.0)), seconds


def _structured(field: str) -> Iterable[tuple[float, float]]:
    """The same for the limits in a RateLimit field, of which each is ``"name";r=REMAINING;t=SECONDS``."""
    for limit in field.split(","):
        values: dict[str, str] = dict(re.findall(r"(?:^|[;\s])(r|t|remaining|reset)=(\d{1,12})", limit))
        seconds = _number(values.get("t", values.get("reset", "")))
        if seconds:
            yield min(_number(values.get("r", values.get("remaining", "0"))) or 0.0, 1.0), seconds


def _seconds(value: str, now: float, unit: float = 1.0) -> float | None:
    """Seconds from now, of a number, a duration or a moment; None for anything else."""
    number = _number(value)
    if number is not None:
        if number < _EPOCH:
            return number * unit
        while number >= 100 * _EPOCH:  # milliseconds, microseconds or nanoseconds
            number /= 1000.0
        return number - now
    seconds = _duration(value)
    if seconds is None:
        moment = _moment(value)
        seconds = None if moment is None else moment - now
    return seconds


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _duration(value: str) -> float | None:
    """Seconds of "1h2m3s", "120ms", "20 seconds"; None for anything else."""
    if not _DURATION.fullmatch(value):
        return None
    total = 0.0
    for number, unit in re.findall(_PART, value, re.IGNORECASE):
        name = unit.lower()
        total += float(number) * _UNITS[name if name in _UNITS else _LONG_UNITS[name.removesuffix("s")]]
    return total if math.isfinite(total) else None


def _moment(value: str) -> float | None:
    """Unix time of an HTTP date or an ISO date; None for anything else."""
    for parse in (email.utils.parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (TypeError, ValueError, OverflowError, IndexError):
            continue
    return None
