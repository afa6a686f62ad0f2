"""Limits of servers: every form in which they say when to come back, and a judge that waits for them."""

from __future__ import annotations

import email.utils
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym._http.transport import HttpAnswer
from edpbrl_gym._http.waits import announced_wait, wait_before_next
from edpbrl_gym.oracles.judge import Judge
from tests.helpers.judge_tools import questions, scripted, settings

NOW = 1_800_000_000
DATE = {"Date": email.utils.formatdate(NOW, usegmt=True)}  # the server's clock, which its moments are told by


def moment(seconds):
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=NOW + seconds)).isoformat()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "1500", "Retry-After": "9"}, 1.5),
        ({"x-ms-retry-after-ms": "250"}, 0.25),
        ({"Retry-After": "30s"}, 30),
        ({"Retry-After": email.utils.formatdate(NOW + 40, usegmt=True)}, 40),
        ({"Retry-After": moment(41)}, 41),
        ({"Retry-After": "0", "x-ratelimit-reset": "3"}, 3),
        ({"x-ratelimit-retry-after": "11"}, 11),
        ({"Retry-After": "7", "x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}, 7),
        ({"x-ratelimit-reset-requests": "1s"}, 1),
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-reset-requests": "120ms"}, 0.12),
        ({"x-ratelimit-reset-requests": "1h2m3s"}, 3723),
        ({"x-ratelimit-reset-requests": "2m59.56s"}, 179.56),
        ({"x-ratelimit-reset-requests": "1d1h"}, 90_000),
        ({"x-ratelimit-reset-requests": "60"}, 60),
        ({"x-ratelimit-reset-requests": " 8.64 "}, 8.64),
        ({"X-RateLimit-Reset": str(NOW + 50)}, 50),
        ({"X-RateLimit-Reset": str((NOW + 50) * 1000)}, 50),
        ({"x-rate-limit-reset": moment(12)}, 12),
        ({"anthropic-ratelimit-requests-reset": moment(13).replace("+00:00", "Z")}, 13),
        ({"ratelimit-reset": "14"}, 14),
        ({"RateLimit": '"default";r=0;t=15'}, 15),
        ({"RateLimit": '"minute";r=0;t=16, "day";r=90;t=40000'}, 16),
        ({"RateLimit": "limit=10, remaining=0, reset=17"}, 17),
        ({"x-tokenlimit-reset": "18"}, 18),
        ({"ratelimitbysize-reset": "19"}, 19),
        ({"llm_provider-x-ratelimit-reset-requests": "21s"}, 21),
        # only of the limit that is exhausted
        (
            {
                "x-ratelimit-remaining-requests": "4999", "x-ratelimit-reset-requests": "12h",
                "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6s",
            },
            6,
        ),
        # the smallest part is left of the tokens: the question needs more of them
        (
            {
                "x-ratelimit-limit-requests": "200", "x-ratelimit-remaining-requests": "150",
                "x-ratelimit-reset-requests": "12h", "x-ratelimit-limit-tokens": "40000",
                "x-ratelimit-remaining-tokens": "50", "x-ratelimit-reset-tokens": "59s",
            },
            59,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": moment(22),
                "anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": moment(33),
            },
            33,
        ),
        ({}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "nan"}, None),
        ({"x-ratelimit-reset": "1e999"}, None),
        ({"x-ratelimit-reset": str(NOW - 5)}, None),
        ({"x-ratelimit-reset": "5 apples"}, None),
        ({"x-ratelimit-remaining": "0"}, None),
        ({"reset": "5"}, None),
    ],
)  # fmt: skip
def test_every_form_of_a_limit_is_read(headers, seconds):
    assert announced_wait(DATE | headers) == (None if seconds is None else pytest.approx(seconds, abs=1e-3))


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Rate limit reached for gpt-4o on tokens per min (TPM). Please try again in 6m0s. Visit the site.", 360),
        ("Please try again in 120ms.", 0.12),
        ("Please retry after 26 seconds.", 26),
        ("try again in 1 minute", 60),
        ("Try it again.", None),
        ("", None),
    ],
)
def test_a_limit_in_a_sentence_counts_where_no_header_tells_it(message, seconds):
    assert announced_wait({}, message) == (None if seconds is None else pytest.approx(seconds))
    assert announced_wait({"Retry-After": "5"}, message) == 5
    assert announced_wait({"x-ratelimit-reset": "5"}, message, limits=False) is None


@given(
    st.dictionaries(st.sampled_from(["retry-after", "x-ratelimit-reset", "ratelimit", "date"]), st.text(max_size=30))
)
def test_headers_may_be_anything(headers):
    seconds = announced_wait(headers, next(iter(headers.values()), ""))
    assert seconds is None or seconds > 0


