"""No key and no text of a study in logs, messages, tracebacks, ledger or settings."""

from __future__ import annotations

import json
import logging
import traceback

import pytest

from edpbrl_gym.oracles.judge import Judge, JudgeQuestion
from tests.helpers.judge_tools import local_judge, settings

KEY = "sk-canary-key-7f3a"
STYLE = "canary style guidance of a private study"
TEXTS = [f"canary candidate {name}" for name in ("one", "two", "three")]
CANARIES = ("canary", "sk-")
FAULTS = {name: 0.12 for name in ("503", "429", "timeout", "broken_body", "truncated", "wrong_label", "empty")}


def asked(number):
    return [JudgeQuestion(texts=[f"{text} {i}" for text in TEXTS], identity=f"{i}") for i in range(number)]


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)


def ask_all(server, folder, **options):
    """What a run leaves: its ledger's text and the traceback of its error, if any."""
    chosen = settings(
        server, style=STYLE, api_key_variable="JUDGE_KEY", timeout=0.5, max_retries=1, concurrency=8, **options
    )
    error = ""
    with Judge(chosen, ledger=folder / "l") as judge:
        try:
            judge.ask(asked(40))
        except ConnectionError:
            error = traceback.format_exc()
        shown = repr(judge) + json.dumps(judge.account())
    return (folder / "l").read_text() + shown + error


@pytest.mark.parametrize("api_key", [KEY, "another", None])
def test_nothing_private_is_logged_or_written(tmp_path, caplog, capfd, key, api_key):
    """With every logger at DEBUG, and a server whose errors repeat what it was sent."""
    for name in (None, "edpbrl_gym"):
        caplog.set_level(logging.DEBUG, logger=name)
    with local_judge(faults=FAULTS, hang=1.0, api_key=api_key) as server:
        left = ask_all(server, tmp_path)
        assert server.requests >= 1
    if api_key == "another":
        assert "JUDGE_KEY" in left and "it answered 401" in left
    out, err = capfd.readouterr()
    assert caplog.records  # something was logged, and caught
    text = caplog.text + out + err + left
    assert not [canary for canary in CANARIES if canary in text.lower()]


def test_our_own_loggers_say_nothing_private_even_at_debug_level(tmp_path, caplog, key):
    caplog.set_level(logging.DEBUG, logger="edpbrl_gym")
    with local_judge(faults=FAULTS, hang=1.0) as server:
        ask_all(server, tmp_path)
    own = [record.getMessage() for record in caplog.records if record.name.startswith("edpbrl_gym")]
    assert own and not any("canary" in message or KEY in message for message in own)


def test_what_a_server_repeats_in_its_headers_is_not_logged(tmp_path, caplog, capfd, key):
    for name in (None, "edpbrl_gym"):
        caplog.set_level(logging.DEBUG, logger=name)
    with local_judge() as server:
        handler = server._server.RequestHandlerClass
        end_headers = handler.end_headers
        handler.end_headers = lambda self: (self.send_header("X-Asked", f"{STYLE} {KEY}"), end_headers(self))
        left = ask_all(server, tmp_path)
    assert caplog.records and server.requests == 40
    text = caplog.text + "".join(capfd.readouterr()) + left
    assert not [canary for canary in CANARIES if canary in text.lower()]
