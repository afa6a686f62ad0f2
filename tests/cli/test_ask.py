"""`edpbrl ask` through pipes and pseudo-terminals: answers, resuming, kills, locks, refusals."""

import io
import itertools
import os
import shlex
import signal
import subprocess
import sys
import termios
import time
from datetime import datetime, timedelta

import numpy as np
import pytest

from edpbrl_gym._log import decode, encode
from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.personalize.taste import load_taste
from tests.helpers.commands import refused
from tests.helpers.communities import known_population
from tests.helpers.small_vocabulary import TOKENS, write_embedded, write_vocabulary
from tests.helpers.terminals import PROGRAM, Terminal, events, told


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_embedded(tmp_path_factory.mktemp("words"))


@pytest.fixture
def begin(words, tmp_path):
    """The arguments that begin questions in a folder."""
    vocabulary, encoder = words
    given = ["--vocabulary", vocabulary, "--encoder", encoder, "--num-options", "4"]
    return ["ask", "--terminal", "--out", str(tmp_path / "ask"), *given]


def piped(monkeypatch, text, *arguments):
    """Run a command with a text at its stdin; return the exit code."""
    data = text if isinstance(text, bytes) else text.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
    return main([str(argument) for argument in arguments])


def test_answers_from_a_pipe_make_the_taste_of_edpbrl_estimate(begin, words, tmp_path, monkeypatch, capsys):
    out = tmp_path / "ask"
    assert piped(monkeypatch, "3\n\n2 1\ns\n1\nu\nundo\n4\n1 2 3\n", *begin) == 0
    printed = capsys.readouterr().out
    assert told(out) == [("best", [2]), ("partial", [1, 0]), ("best", [3]), ("ranking", [0, 1, 2, 3])]
    assert "Question 5:" in printed and "Took back the answer to question 3, which was can't tell." in printed
    assert "% sure" in printed and "of 100 random prompts" in printed
    answers = Comparisons.from_parquet(out / "answers.parquet")
    assert [(answer.kind, list(answer.order)) for answer in answers.responses] == told(out)
    assert answers.who == "you" and all(len(set(texts)) == 4 for texts in answers.texts)
    estimated = ["estimate", out / "answers.parquet", "--vocabulary", words[0], "--out", tmp_path / "theta.safetensors"]
    assert main([str(argument) for argument in estimated]) == 0
    taste, same = load_taste(out / "taste.safetensors"), load_taste(tmp_path / "theta.safetensors")
    np.testing.assert_array_equal(taste.theta, same.theta)
    assert taste.provenance == same.provenance
    line = next(line for line in printed.splitlines() if "edpbrl personalize" in line)
    following = shlex.split(line.partition(": ")[2])[1:]
    assert "--vocabulary" not in following  # the taste knows it
    assert main([*following, "--count", "2", "--out", str(tmp_path / "prompts.csv")]) == 0
    written = capsys.readouterr().out
    assert "words of its own (1-bases 8, 2-ambient 8, 3-lighting 8), with which the taste was learnt" in written
    prompts = (tmp_path / "prompts.csv").read_text(encoding="utf-8")
    assert any(light in prompts for light in TOKENS["3-lighting"])


def test_the_prompts_on_the_last_screen_and_in_the_folder_differ(begin, tmp_path, monkeypatch, capsys):
    assert piped(monkeypatch, "3\n1\n2\n", *begin, "--count", "7") == 0
    printed = " ".join(capsys.readouterr().out.split())
    lines = (tmp_path / "ask/prompts.txt").read_text(encoding="utf-8").splitlines()
    prompts = [line.split(", ") for line in lines]
    assert len(prompts) == 7
    for first, second in itertools.combinations(prompts, 2):
        assert sum(map(str.__eq__, first, second)) <= 1  # half of three phrases, rounded down
    assert "Phrases you like and dislike" in printed
    places = [printed.index(", ".join(prompt), printed.index("What you like, as prompts")) for prompt in prompts]
    assert places == sorted(places) and "Only" not in printed[places[-1] :]


