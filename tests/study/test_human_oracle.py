"""HumanOracle: an environment's loop asks people through the study's queue, and goes on with the answers that came."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Comparisons, Queries
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import Oracle
from edpbrl_gym.study import AnswerTimeoutError, HumanOracle, LoopError, read_config
from edpbrl_gym.study.audit import audit
from edpbrl_gym.study.export import export
from edpbrl_gym.study.records import NotReadyError, UnknownQuestionError
from tests.helpers.oracle_studies import TEXT, Person, Server, play, write_oracle_study

ROOT = Path(__file__).resolve().parents[2]
FAST = {"poll": 0.01, "timeout": 60.0}
NONE = Queries(features=np.ones((0, 3, 2)), episode=np.array([], int), step=np.array([], int), texts=[])


@pytest.fixture
def folder(tmp_path):
    """A study with a file of SQLite."""
    return write_oracle_study(tmp_path / "study")


@pytest.fixture
def both(tmp_path, url):
    """A study with SQLite, and one with PostgreSQL."""
    return write_oracle_study(tmp_path / "study", url)


def ask(number=0, *, count=1, texts=None):
    """Questions that no environment asks."""
    texts = texts or [[f"option {option} of {number + one}" for option in range(3)] for one in range(count)]
    numbers = np.arange(len(texts))
    return Queries(features=np.ones((len(texts), len(texts[0]), 2)), episode=numbers, step=numbers, texts=texts)


def test_a_loop_gets_what_the_participant_answered(both, serve, tmp_path):
    server = serve(both)
    with Person(server, "p") as person, HumanOracle(both, name="loop", **FAST) as oracle:
        assert isinstance(oracle, Oracle)
        told = play(both, oracle, agent="adaptive")
        oracle.finish()
        person.wait()
    normal = [question for question in person.asked if question.kind == "normal"]
    assert [list(texts) for texts in told.texts] == [question.texts for question in normal]
    assert list(told.responses) == [server.liked(question) for question in normal]
    kinds = sorted(question.kind for question in person.asked)
    assert kinds == sorted(["practice", "attention", "repeat", "repeat", *["normal"] * 6])
    assert server.store.participant(person.participant.code).status == "finished"
    described = told.metadata["oracle"]
    assert described["kind"] == "human" and described["arm"] == "loop" and person.participant.code not in str(described)
    written = export(server.store, server.queue.materials, tmp_path / "out")
    [path] = written.people
    exported = Comparisons.from_parquet(path)
    assert path.stem == described["participant"]
    assert exported.responses == told.responses
    np.testing.assert_array_equal([exported.episode, exported.step], [told.episode, told.step])
    record, materials = server.store.record(person.participant.id), server.queue.materials
    assert audit("p", record, materials).different == 0
    posts = [*record.posts]
    posts[3] = dataclasses.replace(posts[3], texts=[*posts[3].texts[:-1], "z"])
    changed = audit("p", dataclasses.replace(record, posts=tuple(posts)), materials)
    [named] = [step for step in changed.questions if step.differences]
    assert named.row["options"] == record.posts[3].texts and "z" in named.differences[0]


def test_a_loop_that_knows_no_ties_gets_skips(folder, serve):
    """The agent adaptive takes best options only; what the person answered is stored all the same."""
    server = serve(folder)
    ties = iter([Response.tie()] * 3)

    def unsure(question):
        return next(ties, server.liked(question)) if question.kind == "normal" else server.liked(question)

    with Person(server, "p", liked=unsure) as person:
        with HumanOracle(folder, **FAST) as oracle, pytest.raises(ValueError, match="got 'tie' at question 0"):
            play(folder, oracle, agent="adaptive")
        with HumanOracle(folder, cant_tell="skip", **FAST) as oracle:
            told = play(folder, oracle, agent="adaptive")
        person.wait()
    assert len(told) == 3 and told.metadata["oracle"]["cant_tell"] == "skip"
    history = server.store.history(person.participant.id)
    kinds = [answer.response.kind for question, answer in history if question.kind == "normal"]
    assert kinds == ["tie"] * 3 + ["best"] * 3


def loop(folder, name):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "tests.helpers.oracle_studies", str(folder), name]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def test_a_loop_that_is_killed_goes_on_as_if_it_had_not_been(both, serve, tmp_path):
    """The loop is killed after some answers, again and again, and each time another server goes on."""
    undisturbed = write_oracle_study(tmp_path / "undisturbed")
    with Person(serve(undisturbed), "p"), HumanOracle(undisturbed, name="loop", **FAST) as oracle:
        expected = play(undisturbed, oracle, agent="adaptive")
    asked = []
    for most in (1, 2):
        with Person(serve(both), "p", most=most) as person:
            process = loop(both, "loop")
            person.wait()
            time.sleep(0.02 * most)  # it may have read the last answer, or not
            process.kill()
            process.communicate()
        asked += [question.texts for question in person.asked if question.kind == "normal"]
    with Person(serve(both), "p") as person:
        output, errors = loop(both, "loop").communicate(timeout=120)
    asked += [question.texts for question in person.asked if question.kind == "normal"]
    lines = [
        f"{list(texts)} {response.order[0]}" for texts, response in zip(expected.texts, expected.responses, strict=True)
    ]
    assert output.splitlines() == lines, errors
    assert asked == [list(texts) for texts in expected.texts]  # each once
    with HumanOracle(both, name="loop", poll=0.01, timeout=0.0) as oracle:  # everything is stored: nobody is needed
        assert play(both, oracle, agent="adaptive").responses == expected.responses


def test_two_oracles_never_ask_the_same_participant(both, serve):
    server = serve(both)
    people = [server.arrive(name) for name in "abc"]
    for person in people[:2]:
        server.reach_the_loop(person)  # the third has not come to the questions
    oracles = [HumanOracle(both, name=f"loop {number}", poll=0.01, timeout=0.3) for number in range(3)]

    def run(oracle):
        with pytest.raises(AnswerTimeoutError):
            oracle.answer(ask())

    threads = [threading.Thread(target=run, args=[oracle]) for oracle in oracles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    described = [oracle.describe().get("participant") for oracle in oracles]
    assert described.count(None) == 1 and len(set(described)) == 3
    assert all(server.queue.next_question(person).texts == ask().texts[0] for person in people[:2])
    waiting = oracles[described.index(None)]
    server.reach_the_loop(people[2])
    run(waiting)
    assert server.queue.next_question(people[2]).texts == ask().texts[0]
    for name, said in (("fourth", "'a' is asked by 'loop"), (waiting.name, "has asked before")):
        with HumanOracle(both, name=name, participant="a", timeout=0.0) as other, pytest.raises(LoopError, match=said):
            other.answer(ask())
    for oracle in oracles:
        oracle.close()


def test_a_participant_may_be_named_before_arriving_and_is_asked_nothing_else_later(folder, serve):
    server = serve(folder)
    server.reach_the_loop(server.arrive("first"))
    with HumanOracle(folder, participant="second", poll=0.01, timeout=0.05) as oracle:
        with pytest.raises(AnswerTimeoutError, match="the participant 'second'"):
            oracle.answer(ask())
        second = server.arrive("second")
        server.reach_the_loop(second)
        with pytest.raises(AnswerTimeoutError, match="an answer to question 1 .* 0 answers of the loop") as error:
            oracle.answer(ask())
        assert error.value.answered == 0 == oracle.asked and isinstance(error.value, TimeoutError)
        server.queue.answer(second, server.queue.next_question(second).key, Response.best(2))
        assert oracle.answer(ask()).responses == (Response.best(2),)
    with HumanOracle(folder, participant=second.code, timeout=0.0) as oracle:
        with pytest.raises(LoopError, match="asked as number 1 before, got .*begin another one"):
            oracle.answer(ask(texts=[["x", "y", "z"]]))
        assert oracle.answer(ask()).responses == (Response.best(2),)  # nothing was changed


def test_questions_of_many_lanes_are_asked_in_order_and_no_more_than_the_study_has(folder, serve):
    server = serve(folder)
    with Person(server, "p") as person, HumanOracle(folder, **FAST) as oracle:
        answers = oracle.answer(ask(count=5)).responses
        with pytest.raises(LoopError, match="at most number = 6 .* Nothing was asked"):
            oracle.answer(ask(5, count=2))
        assert len(server.store.record(person.participant.id).posts) == oracle.asked == 5
        answers += oracle.answer(ask(5)).responses
        assert oracle.answer(NONE).responses == ()
        person.wait()  # the sixth is the last one, with or without finish()
    assert server.store.participant(person.participant.code).status == "finished"
    normal = [question for question in person.asked if question.kind == "normal"]
    assert [question.texts[0] for question in normal] == [f"option 0 of {number}" for number in range(6)]
    assert list(answers) == [server.liked(question) for question in normal]


def test_a_loop_that_finishes_early_lets_the_participant_finish(tmp_path, serve):
    """Test questions compare arms, so they are asked all the same; repeats of questions that never came are not."""
    text = TEXT.replace("repeated = 2", "repeated = 2\ntest = 2")
    folder = write_oracle_study(tmp_path / "study", text=text)
    server = serve(folder)
    with Person(server, "p") as person, HumanOracle(folder, **FAST) as oracle:
        oracle.answer(ask(count=2))
        oracle.finish()
        oracle.finish()
        person.wait()
        with pytest.raises(LoopError, match="finish"):
            oracle.answer(ask(2))
    kinds = [question.kind for question in person.asked]
    assert kinds.count("normal") == 2 and kinds.count("test") == 2 and kinds.count("attention") == 1
    assert server.store.participant(person.participant.code).status == "finished"
    assert server.queue.next_question(person.participant) is None
    with HumanOracle(folder, timeout=0.0) as oracle:
        assert oracle.answer(ask(count=2)).responses
        with pytest.raises(LoopError):
            oracle.answer(ask(2))
    with HumanOracle(folder, name="another", timeout=0.0) as other:
        other.finish()  # nobody was asked


@pytest.mark.parametrize(
    ("end", "said"),
    [("failed", "failed"), ("withdrawn", "withdrawn"), ("timed_out", "timed out"), ("delete", "deleted")],
)
def test_a_participant_who_left_is_not_waited_for(folder, serve, end, said):
    server = serve(folder)
    person = server.arrive("p")
    server.reach_the_loop(person)
    with HumanOracle(folder, **FAST) as oracle:

        def leaves():
            while oracle._claimed is None:  # before that nobody is waited for in particular
                time.sleep(0.01)
            server.store.delete(person.id) if end == "delete" else server.store.set_status(person.id, end)

        leave = threading.Thread(target=leaves)
        leave.start()
        with pytest.raises(LoopError, match=said):
            oracle.answer(ask())
        leave.join()
        with pytest.raises(LoopError, match=said):
            oracle.answer(ask())
    if end == "delete":
        assert server.store.records() == []
        with HumanOracle(folder, timeout=0.0) as oracle, pytest.raises(AnswerTimeoutError, match="a participant of"):
            oracle.answer(ask())


def test_questions_and_arguments_that_do_not_fit_the_study_are_refused(folder):
    with HumanOracle(folder, timeout=0.0) as oracle:
        for queries, said in [
            (Queries(features=np.ones((1, 3, 2)), episode=np.array([0]), step=np.array([0])), "with texts"),
            (ask(texts=[["a", "b"]]), "3 options"),
            (ask(texts=[["a", "b", "A "]]), "distinct=True"),
            (ask(texts=[["a", "b", " "]]), "1 to 10,000"),
            (ask(texts=[["a", "b", "\ud800"]]), "Unicode"),
            (ask(texts=[["a", "b", "c" * 10_001]]), "10,001"),
        ]:
            with pytest.raises(ValueError, match=said):
                oracle.answer(queries)
    config = read_config(folder)
    for arguments, said in [
        ({"arm": "nobody"}, "the arm 'nobody' with planner = 'oracle' in study.toml, got 'loop'"),
        ({"response": "rankings"}, "response = 'best', got 'rankings'"),
        ({"name": ""}, "1 to 64"),
        ({"cant_tell": "best"}, "cant_tell"),
        ({"poll": 0.0}, "poll"),
        ({"timeout": -1.0}, "timeout"),
    ]:
        with pytest.raises(ValueError, match=said):
            HumanOracle(config, **arguments)


def test_participants_of_other_arms_are_not_asked(tmp_path, serve):
    text = f'{TEXT}\n[[arms]]\nname = "random"\nplanner = "random"\n[[arms]]\nname = "loop 2"\nplanner = "oracle"\n'
    folder = write_oracle_study(tmp_path / "study", text=text)
    with pytest.raises(ValueError, match="one arm with planner = 'oracle' .* got 'loop', 'loop 2'"):
        HumanOracle(folder)
    server = serve(folder)
    people = [server.arrive(str(number)) for number in range(3)]
    [stranger] = [person for person in people if person.arm == "random"]
    server.queue.answer(stranger, server.queue.next_question(stranger).key, Response.best(0))
    with HumanOracle(folder, arm="loop", timeout=0.0) as oracle, pytest.raises(AnswerTimeoutError):
        oracle.answer(ask())
    with HumanOracle(folder, arm="loop", participant=stranger.external["PROLIFIC_PID"]) as oracle:
        with pytest.raises(ValueError, match="got one of 'random'"):
            oracle.answer(ask())


ACTIONS = st.lists(st.sampled_from(["answer", "answer", "undo", "ask", "ask", "kill", "ask two"]), max_size=30)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS, options=st.randoms(use_true_random=False))
def test_what_the_oracle_has_returned_never_changes(tmp_path_factory, actions, options):
    """Whatever the order of answers, undos, time-outs and kills: every run returns what is stored."""
    folder = write_oracle_study(tmp_path_factory.mktemp("oracle") / "study")
    server = Server(folder)
    person = server.arrive("p")
    oracle, returned = HumanOracle(folder, timeout=0.0), []
    server.reach_the_loop(person)
    try:
        for action in actions:
            if action == "answer":
                try:
                    question = server.queue.next_question(person)
                except NotReadyError:
                    continue
                if question is not None:
                    server.queue.answer(person, question.key, Response.best(options.randrange(3)))
            elif action == "undo":
                told = [one for one, answer in server.store.history(person.id) if answer is not None]
                try:
                    _ = told and server.queue.undo(person, told[-1].key)
                except UnknownQuestionError:
                    assert told[-1].kind == "normal"
                    assert sum(one.kind == "normal" for one in told) == len(returned)
            elif action == "kill":
                oracle.close()
                oracle = HumanOracle(folder, timeout=0.0)
            else:
                count = min(2 if action == "ask two" else 1, 6 - oracle.asked)
                before = oracle.asked
                try:
                    got = oracle.answer(ask(before, count=count)).responses if count else ()
                except AnswerTimeoutError:
                    continue
                assert list(got[: len(returned) - before]) == returned[before : before + count]
                returned = [*returned[:before], *got, *returned[before + len(got) :]]
        history = server.store.history(person.id)
        stored = [answer.response for one, answer in history if one.kind == "normal" and answer is not None]
        assert stored[: len(returned)] == returned
        oracle.close()
        oracle = HumanOracle(folder, timeout=0.0)
        if returned:
            assert list(oracle.answer(ask(count=len(returned))).responses) == returned
    finally:
        oracle.close()
        server.close()
