"""The judge against a real HTTP server on this machine: answers, orders, faults, budgets, keys."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.oracles.judge import Judge, JudgeOracle, JudgeQuestion
from edpbrl_gym.oracles.judge.messages import label_order, most_input_tokens
from tests.helpers.judge_tools import STYLE, lines, load_local_judge, local_judge, png, questions, settings


def expected_choice(server, question):
    """What the server answers to a question, by its own rule, whatever the order of the labels."""
    texts = tuple(" ".join(text.split()) for text in question.texts)
    labels = tuple("ABCDEFGH"[: len(texts)])
    asked = load_local_judge().Question(STYLE, labels, texts)
    return labels.index(server.choose(asked))


def test_the_verdict_names_the_candidate_that_the_server_chose(tmp_path):
    asked = [*questions(20), *questions(5, options=2, start=100), *questions(3, options=7, start=200)]
    progress = []
    prices = {"price_per_million_input": 0.4, "price_per_million_output": 1.6}
    with local_judge() as server, Judge(settings(server, **prices), ledger=tmp_path / "l") as judge:
        verdicts = judge.ask(asked, progress=lambda *at: progress.append(at))
        assert [verdict.choice for verdict in verdicts] == [expected_choice(server, q) for q in asked]
        assert progress == [(i, 28) for i in range(1, 29)]
        assert server.requests == 28 and 1 < server.most_at_once <= 8
        assert judge.usage.total == server.tokens and judge.usage.unreported == 0
        for question, verdict in zip(asked, verdicts, strict=True):
            assert verdict.order == label_order(question.identity, question.num_options, 0)
            assert verdict.reason == "answered" and not verdict.cached and verdict.latency > 0
        again = judge.ask(asked)
        assert server.requests == 28 and all(verdict.cached for verdict in again)
        assert [v.choice for v in again] == [v.choice for v in verdicts]
        usage, account = judge.usage, judge.account()
        assert account["questions"] == 28
        assert account["cost"] == pytest.approx((0.4 * usage.input_tokens + 1.6 * usage.output_tokens) / 1e6)
    recorded = {line["identity"]: line for line in lines(tmp_path / "l", "answer")}
    for question, verdict in zip(asked, verdicts, strict=True):
        line = recorded[question.identity]
        label = json.loads(line["text"])["preference"]
        assert line["order"] == list(verdict.order) and line["choice"] == verdict.choice
        assert line["order"]["ABCDEFGH".index(label)] == verdict.choice and line["model"] == "local-local"
    text = (tmp_path / "l").read_text()
    assert not any(candidate in text for question in asked for candidate in question.texts) and STYLE not in text


def test_what_failed_attempts_of_an_earlier_run_cost_stays_in_the_account(tmp_path):
    with local_judge(faults={"broken_body": 1.0}) as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        lost = sum(verdict.usage.total for verdict in judge.ask(questions(2)))
        assert lost == judge.usage.unreported > 0
    with local_judge() as server, Judge(settings(server), ledger=tmp_path / "l") as judge:
        verdicts = judge.ask(questions(2))
        assert [verdict.reason for verdict in verdicts] == ["answered"] * 2
        assert judge.usage.total == judge.budget.tokens == lost + server.tokens
        assert judge.account()["unreported_tokens"] == lost == sum(verdict.usage.unreported for verdict in verdicts)


def test_the_second_look_finds_a_judge_that_likes_labels(tmp_path):
    with local_judge(scale=5.0) as fair, local_judge(position_bias=1e3) as biased:
        for server, wanted in ((fair, 1.0), (biased, 0.0)):
            with Judge(settings(server, second_look=True), ledger=tmp_path / f"{wanted}") as judge:
                verdicts = judge.ask(questions(12))
                assert server.requests == 24
                assert judge.account()["looks_compared"] == 12 and judge.account()["consistency"] == wanted
                assert all(verdict.choice is not None for verdict in verdicts)


@pytest.mark.needs("judge")
@pytest.mark.parametrize("show", ["texts", "images"])
def test_looks_that_choose_one_or_the_other_of_two_equal_candidates_agree(tmp_path, show):
    """The server chooses the equal ones, always that with the first label; the third candidate is never chosen."""
    black, white = png("black"), png("white")
    asked = [
        JudgeQuestion(
            texts=["a dark alley", "a dark  alley", f"beach {i}"], images=[black, bytes(bytearray(black)), white],
            identity=str(i),
        )
        for i in range(8)
    ]  # fmt: skip
    with local_judge() as server:
        embed = {"a dark alley": 1.0, "noir": 1.0}
        server.embed = lambda texts: np.array([[embed.get(text, 0.0)] for text in texts])
        server._colour_match = lambda style, pictures: -np.array(pictures).mean(axis=1)
        with Judge(settings(server, style="noir", show=show, second_look=True), ledger=tmp_path / "l") as judge:
            verdicts = judge.ask(asked)
            assert judge.account()["consistency"] == 1.0 and {verdict.choice for verdict in verdicts} <= {0, 1}
        chosen = Counter(line["choice"] for line in lines(tmp_path / "l", "answer"))
    assert chosen[0] and chosen[1] and not chosen[2]


FAULTS = {
    name: 0.1 for name in ("503", "429", "timeout", "broken_body", "truncated", "wrong_label", "empty", "refused")
}


def test_with_every_fault_injected_the_run_ends_and_every_answer_is_accounted_for(tmp_path):
    asked = questions(80)
    with local_judge(faults=FAULTS, hang=60.0, seed=3) as server:
        # long enough that no answer of a busy machine times out by itself
        chosen = settings(server, timeout=5.0, max_retries=2, concurrency=12)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            verdicts = judge.ask(asked)
            account = judge.account()
        injected, requests, module = server.injected, server.requests, load_local_judge()
        # what each question must come to, by the server's own draws
        wanted = []
        for question in asked:
            texts = tuple(question.texts)
            same = module.Question(STYLE, tuple("ABCD"), texts)
            bad = server._draw(module.ANSWER_FAULTS, same, 0)
            known = {None: "answered", "refused": "refused", "truncated": "cut", "wrong_label": "invalid"}
            reason, choice, retries, attempt = known.get(bad, "failed"), None, 0, 0
            for _ in range(2 if bad in ("wrong_label", "empty") else 1):  # the second is the reminder
                tries = [server._draw(module.HTTP_FAULTS, same, attempt + i) for i in range(3)]
                tried = next((i for i, fault in enumerate(tries) if fault in (None, "broken_body")), None)
                retries += 2 if tried is None else tried
                if tried is None or tries[tried] == "broken_body":
                    reason = "failed"
                    break
                attempt += tried + 1
            wanted.append((reason, expected_choice(server, question) if reason == "answered" else choice, retries))
    assert set(injected) == set(FAULTS) and min(injected.values()) > 1
    assert [(verdict.reason, verdict.choice, verdict.retries) for verdict in verdicts] == wanted
    assert account["questions"] == 80 == account["answered"] + sum(account["missing"].values())
    assert account["retries"] == requests - 80 - account["reminders"] and account["retried"] == sum(
        w[2] > 0 for w in wanted
    )
    assert all(account["missing"][reason] == sum(w[0] == reason for w in wanted) for reason in account["missing"])
    assert account["missing"]["budget"] == 0
    assert all(verdict.usage.total > 0 for verdict in verdicts if verdict.reason != "failed")
    # a second run asks only what failed; what was answered badly, also after a reminder, was paid for and stays
    with local_judge() as healthy, Judge(replace(chosen, base_url=healthy.base_url), ledger=tmp_path / "l") as judge:
        later = judge.ask(asked)
        assert healthy.requests == sum(w[0] == "failed" for w in wanted)
        assert (
            sum(verdict.choice is not None for verdict in later) == account["answered"] + account["missing"]["failed"]
        )


@pytest.mark.parametrize("faults", [{}, {"timeout": 0.15, "broken_body": 0.15}])
@pytest.mark.parametrize("report_usage", [True, False])
def test_a_hard_budget_in_tokens(tmp_path, faults, report_usage):
    """What the server would bill stays within the budget, whatever is lost or not reported, and most of it is used."""
    with local_judge(delay=0.005, faults=faults, hang=60.0, report_usage=report_usage) as server:
        chosen = settings(server, max_tokens=15_000, concurrency=16, timeout=1.5 if faults else 30.0, max_retries=1)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            judge.ask(questions(150))
            account = judge.account()
            spent = judge.budget.tokens
    assert server.tokens <= spent <= 15_000 and account["missing"]["budget"] > 0
    assert spent > 13_000
    if report_usage and not faults:
        assert server.tokens == spent == account["input_tokens"] + account["output_tokens"]
    assert (account["unreported_tokens"] > 0) == (bool(faults) or not report_usage)


def test_every_attempt_without_an_answer_is_booked_at_its_bound(tmp_path):
    """A slow model does the work, and bills it, also where nobody waits for the answer any more."""
    with local_judge(faults={"timeout": 0.5}, hang=60.0, seed=5) as server:
        chosen = settings(server, timeout=2.5, max_retries=1, concurrency=12)
        asked = questions(12)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            judge.ask(asked)
            assert server.tokens <= judge.budget.tokens == judge.usage.total
    found = lines(tmp_path / "l", "answer") + lines(tmp_path / "l", "failed")
    bounds = {q.identity: most_input_tokens(chosen, q) + chosen.max_answer_tokens for q in asked}
    assert {(line["kind"], line["lost"]) for line in found} >= {("answer", 0), ("answer", 1), ("failed", 2)}
    for line in found:
        assert line["usage"]["unreported"] == line["lost"] * bounds[line["identity"]]
        assert line["lost"] == line["retries"] + (line["kind"] == "failed")


def test_equal_questions_are_asked_once_and_judges_of_several_styles_share_ledger_and_budget(tmp_path):
    with local_judge() as server:
        with Judge(settings(server, max_questions=15), ledger=tmp_path / "l") as first:
            second = first.for_style("watercolor")
            verdicts = first.ask([*questions(10), *questions(10)])
            assert server.requests == 10 and [v.choice for v in verdicts[:10]] == [v.choice for v in verdicts[10:]]
            # a sum over all verdicts is what was paid
            assert sum(verdict.usage.total for verdict in verdicts) == server.tokens == first.usage.total
            assert sum(verdict.reason == "budget" for verdict in second.ask(questions(10))) == 5
            assert first.account()["answered"] == 10 and second.account()["answered"] == 5
            assert {question.style for question in server.asked} == {STYLE, "watercolor"}


def test_a_wrong_key_and_a_dead_server_are_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-wrong-secret")
    with local_judge(api_key="sk-right-secret") as server:
        chosen = settings(server, api_key_variable="JUDGE_KEY", max_retries=0)
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            with pytest.raises(ConnectionError, match="variable JUDGE_KEY, it answered 401") as caught:
                judge.ask(questions(30))
            assert "secret" not in str(caught.value) and caught.value.__cause__ is None
            assert server.requests <= 16
        monkeypatch.setenv("JUDGE_KEY", "sk-right-secret")
        with Judge(chosen, ledger=tmp_path / "l") as judge:
            assert judge.ask(questions(2))[1].reason == "answered"
        wrong = replace(chosen, base_url=server.base_url.removesuffix("/v1") + "/chat")
    with Judge(wrong, ledger=tmp_path / "dead") as judge:  # nobody listens there any more
        with pytest.raises(ConnectionError, match="check that the server runs"):
            judge.ask(questions(60))
        with pytest.raises(ConnectionError):  # still dead
            judge.ask(questions(1, start=99))
        assert judge.ledger.spent == (judge.budget.questions, judge.budget.tokens) == (0, 0)
    assert not lines(tmp_path / "dead", "answer") and not lines(tmp_path / "dead", "sent")
    assert lines(tmp_path / "dead", "failed")


@pytest.mark.needs("judge")
def test_questions_without_what_is_to_be_shown(tmp_path):
    with local_judge() as server, Judge(settings(server, show="images"), ledger=tmp_path / "l") as judge:
        with pytest.raises(ValueError, match="questions with images, question 0 has none"):
            judge.ask(questions(2))
        with pytest.raises(ValueError, match="an image.*be read"):
            judge.ask([JudgeQuestion(images=[b"none", png("red")])])
        with pytest.raises(ValueError, match="a renderer for a judge that is shown images"):
            JudgeOracle(judge)
        assert server.requests == 0 and judge.budget.questions == 0
        with Judge(settings(server), ledger=tmp_path / "t") as shown, pytest.raises(ValueError, match="with texts"):
            JudgeOracle(shown).answer(Queries(np.zeros((1, 2, 3)), np.array([0]), np.array([0])))


def test_answers_that_never_name_a_label_give_a_warning(tmp_path, caplog):
    with local_judge(faults={"wrong_label": 1.0}) as server:
        with Judge(settings(server), ledger=tmp_path / "l") as judge:
            assert {verdict.reason for verdict in judge.ask(questions(45))} == {"invalid"}
        assert server.requests == 90 and caplog.text.count("last 20 questions got no label") == 1