@pytest.mark.parametrize("bad", ["1 2 2", b"\xff\xfe"])
def test_a_bad_line_of_a_pipe_ends_with_its_number_and_loses_nothing(begin, tmp_path, monkeypatch, capsys, bad):
    text = b"3\n" + (bad if isinstance(bad, bytes) else bad.encode()) + b"\n2\n"
    assert piped(monkeypatch, text, *begin) == 1
    error = capsys.readouterr().err
    assert "Line 2 of the input: Expected the number of the best option, 1 to 4" in error
    assert told(tmp_path / "ask") == [("best", [2])]
    assert len(Comparisons.from_parquet(tmp_path / "ask/answers.parquet")) == 1
    assert load_taste(tmp_path / "ask/taste.safetensors").provenance["questions"] == 1
    assert piped(monkeypatch, "1\n", "ask", "--terminal", "--out", tmp_path / "ask") == 0
    assert told(tmp_path / "ask") == [("best", [2]), ("best", [0])]


def test_interrupted_questions_go_on_as_uninterrupted_ones(begin, tmp_path, monkeypatch, capsys):
    whole = tmp_path / "whole"
    assert piped(monkeypatch, "1\n2\n3\n4\n1\n", *begin, "--out", whole, "--questions", "5") == 0
    for lines in ("1\n2\nq\n4\n", "3\n4\n", "1\n2\n"):  # what follows q, or comes after five questions, is not read
        assert piped(monkeypatch, lines, *begin, "--questions", "5") == 0
    parts = [[event for event in events(out) if event["type"] == "ask"] for out in (whole, tmp_path / "ask")]
    assert parts[0] == parts[1][: len(parts[0])] and told(whole) == told(tmp_path / "ask")
    thetas = [load_taste(out / "taste.safetensors").theta for out in (whole, tmp_path / "ask")]
    np.testing.assert_array_equal(*thetas)
    assert piped(monkeypatch, "", *begin, "--questions", "5") == 0  # nothing to ask: the taste again


def test_other_questions_in_the_same_folder_are_refused(begin, words, tmp_path, monkeypatch, capsys):
    assert piped(monkeypatch, "1\n", *begin) == 0
    capsys.readouterr()
    before = (tmp_path / "ask/session/journal.jsonl").read_bytes()
    for option, value in (
        ("--vocabulary", "interiors"),
        ("--num-options", "3"),
        ("--format", "ranking"),
        ("--planner", "random"),
        ("--seed", "1"),
        ("--feedback", "state"),
        ("--encoder", "minilm"),
    ):
        refused(capsys, [*begin, option, value], 2, f"Expected {option}", "began, got", "another --out")
    assert (tmp_path / "ask/session/journal.jsonl").read_bytes() == before


def test_a_vocabulary_that_changed_and_damaged_settings_are_refused(words, tmp_path, monkeypatch, capsys):
    folder = write_vocabulary(tmp_path / "words")
    given = ["--vocabulary", str(folder), "--encoder", words[1], "--num-options", "3"]
    begin = ["ask", "--terminal", "--out", str(tmp_path / "ask"), *given]
    assert piped(monkeypatch, "1\n", *begin) == 0
    capsys.readouterr()
    (folder / "2-ambient.txt").write_text("cheerful\nsolemn\nfestive\n", encoding="utf-8")
    refused(capsys, begin, 1, "Expected the tokens of", "they have changed since")
    (tmp_path / "ask/ask.json").write_text('{"format_of_file": "edpbrl-gym ask 9"}')
    refused(capsys, begin, 1, "Expected the settings of `edpbrl ask` in", "another version")


def test_a_planner_of_best_options_and_foreign_folders_are_refused(begin, tmp_path, capsys):
    own = "tests.helpers.session_planners:GreedyPlanner"
    refused(capsys, [*begin, "--planner", own], 2, "learns from best options only")
    assert not (tmp_path / "ask").exists()
    (tmp_path / "ask").mkdir()
    (tmp_path / "ask/answers.parquet").write_text("someone's")
    refused(capsys, begin, 2, "Expected no answers.parquet in")
    assert (tmp_path / "ask/answers.parquet").read_text() == "someone's"


