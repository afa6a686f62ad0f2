"""``edpbrl reproduce llm`` over real HTTP: texts, images, the report, the dry run, and where the key is not."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time

import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.experiments.llm.asking import LEDGER
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.personalize.taste import load_taste
from examples.local_judge import LocalJudge
from tests.helpers.tiny_llm import EPISODES, OPTIONS, QUESTIONS, STYLES, save_embeddings

KEY = "sk-a-key-that-must-not-be-written-anywhere"
PRICES = ("--price-per-million-input", "0.4", "--price-per-million-output", "1.6")
ARMS = ("newton,criterion=D,regularization=1", "random")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, minilm):
    return save_embeddings(tmp_path_factory.mktemp("inputs"), minilm)


def arguments(inputs, out, *more: str) -> list[str]:
    words, embeddings = inputs
    small = f"--episodes {EPISODES} --train-sizes 2 5 --test-episodes 1 --folds 2 --num-options {OPTIONS}"
    small += f" --lambdas 1 100 --agents {' '.join(ARMS)} --jobs 1 --seed 1000 --judge-model local"
    styles = ["--styles", "noir", *(f"{name}={text}" for name, text in STYLES.items())]
    given = ["--vocabulary", str(words), "--encoder", f"precomputed:{embeddings}", "--out", str(out)]
    return ["reproduce", "llm", *small.split(), *styles, *given, *more]


@pytest.fixture(scope="module")
def finished(inputs, tmp_path_factory, minilm):
    """A run whose server wants a key; what the terminal and the logs said."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    with pytest.MonkeyPatch.context() as patch, LocalJudge(encoder=minilm, api_key=KEY) as server:
        patch.setenv("JUDGE_KEY", KEY)
        given = arguments(inputs, out, "--base-url", server.base_url, "--api-key-variable", "JUDGE_KEY")
        assert main([*given, "--second-look", *PRICES]) == 0
        count = server.requests
    logging.getLogger().removeHandler(handler)
    return out, count, heard


def test_the_table_has_every_style_arm_estimate_fold_and_size(finished):
    out, asked, _ = finished
    results = read_results(out)
    accuracy = results.table[results.table["part"] == "accuracy"]
    assert len(accuracy) == 3 * 2 * 4 * 2 * 2 * 2  # styles, arms, estimators, folds, sizes, tested arms
    assert set(accuracy["arm"]) == {"ED-PBRL (D, lambda 1)", "Random"}
    assert (accuracy["test_questions"] == 3).all() and accuracy["accuracy"].between(0, 1).all()
    answers = results.table[results.table["part"] == "answer"]
    assert len(answers) == 3 * 2 * QUESTIONS and (answers["reason"] == "answered").all()
    assert sum(results.provenance["equal_options"].values()) > 0  # of these, two looks choose one or the other
    assert (answers["consistent"] == 1.0).all()  # no favourite label, and noise that only the question decides
    assert results.provenance["accounts"]["noir"]["consistency"] == 1.0
    spent = [account["spent"]["tokens"] for account in results.provenance["accounts"].values()]
    assert answers[["input_tokens", "output_tokens"]].sum().sum() == max(spent)  # equal questions are paid for once
    assert asked <= 2 * len(answers) and set(answers["label"]) == {0, 1, 2}
    assert results.provenance["accounts"]["noir"]["looks_compared"] == 2 * QUESTIONS


def test_the_key_is_nowhere_in_the_run_folder_or_the_logs_nor_are_prompts_in_the_logs(finished):
    out, _, heard = finished
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > 15
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
    config = json.loads((out / "config.json").read_text())["config"]
    assert config["judge"]["model"] == "local" and config["rendering"] is None
    assert not {"base_url", "api_key_variable"} & set(config["judge"])  # a server may move between two sessions
    said = "\n".join(heard)
    assert KEY not in said and "lighthouse" not in said and STYLES["night"] not in said


def test_the_report_says_what_was_done_and_is_rebuilt_from_the_parquet_alone(finished, tmp_path):
    out, _, _ = finished
    report = (out / "REPORT.md").read_text()
    known = ("paper: ED-PBRL", "47.2", "guidance text", "judge local", "D-design, lambda = 1,", STYLES["night"])
    for text in (*known, "Cost at the given prices"):
        assert text in report, text
    assert "100.0%" in report  # both looks agree
    taste = load_taste(out / "tastes" / "00-noir-arm0.safetensors")
    assert taste.theta.shape == (384,) and taste.provenance["questions"] == QUESTIONS
    assert len(list((out / "tastes").iterdir())) == 3 * 2
    names = {path.name for path in (out / "figures").iterdir()}
    assert names == {f"accuracy-{name}{end}" for name in ("curves", "styles") for end in (".png", ".pdf")}
    (tmp_path / "results.parquet").write_bytes((out / "results.parquet").read_bytes())
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "REPORT.md").read_text() == report


