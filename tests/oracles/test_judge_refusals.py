"""Requests that a server does not take: one clear line with its own words and the setting to change, at once."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.oracles.judge import Judge, JudgeQuestion
from edpbrl_gym.oracles.judge.refusals import read_error
from tests.helpers.judge_tools import STYLE, lines, png, questions, scripted, settings


def openai(message, param=None, code=None, kind="invalid_request_error"):
    """An error as OpenAI writes it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


NO_TEMPERATURE = openai(
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported.",
    "temperature",
    "unsupported_value",
)
NO_MAX_TOKENS = openai(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "max_tokens",
    "unsupported_parameter",
)
NO_QUOTA = openai("You exceeded your current quota, please check.", None, *["insufficient_quota"] * 2)
# server, status, body; then what the one line says
REFUSALS = [
    ("OpenAI, Azure", 400, NO_TEMPERATURE, [
        "it answered 400; leave the temperature to the server: temperature=None (--temperature None)",
        "the server says: unsupported_value, temperature: Unsupported value: 'temperature' does not support 0.0 with"]),
    ("OpenRouter", 400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {
        "raw": json.dumps(NO_TEMPERATURE), "provider_name": "OpenAI"}}, "user_id": "user_1"},
        ["--temperature None", "unsupported_value, temperature: Unsupported value"]),
    ("LiteLLM", 400, {"error": {
        "message": "litellm.UnsupportedParamsError: openai does not support parameters: ['temperature'], for model=o1",
        "type": "None", "param": "None", "code": "400"}}, ["--temperature None", "litellm.UnsupportedParamsError"]),
    ("a gateway", 400, {"error": {"cause": json.dumps(NO_TEMPERATURE, indent=1), "code": 400, "message": "failed"}},
        ["--temperature None", "Only the default (1) value is supported."]),
    ("pydantic", 422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "temperature"],
                                   "msg": "Extra inputs are not permitted", "input": 0.0}]},
        ["--temperature None", "temperature: Extra inputs are not permitted"]),
    ("text-generation-inference", 422, {"error": "Input validation error: `temperature` must be strictly positive",
                                        "error_type": "validation"}, ["--temperature None", "strictly positive"]),
    ("OpenAI, an answer too long", 400, openai(
        "max_tokens is too large: 64. This model supports at most 32 completion tokens, whereas you provided 64.",
        "max_tokens", "invalid_value"),
        ["change max_answer_tokens (--max-answer-tokens)", "invalid_value, max_tokens: max_tokens is too large: 64."]),
    ("OpenAI, no money", 429, NO_QUOTA, [
        "to have something left, it answered 429; add credit or raise the limit of the account there",
        "nothing that was answered is asked again; the server says: insufficient_quota: You exceeded your"]),
    ("DeepSeek, no money", 402, openai("Insufficient Balance", None, "invalid_request_error", "unknown_error"),
        ["add credit", "invalid_request_error: Insufficient Balance"]),
    ("OpenRouter, no money", 402, {"error": {"code": 402, "message": "This request requires more credits"}},
        ["add credit", "the server says: This request requires more credits"]),
    ("Anthropic, no money", 400, openai("Your credit balance is too low to access the API."), ["add credit"]),
    ("one-api, no money", 403, openai("no quota", None, "insufficient_user_quota", "new_api_error"), ["add credit"]),
    ("Google, a wrong key", 400, [{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT",
                                             "details": [{"@type": "x", "reason": "API_KEY_INVALID"}]}}],
        ["it answered 400; check the key", "the server says: API key not valid."]),
    ("OpenAI, no such model", 400, openai("invalid model ID", None, "model_not_found"),
        ["check the name of the model"]),
    ("Ollama, no such model", 404, openai('model "x" not found, try pulling it first', kind="api_error"),
        ["it answered 404; check base_url", 'the server says: model "x" not found, try pulling it first']),
    ("LM Studio, no such model", 404, {"error": "model not found"}, ["the server says: model not found"]),
    ("OpenAI, no such project", 403, openai("Project `p` does not have access to model `m`", None, "model_not_found"),
        ["it answered 403", "model_not_found: Project `p` does not have access to model `m`"]),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "told"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_what_no_question_can_be_sent_with_ends_the_first_in_one_line(tmp_path, status, body, told):
    with scripted(lambda *_: (status, body)) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        with pytest.raises(ConnectionError) as caught:
            judge.ask(questions(30))
        assert server.requests == 1 and judge.budget.questions == judge.budget.tokens == 0
    line = str(caught.value)
    assert line.startswith("Expected ") and "\n" not in line and len(line) < 600
    assert all(words in line for words in told), line