def test_all_answers_taken_back_leave_no_taste(begin, tmp_path, monkeypatch, capsys):
    assert piped(monkeypatch, "1\n", *begin) == 0
    assert (tmp_path / "ask/taste.safetensors").exists()
    assert piped(monkeypatch, "u\nu\n", *begin) == 0
    printed = capsys.readouterr().out
    assert "There is no answer to take back yet." in printed and "Nothing learnt yet." in printed
    left = {path.name for path in (tmp_path / "ask").iterdir()}
    assert not left & {"taste.safetensors", "answers.parquet", "prompts.txt"}
    assert piped(monkeypatch, "s\ns\n", *begin) == 0
    assert told(tmp_path / "ask") == [("skip", [])] * 2


@pytest.mark.parametrize(("feedback", "planner"), [("truncated", "random"), ("state", "adaptive")])
def test_other_planners_and_feedback_never_show_an_option_twice(begin, tmp_path, monkeypatch, feedback, planner):
    other = ["--feedback", feedback, "--planner", planner, "--format", "ranking"]
    assert piped(monkeypatch, "1\n2 3\n3\n4 3 2 1\n", *begin, *other) == 0
    assert [kind for kind, _ in told(tmp_path / "ask")] == ["best", "partial", "best", "ranking"]
    answers = Comparisons.from_parquet(tmp_path / "ask/answers.parquet")
    assert len(answers) == 4 and all(len(set(texts)) == 4 for texts in answers.texts)


def test_under_a_population(begin, tmp_path, monkeypatch, capsys):
    population = known_population(3.0 * np.eye(10)[0])
    place = tmp_path / "population.safetensors"
    population.save(place)
    assert piped(monkeypatch, "1\n2\n", *begin, "--prior", place) == 0
    assert piped(monkeypatch, "3\n", "ask", "--terminal", "--out", tmp_path / "ask") == 0
    provenance = load_taste(tmp_path / "ask/taste.safetensors").provenance
    assert provenance["prior"] == "population" and provenance["questions"] == 3
    assert provenance["population_fingerprint"] == population.fingerprint
    known_population(4.0 * np.eye(10)[0]).save(place)
    capsys.readouterr()
    again = ["ask", "--terminal", "--out", str(tmp_path / "ask")]
    refused(capsys, again, 1, "Expected the population with which the session")