class Window:
    """A limit of ``number`` answers in ``seconds``, told with the seconds left."""

    def __init__(self, number, seconds):
        self.number, self.seconds, self.refused = number, seconds, 0
        self._lock, self._end, self._left = threading.Lock(), 0.0, 0

    def __call__(self, request, handler):
        with self._lock:
            now = time.monotonic()
            if now >= self._end:
                self._end, self._left = now + self.seconds, self.number
            self._left -= 1
            if self._left >= 0:
                return None
            self.refused += 1
            told = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{self._end - now:.3f}s"}
            return 429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, told


def test_a_limit_is_waited_for_and_told_and_all_questions_are_answered(tmp_path, caplog):
    """Two answers in 1.2 s for six threads with two retries: to be refused while others are answered is no retry."""
    window = Window(2, 1.2)
    with scripted(window) as server:
        chosen = settings(server, max_retries=2, structured="text")
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            assert {verdict.reason for verdict in judge.ask(questions(6))} == {"answered"}
    assert server.requests - 6 == window.refused <= 6 * 3  # each thread waits for the end of the window
    limits = [record.getMessage() for record in caplog.records if "has a limit" in record.getMessage()]
    assert len(limits) == 1 and "429 rate_limit_exceeded" in limits[0] and "slow down" in limits[0]
    assert "never longer than 60 min in all (max_wait); Ctrl-C stops" in limits[0]


def test_a_limit_that_lasts_longer_than_max_wait_ends_the_run_at_once_in_one_line(tmp_path):
    told = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "23h0m"}
    body = {"error": {"message": "Rate limit reached: requests per day", "code": "rate_limit_exceeded"}}
    with scripted(lambda *_: (429, body, told)) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        with pytest.raises(ConnectionError) as caught:
            judge.ask(questions(30))
        assert server.requests == 1 and judge.budget.tokens == 0
    assert str(caught.value) == (
        f"Expected {server.base_url} to take questions again within 60 min (max_wait, --max-wait), its limit "
        "(429 rate_limit_exceeded; the server says: rate_limit_exceeded: Rate limit reached: requests per day) lasts "
        "for another 23 h; run this again then: nothing that was answered is asked again"
    )


def test_a_limit_that_is_never_lifted_uses_up_the_retries(tmp_path):
    with scripted(lambda *_: (429, {}, {"Retry-After": "1"})) as server:
        with Judge(settings(server, max_retries=1), ledger=tmp_path / "l") as judge:
            assert judge.ask(questions(1))[0].reason == "failed" and server.requests == 2
        with Judge(settings(server, max_retries=0), ledger=tmp_path / "m") as judge:
            assert judge.ask(questions(1))[0].reason == "failed" and server.requests == 3
        with Judge(settings(server, max_wait=0.5), ledger=tmp_path / "n") as judge:
            with pytest.raises(ConnectionError, match="lasts for another 1 s"):
                judge.ask(questions(1))


@pytest.mark.parametrize(
    "body",
    [
        [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Resource has been exhausted.",
                    "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "50m"}]}}],
        {"error": {"code": 429, "message": "Rate limit exceeded: free-models-per-min",
                   "metadata": {"headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "in the body"}}}},
        {"error": {"message": "Rate limit reached. Please try again in 50m0s.", "type": "tokens", "code": None}},
    ],
    ids=["Google", "OpenRouter", "sentence"],
)  # fmt: skip
def test_limits_in_a_body_are_read(tmp_path, body):
    if isinstance(body, dict) and "metadata" in body["error"]:
        body["error"]["metadata"]["headers"]["X-RateLimit-Reset"] = str(int((time.time() + 3000) * 1000))
    with scripted(lambda *_: (429, body)) as server:
        with Judge(settings(server, max_wait=100.0), ledger=tmp_path / "l") as judge:
            with pytest.raises(ConnectionError, match="another 50 min"):
                judge.ask(questions(1))


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "3600"}, 120, 120),
        ({"Retry-After": "7"}, 7, 7),
        ({"Retry-After": "Fri, 31 Dec 2999 23:59:59 GMT"}, 120, 120),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0.3, 0.5),
        ({}, 0.3, 0.5),
    ],
)
def test_a_long_wait_is_cut_at_two_minutes_and_one_of_unknown_length_grows(headers, least, most):
    for status in (408, 409, 429, 500, 503):
        assert least <= wait_before_next(HttpAnswer(status, headers, b""), 0) <= most
    usual = {"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-requests": "50m"}  # with every answer of some
    assert wait_before_next(HttpAnswer(500, usual, b""), 0) <= 0.5
    assert wait_before_next(HttpAnswer(418, headers, b""), 0) is None
    assert wait_before_next(HttpAnswer(503, headers | {"x-should-retry": "false"}, b""), 0) is None
    waits = [wait_before_next(HttpAnswer(429, {}, b""), number) for number in range(6)]
    assert sum(waits) > 60 and waits[:4] == sorted(waits[:4])  # most limits are for a minute
    assert sum(wait_before_next(HttpAnswer(503, {}, b""), number) for number in range(6)) < 24
