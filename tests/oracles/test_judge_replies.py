"""What servers really send, against a real server on this machine: the verdict, what it costs, and whether it is final.

Written from what Ollama, vLLM, SGLang, llama.cpp, LM Studio, LiteLLM, OpenRouter, Azure, Mistral, Gemini's gateway and
the models behind them send as a chat completion.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from edpbrl_gym.oracles.judge import Judge, JudgeQuestion
from tests.helpers.judge_tools import USAGE, completion, lines, local_judge, png, questions, settings

SAYS_A, SAYS_B = '{"preference": "A"}', '{"preference": "B"}'


@contextmanager
def serving(answer):
    """A server that answers a request, given as a dict, by ``answer``: a body, or a status and a body."""
    with local_judge() as server:
        server.seen, lock = [], threading.Lock()

        def serve(handler, request):
            with lock:
                server.seen.append(request)
            told = answer(request)
            status, body = told if isinstance(told, tuple) else (200, told)
            handler.reply(status, body)

        server._server.RequestHandlerClass.serve = serve
        yield server


def is_reminder(request):
    content = request["messages"][1]["content"]
    return "in place of <label>" in (content if isinstance(content, str) else content[-1].get("text", ""))


def part(kind, text):
    return {"type": kind, "text": text}


def call(arguments):
    return [{"id": "1", "type": "function", "function": {"name": "preference", "arguments": arguments}}]


WRONG = f"Candidate A: {SAYS_A} would be wrong, so"
CHUNK = {"type": "thinking", "thinking": [part("text", WRONG)]}
KILLED = {"error": {"code": 502, "message": "provider"}}

# what is sent first, and to a reminder (the same, if only one is given); the reason; the number of requests, and of
# second run: 0 where the verdict is final for these settings
BEHAVIOURS = {
    # an answer in the form that was asked for, and around it what gateways add
    "an object": ([completion(SAYS_B)], "answered", 1, 0),
    "an object and white space up to the limit": ([completion(SAYS_B + "\n" * 90, "length")], "answered", 1, 0),
    "no usage": ([completion(SAYS_B, usage=None)], "answered", 1, 0),
    "usage of nothing": ([completion(SAYS_B, usage={"prompt_tokens": 0, "completion_tokens": 0})], "answered", 1, 0),
    "a finish reason of Anthropic": ([completion(SAYS_B, "end_turn")], "answered", 1, 0),
    "no message, but a text": (
        [{"choices": [{"text": SAYS_B, "finish_reason": "stop"}], "usage": USAGE}], "answered", 1, 0),
    "no finish reason": ([completion(SAYS_B, None)], "answered", 1, 0),
    "refusal null and annotations": (
        [completion({"content": SAYS_B, "refusal": None, "annotations": []})], "answered", 1, 0),
    "filters of Azure": ([completion(SAYS_B, prompt_filter_results=[{"prompt_index": 0}])], "answered", 1, 0),
    # thoughts in the text; test_judge_reading.py has their other forms
    "think": ([completion(f"<think>{WRONG}</think>\n\n{SAYS_B}")], "answered", 1, 0),
    # thoughts of their own
    "reasoning_content": ([completion({"content": SAYS_B, "reasoning_content": WRONG})], "answered", 1, 0),
    "reasoning of Ollama": ([completion({"content": SAYS_B, "reasoning": WRONG})], "answered", 1, 0),
    "reasoning and its details": (
        [completion({"content": SAYS_B, "reasoning": WRONG, "reasoning_details": [{"text": WRONG}]})],
        "answered", 1, 0),
    "thinking of its own": ([completion({"content": SAYS_B, "thinking": WRONG})], "answered", 1, 0),
    "thinking blocks": ([completion({"content": SAYS_B, "thinking_blocks": [{"thinking": WRONG}]})], "answered", 1, 0),
    "parts of Mistral": ([completion({"content": [CHUNK, part("text", SAYS_B)]})], "answered", 1, 0),
    "parts with values": (
        [completion({"content": [{"type": "redacted_thinking", "data": "x"}, part("text", {"value": "B"})]})],
        "answered", 1, 0),
    "an object in two parts": (
        [completion({"content": [part("text", SAYS_B[:9]), part("text", SAYS_B[9:])]})], "answered", 1, 0),
    "a part that is a text": ([completion({"content": ["B"]})], "answered", 1, 0),
    "one part": ([completion({"content": part("text", "B")})], "answered", 1, 0),
    "the object itself": ([completion({"content": {"preference": "B"}})], "answered", 1, 0),
    # cut
    "cut in a thought that names a label": ([completion(f"<think>{WRONG[:-7]}", "length")], "cut", 1, 0),
    "cut in thoughts of their own": (
        [completion({"content": None, "reasoning_content": WRONG}, "length")], "cut", 1, 0),
    "cut in a part": ([completion({"content": [CHUNK]}, "length")], "cut", 1, 0),
    "cut behind the label": ([completion("B", "length")], "cut", 1, 0),
    "cut, of Gemini": ([completion("", "MAX_TOKENS")], "cut", 1, 0),
    "cut, of Anthropic": ([completion(f"<think>{SAYS_A}", "max_tokens")], "cut", 1, 0),
    "cut, incomplete": ([completion(WRONG, "incomplete")], "cut", 1, 0),
    "cut, but said to have stopped": (
        [completion(f"<think>{SAYS_A}", "stop", {"prompt_tokens": 40, "completion_tokens": 64})], "cut", 1, 0),
    # what small models write
    "a bare label": ([completion("B")], "answered", 1, 0),
    "a label with its text": ([completion("B: a dark alley, number 0")], "answered", 1, 0),
    "a tool call": ([completion({"content": None, "tool_calls": call(SAYS_B)}, "tool_calls")], "answered", 1, 0),
    "a tool call of Ollama": ([completion({"content": "", "tool_calls": call({"preference": "B"})})], "answered", 1, 0),
    "a function call": (
        [completion({"content": None, "function_call": {"name": "f", "arguments": SAYS_B}})], "answered", 1, 0),
    # in doubt: asked again, once
    "two labels, then one": ([completion("A or B"), completion(SAYS_B)], "answered", 2, 0),
    "always two labels": ([completion(f"{SAYS_A} or {SAYS_B}")], "invalid", 2, 0),
    "always a finish reason of its own": ([completion("?", "repeats: a canary")], "invalid", 2, 0),
    "always a part of words": ([completion({"content": ["words"]})], "invalid", 2, 0),
    "always a label beyond K": ([completion('{"preference": "E"}')], "invalid", 2, 0),
    "always a thought that does not end": ([completion(f"<think>{SAYS_A}")], "invalid", 2, 0),
    "in doubt, then cut": ([completion("A or B"), completion("<think>", "length")], "cut", 2, 0),
    "in doubt, then refused": ([completion("A or B"), completion({"refusal": "no"})], "refused", 2, 0),
    "in doubt, then an error": ([completion("A or B"), (400, KILLED)], "failed", 2, 1),
    # empty: tried again, and not final
    "no choices": ([completion("", choices=[])], "failed", 2, 2),
    "no choices, then an object": ([completion("", choices=[]), completion(SAYS_B)], "answered", 2, 0),
    "choices of null": ([completion("", choices=None)], "failed", 1, 1),
    "a list": ([[1, 2]], "failed", 1, 1),
    "a content that is a number": ([completion({"content": 7, "tool_calls": {"a": 1}})], "failed", 2, 2),
    "an empty content": ([completion("")], "failed", 2, 2),
    "a content of null": ([completion(None)], "failed", 2, 2),
    "an empty content, then an object": ([completion(""), completion(SAYS_B)], "answered", 2, 0),
    "no message": ([completion("", choices=[{"finish_reason": "stop"}])], "failed", 2, 2),
    "the answer among the thoughts, as LM Studio": (
        [completion({"content": "", "reasoning_content": SAYS_B})], "failed", 2, 2),
    "a thought and no answer": ([completion(f"<think>{SAYS_A}</think>")], "failed", 2, 2),
    # no answer
    "a refusal": ([completion({"content": None, "refusal": "no"})], "refused", 1, 0),
    "a part that refuses": ([completion({"content": [{"type": "refusal", "refusal": "no"}]})], "refused", 1, 0),
    "a filter": ([completion("", "content_filter")], "refused", 1, 0),
    "a filter of Gemini": ([completion("", "SAFETY")], "refused", 1, 0),
    "a filter of Azure": ([(400, {"error": {"message": "no", "code": "content_filter"}})], "refused", 1, 0),
    "a request that is bad": ([(400, {"error": {"message": "bad", "code": None}})], "failed", 1, 1),
    "a request to be paid first": ([(402, {"error": {"message": "pay first"}})], "failed", 1, 1),
    "a provider that broke": ([completion(SAYS_B, "error")], "failed", 1, 1),
    "DeepSeek without resources": ([completion("", "insufficient_system_resource")], "failed", 1, 1),
    "an error with 200": ([{"error": KILLED}], "failed", 1, 1),
}  # fmt: skip
# where the server counts no tokens, so that the bound is booked
UNREPORTED = {"no usage", "choices of null", "a list", "an error with 200"}


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_every_behaviour_of_a_server_has_its_verdict_its_cost_and_its_end(tmp_path, caplog, name):
    (first, *later), reason, requests, again = BEHAVIOURS[name]
    caplog.set_level(logging.INFO, logger="edpbrl_gym.oracles.judge")
    with serving(lambda request: later[0] if later and is_reminder(request) else first) as server:
        chosen = settings(server, max_retries=0, structured="text")
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            (verdict,) = judge.ask(questions(1))
            account = judge.account()
        is_error = reason == "failed" and isinstance([first, *later][-1], tuple)  # which costs nothing
        assert len(server.seen) == requests == judge.ledger.spent[0] + is_error
        assert judge.ledger.spent[1] == verdict.usage.total
        assert (account["unreported_tokens"] > 500) == (name in UNREPORTED)
        told = [record.getMessage() for record in caplog.records if "have no answer" in record.message]
        assert len(told) == (reason != "answered") and all(
            f"1 of 1 questions have no answer: 1 {reason} (" in t for t in told
        )
        assert not any("\n" in message or "{" in message or len(message) > 200 for message in caplog.messages)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            (same,) = judge.ask(questions(1))
            assert len(server.seen) == requests + again and same.cached == (not again)
            if not again:
                assert judge.account() == account and same.usage == verdict.usage
    assert same.reason == verdict.reason == reason and "canary" not in caplog.text + (tmp_path / "l").read_text()
    assert verdict.choice == same.choice == (verdict.order[1] if reason == "answered" else None)
    assert account["missing"].get(reason, 1) == 1 and account["reminders"] == verdict.reminders == requests - 1
    assert all(is_reminder(request) == bool(place % 2) for place, request in enumerate(server.seen[:requests]))


# -- what a better setting can read ------------------------------------------------------------------------------------


def thinking(words, *, field=None, tag="<think>"):
    """A model that thinks so many tokens, then answers B; cut at the limit of the request."""
    thought = [f"{SAYS_A} is wrong." if i % 7 == 0 else "hm" for i in range(words)]

    def answer(request):
        limit = request.get("max_tokens") or request["max_completion_tokens"]
        kept, whole = " ".join(thought[:limit]), words + 5 <= limit
        usage = {"prompt_tokens": 40, "completion_tokens": min(limit, words + 5)}
        if field is not None:
            message = {"content": SAYS_B if whole else None, field: kept}
        else:
            message = tag + kept + (f"{tag[0]}/{tag[1:]}\n{SAYS_B}" if whole else "")
        return completion(message, "stop" if whole else "length", usage)

    return answer


@pytest.mark.parametrize(
    "model", [thinking(300), thinking(300, field="reasoning_content"), thinking(300, tag="[THINK]")]
)
def test_a_model_that_thinks_longer_than_its_limit_is_paid_five_times_and_the_advice_mends_it(tmp_path, model):
    with serving(model) as server:
        short = settings(server, structured="text", concurrency=8)
        with Judge(short, ledger=tmp_path / "l") as judge:
            with pytest.raises(
                ConnectionError, match=r"last 5 were cut at max_answer_tokens=64 .*; give a larger"
            ) as told:
                judge.ask(questions(30))
            assert "\n" not in str(told.value) and "--max-answer-tokens" in str(told.value)
            assert len(server.seen) == judge.budget.questions == 5  # whatever the concurrency
        with Judge(short, ledger=tmp_path / "l") as judge:  # final for these settings
            assert not judge.ledger.failures and len(judge.ledger.answers) == 5
            cut = [q for q in questions(30) if q.identity in {a["identity"] for a in judge.ledger.answers.values()}]
            assert {(v.reason, v.cached) for v in judge.ask(cut)} == {("cut", True)}
        assert len(server.seen) == 5
        with Judge(replace(short, max_answer_tokens=1000), ledger=tmp_path / "l") as judge:
            assert all(verdict.choice == verdict.order[1] for verdict in judge.ask(questions(30)))
        assert len(server.seen) == 5 + 30


def test_with_a_larger_limit_only_what_was_cut_is_asked_again(tmp_path, caplog):
    """Every third thought is too long; what has an answer is not paid again, with a larger limit or with a smaller."""
    count = iter(range(10_000))
    with serving(lambda request: thinking(300 if next(count) % 3 == 2 else 10)(request)) as server:
        chosen = settings(server, structured="text", concurrency=1)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            reasons = [verdict.reason for verdict in judge.ask(questions(30))]
            assert reasons.count("cut") == judge.account()["missing"]["cut"] == 10 and len(server.seen) == 30
        assert (
            caplog.text.count("10 of 30 questions have no answer: 10 cut (before the answer was whole: a larger") == 1
        )
        for limit, more in ((1000, 10), (2000, 0), (32, 0), (64, 0)):
            before = len(server.seen)
            with Judge(replace(chosen, max_answer_tokens=limit), ledger=tmp_path / "l") as judge:
                assert all(verdict.choice is not None for verdict in judge.ask(questions(30)))
                assert len(server.seen) - before == more


def test_a_limit_of_the_server_itself_is_named(tmp_path):
    usage = {"prompt_tokens": 900, "completion_tokens": 100}
    with serving(lambda request: completion(f"<think>{WRONG}", "length", usage)) as server:
        with Judge(settings(server, max_answer_tokens=4000), ledger=tmp_path / "l") as judge:
            with pytest.raises(ConnectionError, match=r"after 100 tokens of .*=4000 .*; enlarge the server's own"):
                judge.ask(questions(30))


def test_a_server_that_puts_the_object_of_a_schema_among_the_thoughts_is_mended_by_text(tmp_path):
    """As LM Studio does for models that think."""

    def answer(request):
        inside = "response_format" in request
        return completion({"content": "" if inside else SAYS_B, "reasoning_content": SAYS_B if inside else WRONG})

    with serving(answer) as server:
        with Judge(settings(server), ledger=tmp_path / "l") as judge:
            with pytest.raises(
                ConnectionError, match=r"thoughts without an answer.*try structured='text' .--structured"
            ):
                judge.ask(questions(20))
            assert len(server.seen) == 5
        with Judge(settings(server, structured="text"), ledger=tmp_path / "l") as judge:
            assert {verdict.reason for verdict in judge.ask(questions(20))} == {"answered"}
        assert len(server.seen) == 25


def test_empty_replies_stop_early_and_are_not_final(tmp_path):
    state = {"body": completion("")}
    with serving(lambda request: state["body"]) as server:
        with Judge(settings(server, structured="text"), ledger=tmp_path / "l") as judge:
            with pytest.raises(ConnectionError, match=r"last 5 had none \(an empty answer\); check the model"):
                judge.ask(questions(20))
            assert len(server.seen) == judge.budget.questions == 5 and judge.budget.tokens == 5 * 49
        state["body"] = completion(SAYS_B)
        with Judge(settings(server, structured="text"), ledger=tmp_path / "l") as judge:
            assert {verdict.reason for verdict in judge.ask(questions(20))} == {"answered"}
            assert judge.budget.questions == len(server.seen) == 25


# -- reminders: budget, records, both looks ---------------------------------------------------------------------------


def chatty(request):
    """A model that names a label only when it is reminded: the one of the darkest candidate, whatever its label."""
    shown = request["messages"][1]["content"]
    best = next(line[0] for line in shown.splitlines() if "dark alley" in line or "number" in line)
    return completion(best) if is_reminder(request) else completion(f"Candidate {best} or another would be nice.")


def test_a_reminder_is_a_question_of_the_budget_and_alone_is_asked_by_the_next_run(tmp_path):
    with serving(chatty) as server:
        chosen = settings(server, structured="text", concurrency=1)
        with Judge(replace(chosen, max_questions=5), ledger=tmp_path / "l") as judge:
            verdicts = judge.ask(questions(4))
            assert [v.reason for v in verdicts] == ["answered", "answered", "budget", "budget"]
            assert (
                len(server.seen) == judge.budget.questions == 5 and judge.budget.tokens == 5 * 49 == judge.usage.total
            )
            assert judge.account()["reminders"] == 2
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            verdicts = judge.ask(questions(4))
            assert {v.reason for v in verdicts} == {"answered"} and len(server.seen) == judge.budget.questions == 8
            assert [is_reminder(request) for request in server.seen[5:]] == [True, False, True]
            assert judge.account()["reminders"] == 4 and judge.usage.total == 8 * 49
    written = lines(tmp_path / "l", "answer")
    assert (
        [line["reason"] for line in written].count("invalid")
        == [line["reason"] for line in written].count("answered")
        == 4
    )
    assert len({line["key"] for line in written}) == 8


def test_both_looks_are_reminded_each_for_itself(tmp_path):
    with serving(chatty) as server:
        with Judge(settings(server, structured="text", second_look=True), ledger=tmp_path / "l") as judge:
            verdicts = judge.ask(questions(6))
            assert len(server.seen) == 24 and judge.account()["looks_compared"] == 6
    assert all(v.choice is not None and v.reminders == 2 for v in verdicts)
    half = iter(range(100))
    with serving(lambda request: completion("A or B" if next(half) % 2 else SAYS_B)) as server:
        chosen = settings(server, structured="text", second_look=True, concurrency=1)
        with Judge(chosen, ledger=tmp_path / "half") as judge:
            (verdict,) = judge.ask(questions(1))
    assert verdict.choice == verdict.order[1] and len(server.seen) == 3 and verdict.reminders == 1


@pytest.mark.needs("judge")
def test_a_reminder_stands_behind_the_pictures(tmp_path):
    with serving(lambda request: completion("B" if is_reminder(request) else "Hm.")) as server:
        with Judge(settings(server, structured="text", show="images"), ledger=tmp_path / "l") as judge:
            (verdict,) = judge.ask([JudgeQuestion(images=[png("red"), png("blue")])])
    assert verdict.choice == verdict.order[1] and [len(r["messages"]) for r in server.seen] == [2, 2]
    assert [part["type"] for part in server.seen[1]["messages"][1]["content"]].count("image_url") == 2