def started(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


def read_until(process, text):
    seen = b""
    while text not in seen:
        data = os.read(process.stdout.fileno(), 4096)
        assert data, (seen, process.stderr.read())
        seen += data
    return seen


def test_a_killed_process_loses_no_answer_and_the_folder_is_free(begin, tmp_path, monkeypatch, capsys):
    process = started(*begin)
    for number in (3, 1, 2):
        read_until(process, b"Question")
        process.stdin.write(f"{number}\n".encode())
        read_until(process, f"You: {number}".encode())
    process.stdin.write(b"4\n")
    process.kill()
    process.wait()
    seen = told(tmp_path / "ask")
    assert seen in (
        [("best", [2]), ("best", [0]), ("best", [1])],
        [("best", [2]), ("best", [0]), ("best", [1]), ("best", [3])],
    )
    assert piped(monkeypatch, "1\n", "ask", "--terminal", "--out", tmp_path / "ask") == 0
    assert told(tmp_path / "ask") == [*seen, ("best", [0])]
    said = " ".join(capsys.readouterr().out.split())  # a long path moves the line's end
    assert f"{len(seen)} questions answered" in said


def test_a_second_process_is_refused(begin, tmp_path, capsys):
    process = started(*begin)
    read_until(process, b"Question 1")
    refused(capsys, begin, 1, "to be free, another process", str(process.pid))
    process.stdin.write(b"2\n")
    process.stdin.close()
    assert process.wait(60) == 0 and told(tmp_path / "ask") == [("best", [1])]


def test_single_keys(begin, tmp_path):
    out = tmp_path / "ask"
    with Terminal(*begin, width=60) as terminal:
        terminal.question(1)
        assert "1-4 best   R rank   S can't tell   U undo   Q stop" in terminal.plain
        terminal.press("\x1b[A\x1bOBx05")  # arrows, and numbers of no option
        terminal.press("3")
        terminal.until("You: 3")
        terminal.question(2)
        terminal.until("% sure")
        terminal.press("r2")
        terminal.until("in order, Enter ends: 2")
        terminal.press("1\x7f4\r")
        terminal.until("You: 2 4")
        terminal.question(3)
        terminal.press("u")
        terminal.until("which was 2 4.")
        terminal.question(2)
        terminal.press("s")
        terminal.until("You: can't tell")
        terminal.question(3)
        terminal.press("q")
        assert terminal.end() == 0
        assert termios.tcgetattr(terminal.follower) == terminal.before
        assert max(map(len, terminal.plain.split("What you like")[0].replace("\r", "\n").split("\n"))) <= 60
    assert told(out) == [("best", [2]), ("skip", [])]
    assert (out / "taste.safetensors").exists()


def test_a_key_pressed_twice_answers_once(begin, tmp_path):
    with Terminal(*begin) as terminal:
        terminal.question(1)
        terminal.press("333")
        terminal.question(2)
        terminal.press("q")
        assert terminal.end() == 0
    assert told(tmp_path / "ask") == [("best", [2])]


def test_keys_of_another_format_and_ctrl_c(begin, tmp_path):
    with Terminal(*begin, "--format", "best-worst") as terminal:
        terminal.question(1)
        terminal.press("42")
        terminal.until("You: 4 2")
        terminal.question(2)
        terminal.press("\x03")
        terminal.until("What you like, as prompts")
        assert terminal.end() == 0
        assert termios.tcgetattr(terminal.follower) == terminal.before
    assert told(tmp_path / "ask") == [("best_worst", [3, 1])]


def test_a_terminated_process_restores_the_terminal(begin, tmp_path):
    with Terminal(*begin) as terminal:
        terminal.question(1)
        terminal.press("1")
        terminal.question(2)
        assert termios.tcgetattr(terminal.follower) != terminal.before
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 128 + signal.SIGTERM
        assert termios.tcgetattr(terminal.follower) == terminal.before
    assert len(Comparisons.from_parquet(tmp_path / "ask/answers.parquet")) == 1


def test_more_than_nine_options_are_typed_as_numbers(words, tmp_path):
    vocabulary, encoder = words
    given = ["--vocabulary", vocabulary, "--encoder", encoder, "--num-options", "11"]
    begin = ["ask", "--terminal", "--out", tmp_path / "ask", *given]
    with Terminal(*begin) as terminal:
        terminal.until("Type 1-11, s can't tell, u undo or q stop, and Enter")
        time.sleep(1.0)
        terminal.press("12\n")
        terminal.until("Expected the number of the best option, 1 to 11")
        terminal.press("11\n")
        terminal.until("You: 11")
        terminal.until("Type 1-11")
        time.sleep(1.0)
        terminal.press("q\n")
        assert terminal.end() == 0
    assert told(tmp_path / "ask") == [("best", [10])]


def long_ago(out, days):
    """Move the answers of a journal to an earlier time."""
    lines = []
    for raw in (out / "session/journal.jsonl").read_bytes().rstrip(b"\0").splitlines():
        line = decode(raw)
        if line["type"] == "tell":
            line["at"] = (datetime.fromisoformat(line["at"]) - timedelta(days=days)).isoformat()
        lines.append(encode(line))
    (out / "session/journal.jsonl").write_bytes(b"".join(lines))


def test_days_later_the_last_answers_are_shown_and_the_person_decides(begin, tmp_path, monkeypatch, capsys):
    out = tmp_path / "ask"
    assert piped(monkeypatch, "3\n1\n", *begin) == 0
    assert piped(monkeypatch, "s\n", *begin) == 0
    printed = capsys.readouterr().out
    assert "Going on in" in printed and "days ago" not in printed
    long_ago(out, 3)
    before = events(out)
    with Terminal("ask", "--terminal", "--out", out) as terminal:
        shown = terminal.until("Enter goes on")
        assert "3 days ago" in shown and "question 1, 3:" in shown and "question 3, can't tell" in shown
        assert "Question" not in shown
        time.sleep(0.6)
        terminal.press("2q")  # a number is no answer to this
        assert terminal.end() == 0
    assert events(out) == before
    with Terminal("ask", "--terminal", "--out", out) as terminal:
        terminal.until("Enter goes on")
        time.sleep(0.6)
        terminal.press("\r")
        terminal.question(4)
        terminal.press("2")
        terminal.until("You: 2")
        terminal.press("q")
        terminal.question(5)
        terminal.press("q")
        assert terminal.end() == 0
    assert told(out)[-1] == ("best", [1]) and len(told(out)) == 4


@pytest.mark.parametrize(
    ("more", "keys", "told_levels", "asked"),
    [
        (("--format", "rating"), "425", [3, 1, 4], "how much do you like it, from 1 to 5?"),
        (("--format", "rating", "--levels", "3"), "313", [2, 0, 2], "from 1 to 3?"),
        (("--format", "like"), "212", [1, 0, 1], "do you like it? 1 no, 2 yes"),
    ],
)
def test_one_prompt_at_a_time_is_rated_with_single_keys(words, tmp_path, more, keys, told_levels, asked):
    vocabulary, encoder = words
    out = tmp_path / "ask"
    given = ["ask", "--terminal", "--out", str(out), "--vocabulary", vocabulary, "--encoder", encoder]
    given += ["--num-options", "1", *more]
    with Terminal(*given) as terminal:
        terminal.until("One prompt at a time")
        for number, key in enumerate(keys, start=1):
            assert asked in terminal.question(number)
            terminal.press("9" + key)  # 9 is no level
            terminal.until(f"You: {key}")
        terminal.question(len(keys) + 1)
        terminal.press("q")
        terminal.until("Written from 3 questions")
    answers = Comparisons.from_parquet(out / "answers.parquet")
    assert [answer.levels for answer in answers.responses] == [(level,) for level in told_levels]
    assert load_taste(out / "taste.safetensors").provenance["questions"] == 3


def test_several_are_rated_in_a_pipe_and_the_same_taste_is_estimated(words, tmp_path, monkeypatch, capsys):
    vocabulary, encoder = words
    out = tmp_path / "ask"
    given = ["ask", "--terminal", "--out", out, "--vocabulary", vocabulary, "--encoder", encoder, "--num-options", "2"]
    assert piped(monkeypatch, "5 1\n2,2\ns\nu\n4 5\n", *given, "--format", "rating") == 0
    assert [one.levels for one in Comparisons.from_parquet(out / "answers.parquet").responses] == [
        (4, 0),
        (1, 1),
        (3, 4),
    ]
    estimated = [
        "estimate",
        out / "answers.parquet",
        "--vocabulary",
        vocabulary,
        "--out",
        tmp_path / "theta.safetensors",
    ]
    assert main([str(argument) for argument in estimated]) == 0
    one, other = load_taste(out / "taste.safetensors"), load_taste(tmp_path / "theta.safetensors")
    np.testing.assert_array_equal(one.theta, other.theta)
    assert piped(monkeypatch, "6\n", *given, "--format", "rating") == 1
    assert "Expected 2 numbers from 1 to 5" in capsys.readouterr().err


def test_the_best_of_one_is_no_question(words, tmp_path, capsys):
    vocabulary, encoder = words
    given = ["ask", "--terminal", "--out", str(tmp_path / "ask"), "--vocabulary", vocabulary, "--encoder", encoder]
    refused(capsys, [*given, "--num-options", "1"], 2, "num_options (K)", ">= 2")