def names(request):
    return {name for name in ("max_tokens", "max_completion_tokens") if name in request}


VLLM = (
    "[{'type': 'extra_forbidden', 'loc': ('body', 'max_tokens'), 'msg': 'Extra inputs are not permitted', 'input': 64}]"
)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, NO_MAX_TOKENS),
        (400, {"object": "error", "message": VLLM, "type": "BadRequestError", "param": None, "code": 400}),
        (400, {"error": {"message": NO_MAX_TOKENS["error"]["message"], "code": "invalid_request_body"}}),
        (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "max_tokens"], "msg": "Extra inputs"}]}),
    ],
    ids=["OpenAI", "vLLM", "Copilot", "pydantic"],
)
@pytest.mark.parametrize("structured", ["auto", "text"])
def test_the_other_name_of_the_limit_on_tokens_is_tried_by_itself(tmp_path, status, body, structured):
    def play(request, handler):
        return (status, body) if "max_tokens" in request else None

    with scripted(play) as server:
        with Judge(settings(server, structured=structured), ledger=tmp_path / "l") as judge:
            assert {verdict.reason for verdict in judge.ask(questions(20))} == {"answered"}
            assert judge.budget.questions == 20 and judge.account()["structured"] != "unknown"
            assert server.requests <= 20 + (1 if structured == "auto" else 8)
        sent = [names(request) for _, _, request in server.seen]
        assert sent.count({"max_completion_tokens"}) == 20 and all(len(one) == 1 for one in sent)
        chosen = settings(server, limit_parameter="max_tokens")
        with Judge(chosen, ledger=tmp_path / "m") as judge:
            with pytest.raises(ConnectionError, match=r"another limit_parameter \(--limit-parameter\) than max_tokens"):
                judge.ask(questions(5))


def test_a_server_that_takes_neither_name_is_asked_twice(tmp_path):
    def play(request, handler):
        (name,) = names(request)
        return 400, openai(f"Unrecognized request argument supplied: {name}", name, "unknown_parameter")

    with scripted(play) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        with pytest.raises(ConnectionError, match="another limit_parameter .* than max_completion_tokens"):
            judge.ask(questions(5))
        assert server.requests == 2


def test_a_question_that_is_too_long_is_no_reason_to_end_the_run(tmp_path):
    """A server that names max_tokens, where one question does not fit with it into the model's context."""
    body = openai(
        "'max_tokens' or 'max_completion_tokens' is too large: 64. This model's maximum context length is 4096 tokens "
        "and your request has 4090 input tokens.",
        "max_tokens",
    )

    def play(request, handler):
        return (400, body) if "number 3" in request["messages"][1]["content"] else None

    with scripted(play) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        reasons = [verdict.reason for verdict in judge.ask(questions(8))]
    assert reasons == ["answered"] * 3 + ["failed"] + ["answered"] * 4


# -- schemas -----------------------------------------------------------------------------------------------------------

SCHEMA_REFUSALS = [
    (400, openai("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.")),
    (400, openai("no", "response_format", "unsupported_parameter")),
    (422, {"detail": [{"type": "literal_error", "loc": ["body", "response_format", "type"], "msg": "Input should"}]}),
    (500, {"error": {"code": 500, "type": "server_error",
                     "message": 'response_format type must be "text" or "json_object", but got: json_schema'}}),
    (500, "Internal Server Error"),
    (501, {"error": {"message": "not implemented"}}),
    (415, {}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), SCHEMA_REFUSALS)
