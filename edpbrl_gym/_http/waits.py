"""How long to wait before a request is sent again: what a server announces, else a growing time."""

from __future__ import annotations

import email.utils
import math
import random
import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from edpbrl_gym._http.errors import ServerError, read_error

if TYPE_CHECKING:
    from edpbrl_gym._http.transport import HttpAnswer

__all__ = ["LONGEST_WAIT", "announced_limit", "announced_wait", "backoff", "in_words", "wait_before_next"]

LONGEST_WAIT = 120.0  # seconds, whatever the server says; then it is tried again

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


def backoff(number: int, factor: float = 2.0, longest: float = 8.0) -> float:
    """Seconds to wait after a number of retries: 0.5 to 8, doubling, reduced by up to a quarter at random."""
    return min(0.5 * factor ** min(number, 10), longest) * (1 - 0.25 * random.random())


def wait_before_next(answer: HttpAnswer, number: int) -> float | None:
    """Seconds to wait before sending a rejected request again; None if that is pointless."""
    advised = answer.headers.get("x-should-retry")
    is_temporary = answer.status in (408, 409, 429) or answer.status >= 500
    if not (is_temporary if advised not in ("true", "false") else advised == "true"):
        return None
    announced = announced_limit(answer, read_error(answer.status, answer.body))
    if announced is not None:
        return min(announced, LONGEST_WAIT)
    if answer.status == 429:  # a limit of unknown length, most often of a minute
        return backoff(number, 4.0, 60.0)
    return backoff(number)


def announced_limit(answer: HttpAnswer, error: ServerError) -> float | None:
    """Seconds to wait that the server announces; only with 429 is this about a limit."""
    headers = {**error.headers, **dict(answer.headers.items())}
    return announced_wait(headers, error.message, limits=answer.status == 429)


def in_words(seconds: float) -> str:
    """Seconds as people say them: "45 s", "6 min", "23 h"."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.0f} h"