def test_a_dry_run_counts_what_a_run_asks_and_does_nothing(inputs, tmp_path, capsys):
    given = arguments(inputs, tmp_path / "none", "--dry-run", "--second-look")
    assert main([*given, "--price-per-million-input", "1", "--price-per-million-output", "2"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{3 * 2 * QUESTIONS * 2} questions to local" in printed and "Cost: about" in printed
    assert not (tmp_path / "none").exists()
    assert main(arguments(inputs, tmp_path, "--dry-run", "--renderer", "posters", "--price", "0.5")) == 0
    most = 2 * QUESTIONS * OPTIONS
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{most} images to render with posters, for at most {most / 2:g}" in printed
    assert main(["reproduce", "llm", "--dry-run"]) == 0
    assert "7200 questions to gpt-4.1-mini" in " ".join(capsys.readouterr().out.split())


def test_a_password_in_an_address_is_refused_and_not_said(inputs, tmp_path, capsys):
    assert main(arguments(inputs, tmp_path / "none", "--base-url", "http://user:secret@host/v1")) == 2
    said = capsys.readouterr().err
    assert "without a password" in said and "secret" not in said and not (tmp_path / "none").exists()


def test_a_missing_key_is_said_before_anything_is_designed(inputs, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert main(arguments(inputs, tmp_path / "run", "--api-key-variable", "NO_SUCH_KEY")) == 1
    assert "NO_SUCH_KEY" in capsys.readouterr().err and not (tmp_path / "run" / "designs").exists()


def test_images_are_rendered_shown_and_kept(inputs, tiny_pipeline, tmp_path, minilm):
    given = arguments(inputs, tmp_path / "run", "--renderer", str(tiny_pipeline), "--steps", "1")
    given += ["--cache", str(tmp_path / "images"), "--batch-size", "8", "--styles", "noir", "--agents", "random"]
    with LocalJudge(encoder=minilm) as server:
        assert main([*given, "--base-url", server.base_url]) == 0
        assert all(asked.pictures is not None and len(asked.pictures) == OPTIONS for asked in server.asked)
        assert len(server.asked) <= QUESTIONS
        before = server.requests
        assert main([*given, "--base-url", server.base_url]) == 0 and server.requests == before
    results = read_results(tmp_path / "run")
    assert results.config["rendering"]["steps"] == 1 and len(results.config["rendering"]["fingerprint"]) == 64
    texts = pandas.read_parquet(tmp_path / "run" / "parts" / "questions-00.parquet")["text"]
    assert len(list((tmp_path / "images").rglob("*.png"))) == texts.nunique()
    assert "Images: tiny" in (tmp_path / "run" / "REPORT.md").read_text()


def test_questions_without_a_picture_are_counted_and_not_asked(inputs, tmp_path, minilm, capsys):
    given = arguments(inputs, tmp_path / "run", "--cache", str(tmp_path / "images"), "--styles", "noir")
    given += ["--agents", "random", "--renderer", "tests.helpers.renderers:Picky"]
    with LocalJudge(encoder=minilm) as server:
        given = [*given, "--base-url", server.base_url]
        assert main(given) == 0
        table = pandas.read_parquet(tmp_path / "run" / "parts" / "questions-00.parquet")
        bad = (table["text"].str.len() % 5 == 0).groupby([table["episode"], table["step"]]).any()
        answers, asked = read_results(tmp_path / "run").table, server.requests
        assert 0 < (~bad).sum() == (answers["reason"] == "answered").sum() < len(bad)
        assert (answers["reason"] == "undrawn").sum() == bad.sum()
        assert "undrawn" in (tmp_path / "run" / "REPORT.md").read_text(encoding="utf-8")
        given[given.index("--out") + 1] = str(tmp_path / "other")
        capsys.readouterr()
        assert main([*given, "--renderer-option", "every=1"]) == 1
        assert "an image of each prompt from a picky one, got none of" in capsys.readouterr().err
        assert server.requests == asked


def test_terminated_it_keeps_every_answer_under_way_and_goes_on_later(inputs, tmp_path, minilm, capsys):
    """SIGTERM in the middle of the questions, as a scheduler sends it."""

    def unexpected(number, frame):
        raise AssertionError("the command does not listen to SIGTERM")

    before = signal.signal(signal.SIGTERM, unexpected)
    try:
        with LocalJudge(encoder=minilm, delay=0.3) as server:
            given = [*arguments(inputs, tmp_path / "run", "--base-url", server.base_url), "--agents", "random"]
            given += ["--concurrency", "4"]  # few at a time: the signal comes before the last ones are asked

            def terminate():
                while len(server.asked) < 10:
                    time.sleep(0.002)
                os.kill(os.getpid(), signal.SIGTERM)

            threading.Thread(target=terminate, daemon=True).start()
            assert main(given) == 130
            assert "the same command resumes" in capsys.readouterr().err
            kept = (tmp_path / "run" / LEDGER).read_text().count('"kind":"answer"')
            assert 10 <= kept == server.requests < QUESTIONS
            assert signal.getsignal(signal.SIGTERM) is unexpected
            assert main(given) == 0
            assert server.requests == (tmp_path / "run" / LEDGER).read_text().count('"kind":"answer"') > kept
    finally:
        signal.signal(signal.SIGTERM, before)