@pytest.mark.parametrize("max_retries", [0, 3])
def test_a_server_that_can_not_do_a_schema_is_asked_for_text(tmp_path, status, body, max_retries):
    def play(request, handler):
        return (status, body) if "response_format" in request else None

    with scripted(play) as server:
        chosen = settings(server, max_retries=max_retries)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            assert {verdict.reason for verdict in judge.ask(questions(10))} == {"answered"}
            assert judge.account()["structured"] == "text"
        again = status == 500 and isinstance(body, str) and max_retries > 0  # it might have been an accident
        assert server.requests == 11 + again and len(lines(tmp_path / "l", "mode")) == 1
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            judge.ask(questions(5, start=50))
        assert server.requests == 16 + again


def test_one_accident_at_the_first_question_is_not_taken_for_a_server_without_schemas(tmp_path):
    seen = []

    def play(request, handler):
        seen.append("response_format" in request)
        return (500, {"error": {"message": "worker died"}}) if len(seen) == 1 else None

    with scripted(play) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        assert {verdict.reason for verdict in judge.ask(questions(5))} == {"answered"}
        assert judge.account()["structured"] == "schema" and all(seen) and server.requests == 6


def test_a_schema_that_was_asked_for_and_is_refused_by_name_ends_the_run(tmp_path):
    body = openai("no", "response_format", "unsupported_parameter")
    with scripted(lambda *_: (400, body)) as server:
        with Judge(settings(server, structured="schema", concurrency=1), ledger=tmp_path / "l") as judge:
            with pytest.raises(ConnectionError, match=r"structured='text' \(--structured text\), or 'auto'"):
                judge.ask(questions(5))
        assert server.requests == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
        (400, "Invalid content type. image_url is only supported by certain models."),
        (400, "m is not a multimodal model"),
        (400, "At most 0 image(s) may be provided in one request."),
    ],
)
def test_a_model_that_reads_no_pictures_ends_the_first_question(tmp_path, status, message):
    pytest.importorskip("PIL")
    asked = [JudgeQuestion(images=[png("red"), png("blue")], identity=f"{number}") for number in range(5)]
    with scripted(lambda *_: (status, openai(message))) as server:
        with Judge(settings(server, show="images"), ledger=tmp_path / "l") as judge:
            with pytest.raises(ConnectionError, match="this model reads no pictures: name another, or show texts"):
                judge.ask(asked)
        assert server.requests == 1


def test_an_error_that_comes_as_a_success_is_one(tmp_path):
    """As gateways send it that have begun to answer; without a status it is an answer that can't be read."""
    body = {"error": {"code": 429, "message": "Rate limit exceeded", "metadata": {"headers": {"Retry-After": "0.1"}}}}
    seen = []

    def play(request, handler):
        seen.append(handler.headers["Idempotency-Key"])
        return (200, body) if len(seen) < 3 else None

    with scripted(play) as server, Judge(settings(server, structured="text"), ledger=tmp_path / "l") as judge:
        verdict = judge.ask(questions(1))[0]
        assert (verdict.reason, verdict.retries, verdict.usage.unreported) == ("answered", 2, 0) and len(set(seen)) == 3
    with scripted(lambda *_: (200, NO_TEMPERATURE)) as server, Judge(settings(server), ledger=tmp_path / "m") as judge:
        with pytest.raises(
            ConnectionError, match="last: 200, but no chat completion.*the server says: unsupported_value"
        ):
            judge.ask(questions(60))


# -- what a server says ------------------------------------------------------------------------------------------------


def test_what_a_server_said_last_is_told_where_twenty_questions_got_no_answer(tmp_path):
    with scripted(lambda *_: (400, {"error": {"message": "the\x1b[31m cat\r\nsat \u202eon it"}})) as server:
        with Judge(settings(server), ledger=tmp_path / "l") as judge:
            with pytest.raises(ConnectionError) as caught:
                judge.ask(questions(60))
    assert "(last: 400; the server says: the [31m cat sat on it); check that the server runs" in str(caught.value)
    assert {line["status"] for line in lines(tmp_path / "l", "failed")} <= {"400", "stopped"}


KEY = "sk-proj-canary0123456789abcdef"


@pytest.mark.parametrize(
    ("status", "quoted"),
    [
        (401, f"Incorrect API key provided: {KEY[:12]}*******{KEY[-4:]}."),
        (403, f"wrong Bearer {KEY}"),
        (404, f"can't do '{STYLE}'"),
        (422, f"can't judge between {STYLE[:12]} and more"),
        (429, "can't judge \u00aba spaceship, number 0\u00bb"),
        (500, "can't judge 'SPACESHIP, NUMBER 0'"),
        (400, f"can't do '{STYLE}' with {KEY}"),
        (200, f"can't do '{STYLE}' with {KEY}"),
    ],
)
def test_keys_and_texts_that_a_server_repeats_are_shown_nowhere(tmp_path, monkeypatch, caplog, capfd, status, quoted):
    for name in (None, "edpbrl_gym"):
        caplog.set_level(logging.DEBUG, logger=name)
    monkeypatch.setenv("JUDGE_KEY", KEY)
    body = openai(f"Unsupported: {quoted} temperature is not supported", "temperature", KEY)
    body["error"]["type"] = "insufficient_quota" if status == 429 else KEY
    with scripted(lambda *_: (status, body, {"X-Asked": f"{STYLE} {KEY}"})) as server:
        chosen = settings(server, api_key_variable="JUDGE_KEY", max_retries=0, structured="text", concurrency=1)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            texts = ["a spaceship, number 0", "a dark alley, number 0", "an old castle, number 0"]
            asked = [JudgeQuestion(texts=texts[place:] + texts[:place], identity=f"q/{place}") for place in range(3)]
            told = ""
            try:
                judge.ask(asked)
            except ConnectionError as error:
                told = str(error)
            told += judge._asker.client.last_error
            left = repr(judge) + json.dumps(judge.account()) + (tmp_path / "l").read_text()
    assert "is not supported" in told and "***" in told
    left = "".join([told, left, caplog.text, *capfd.readouterr()]).casefold()
    assert not [one for one in ("canary", "sk-proj", KEY[-4:], "noir", "spaceship") if one.casefold() in left]


def test_words_of_a_short_style_are_hidden_only_as_words_and_a_long_message_is_cut():
    error = read_error(400, json.dumps(openai("'red' is required, Red too")).encode())
    assert error.shown(["red"]) == "*** is required, *** too"
    told = read_error(400, json.dumps(openai("word " * 500, "p", "c")).encode()).shown([])
    assert told.startswith("c, p: word word") and told.endswith("...") and len(told) == 206


@pytest.mark.parametrize(
    "body",
    [
        None, b"", b"<html><body>502 Bad Gateway</body></html>", b"\xff\xfe", b"[" * 100_000, b'{"error":' * 5_000,
        b'{"error": []}', b'{"error": {"message": 5, "code": {}, "param": [1]}}', b'[[[{"error": "x"}]]]', b"null",
        b'{"detail": [5, null]}', b'{"error": {"metadata": {"headers": [1]}}}', b'{"message": "{\\"error\\": 1}"}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_error_says_nothing_and_breaks_nothing(body):
    error = read_error(400, body)
    assert error.code == error.param == "" and not error.filtered and not error.no_quota and not error.unsupported
    assert len(error.shown([])) < 60


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "code", "param", "detail", "loc", "metadata"]), inner)
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from([400, 402, 422, 429, 500]), st.lists(st.text(max_size=12), max_size=3))
def test_any_json_is_read_and_shown_in_one_line(body, status, private):
    shown = read_error(status, json.dumps(body).encode()).shown(private)
    assert shown.isprintable() and len(shown) <= 330
    assert not [
        one for one in private if len(one.split()) == 1 and len(one) >= 8 and one.casefold() in shown.casefold()
    ]
