"""``edpbrl bench`` on small pools and a tiny vocabulary: both studies, resuming, determinism, mistakes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym.cli import main
from edpbrl_gym.experiments.bench.run import BENCH, plan_units
from edpbrl_gym.experiments.bench.settings import BenchSettings
from edpbrl_gym.experiments.framework import gather, run_experiment
from edpbrl_gym.experiments.runs import read_results
from tests.helpers.commands import refused
from tests.helpers.killing import kill_when_two_parts_are_done, part_times
from tests.helpers.small_vocabulary import write_embedded

ARMS = ("random", "d-design", "adaptive")
PROMPTS, ITEMS = ("argmax", "scale-20"), ("items-d10-K4", "items-d10-K2")
COMPARED = (
    *("random", "greedy_d", "bald", "qeubo,prior=vocabulary", "adaptive", "adaptive-best", "tuples", "ed-pbrl"),
    "ed-pbrl-exact",
)
SEEDS = 2
UNITS = len(PROMPTS) * len(ARMS) * SEEDS * 2  # two users of a seed


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A vocabulary folder, and the encoder of all its partial prompts."""
    return write_embedded(tmp_path_factory.mktemp("bench"))


def command(study: str, words, out, *more: str, regimes, arms, jobs: str = "1") -> list[str]:
    return [
        "bench", study, "--vocabulary", words[0], "--encoder", words[1], "--seeds", str(SEEDS), "--regime", *regimes,
        "--arm", *arms, "--jobs", jobs, "--out", str(out), *more,
    ]  # fmt: skip


def arguments(words, out, *more: str, arms=ARMS, jobs: str = "1") -> list[str]:
    return command("efficiency", words, out, "--episodes", "1", "2", "4", *more, regimes=PROMPTS, arms=arms, jobs=jobs)


def comparison(words, out, *more: str, regimes=ITEMS, arms=COMPARED, jobs: str = "1") -> list[str]:
    small = ("--questions", "2", "8", "--episodes", "1", "2", "--first-seed", "1000")
    return command("comparison", words, out, *small, *more, regimes=regimes, arms=arms, jobs=jobs)


def numbers(out) -> pandas.DataFrame:
    """The results without the times, which no two runs share, and the version of the code, which is being written."""
    table = read_results(out).table
    return table.drop(columns=[name for name in table.columns if name.startswith("seconds") or name == "code"])


@pytest.fixture(scope="module")
def finished(words, tmp_path_factory, embedding_cache):
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main(arguments(words, out)) == 0
    return out


def test_every_unit_has_its_rows(finished):
    table = read_results(finished).table
    estimators = table.groupby("arm")["estimator"].unique().map(set).to_dict()
    assert estimators["adaptive"] == {"vocabulary", "planner"} and estimators["d-design"] == {"vocabulary"}
    assert len(estimators["random"]) == 6
    assert len(table) == 2 * SEEDS * 2 * 3 * (6 + 1 + 2)  # regimes, seeds, users, T, estimators of the arms
    assert set(table["arm"]) == set(ARMS) and set(table["regime"]) == {"argmax", "scale-20"}
    assert (table["questions"] == 3 * table["episodes"]).all() and table["converged"].all()
    assert table["cosine_error"].between(0, 2).all()
    assert table[["preference_error", "choice_error"]].apply(lambda column: column.between(0, 1)).all(axis=None)
    assert (table.loc[table["regime"] == "argmax", "best_chosen"] == 1.0).all()
    assert (table.loc[table["regime"] == "scale-20", "best_chosen"] < 1.0).any() and (table["skipped"] == 0).all()
    searched = (table["episodes"] == 4) & table["estimator"].isin(["vocabulary", "ridge100", "planner"])
    assert table.loc[~searched, "regret"].isna().all() and (table.loc[searched, "regret"] >= -1e-6).all()
    means = table[table["regime"] == "argmax"].groupby(["arm", "estimator", "episodes"])["cosine_error"].mean()
    assert means["random", "vocabulary", 4] < means["random", "vocabulary", 1]


def test_all_users_of_a_seed_answer_the_same_questions_and_their_draws_are_one(finished):
    table = read_results(finished).table
    cell = table[(table["seed"] == 1) & (table["episodes"] == 4) & (table["regime"] == "scale-20")]
    shown = cell[cell["arm"] == "random"].groupby("user")["best_shown"]
    assert shown.nunique().tolist() == [1, 1] and cell["best_chosen"].nunique() > 1
    assert len(list((finished / "questions").glob("*random*"))) == SEEDS
    assert len(list((finished / "designs").iterdir())) == 1


def test_report_figures_and_page(finished, words, tmp_path, capsys):
    report = (finished / "REPORT.md").read_text()
    for text in ("Questions needed", "Win, tie or loss", "What each piece buys", "Milliseconds", "sunny", "Friedman"):
        assert text in report
    code = read_results(finished).table["code"]
    assert code.nunique() == 1 and f"the same code (sha256 {code[0]})" in report
    names = {path.name for path in (finished / "figures").iterdir()}
    assert {"curves.png", "curves.pdf", "metrics.png", "needed.png", "pieces.png"} <= names
    for name in ("curves", "metrics", "needed", "pieces"):
        image = Image.open(finished / "figures" / f"{name}.png").convert("L")
        assert np.count_nonzero(image.histogram()) > 50, name
    before = {path: path.read_bytes() for path in [finished / "REPORT.md", *(finished / "figures").iterdir()]}
    (finished / "figures" / "curves.png").unlink()
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    assert main(["bench", "efficiency", "--report", str(finished), "--page", str(page)]) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert "(bench-curves.png)" in page.read_text() and (page.parent / "bench-curves.png").is_file()
    assert "Questions needed" in capsys.readouterr().out
    # the parquet stands alone
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "results.parquet").write_bytes((finished / "results.parquet").read_bytes())
    assert main(["bench", "efficiency", "--report", str(alone)]) == 0
    assert (alone / "REPORT.md").read_bytes() == before[finished / "REPORT.md"]


def test_the_same_numbers_in_any_number_of_processes(finished, words, tmp_path):
    assert main(arguments(words, tmp_path / "again", jobs="2")) == 0
    pandas.testing.assert_frame_equal(numbers(tmp_path / "again"), numbers(finished), rtol=0, atol=1e-9)


def test_arms_may_be_added_to_a_folder_later(finished, words, tmp_path):
    out = tmp_path / "grows"
    settings = BenchSettings(episodes=(1, 2, 4), vocabulary=words[0], encoder=words[1])

    def run(arms):
        units = plan_units(settings, regimes=PROMPTS, arms=arms, seeds=SEEDS)
        return run_experiment(BENCH, settings, out, units=units, jobs=1)

    first = run(ARMS[:1])
    assert set(first.table["arm"]) == {ARMS[0]}
    done = {path.name: path.stat().st_mtime_ns for path in out.glob("parts/*")}
    run(ARMS[1:])
    after = part_times(out)
    assert {name: after[name] for name in done} == done
    pandas.testing.assert_frame_equal(numbers(out), numbers(finished), rtol=0, atol=1e-9)
    # an unfinished run can be looked at: what is finished counts
    (out / "results.parquet").unlink()
    next(out.glob("parts/scale-20__d-design__*")).unlink()
    assert len(gather(BENCH, out).table) == len(numbers(finished)) - 3


def test_a_killed_run_goes_on_and_ends_with_the_same_table(finished, words, tmp_path):
    out = tmp_path / "killed"
    done = kill_when_two_parts_are_done(arguments(words, out), out)
    assert 2 <= len(done) < UNITS and not (out / "results.parquet").exists()
    assert main(["bench", "efficiency", "--report", str(out)]) == 0  # an unfinished run can be looked at
    assert main(arguments(words, out)) == 0
    after = part_times(out)
    assert len(after) == UNITS and {name: after[name] for name in done} == done
    pandas.testing.assert_frame_equal(numbers(out), numbers(finished), rtol=0, atol=1e-9)


# -- comparison ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(words, tmp_path_factory, embedding_cache):
    out = tmp_path_factory.mktemp("runs") / "compared"
    assert main(comparison(words, out)) == 0
    return out


def test_pools_of_items_and_every_kind_of_arm(compared):
    table = read_results(compared).table
    assert len(table) == len(ITEMS) * SEEDS * 2 * (2 * (len(COMPARED) - 2) + 6 + 1)  # "random" has 6, "tuples" 1
    assert set(table["arm"]) == set(COMPARED) and set(table["seed"]) == {1000, 1001}
    assert table["converged"].all() and (table["questions"] == table["episodes"]).all()
    assert table["cosine_error"].between(0, 2).all() and (table["regret"] >= 0).all()
    assert (table.filter(like="seconds").drop(columns="seconds_setup") >= 0).all(axis=None)
    last = table[table["episodes"] == 8].set_index(["regime", "seed", "arm", "estimator"])["cosine_error"]
    for regime, seed in itertools.product(ITEMS, (1000, 1001)):
        assert last[regime, seed, "adaptive", "vocabulary"] == pytest.approx(
            last[regime, seed, "adaptive", "planner"], abs=0.02
        )


def test_report_of_a_comparison(compared, capsys):
    report = (compared / "REPORT.md").read_text()
    for text in (
        "Where other arms are better",
        "End to end",
        "Milliseconds per question",
        "Friedman",
        "first is",
        "BALD",
    ):
        assert text in report, text
    assert "Questions needed" not in report  # no prompt MDP
    names = {path.name for path in (compared / "figures").iterdir()}
    for name in ("ranks", "regimes", "rank-curves", "regret", "own"):
        assert {f"{name}.png", f"{name}.pdf"} <= names
        image = Image.open(compared / "figures" / f"{name}.png").convert("L")
        assert np.count_nonzero(image.histogram()) > 50, name
    assert main(["bench", "comparison", "--report", str(compared)]) == 0
    assert (compared / "REPORT.md").read_text() == report and "Average ranks" in capsys.readouterr().out


def test_all_planners_in_prompt_mdps_in_any_number_of_processes(words, tmp_path, embedding_cache):
    regimes = ("pairs-scale-20", "state-scale-20")
    arms = ("random", "adaptive_d", "adaptive", "ed-pbrl", "rollouts-bald")
    first, second = tmp_path / "one", tmp_path / "two"
    assert main(comparison(words, first, regimes=regimes, arms=arms)) == 0
    assert main(comparison(words, second, regimes=regimes, arms=arms, jobs="2")) == 0
    pandas.testing.assert_frame_equal(numbers(second), numbers(first), rtol=0, atol=1e-9)
    table = numbers(first)
    assert len(table) == 2 * SEEDS * 2 * (6 + 4 * 2) and (table["questions"] == 3 * table["episodes"]).all()
    assert len(list((first / "designs").iterdir())) == 2  # one for all seeds


# -- mistakes --------------------------------------------------------------------------------------------------------


def test_help_names_what_there_is(capsys):
    assert main(["bench", "efficiency", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(option in printed for option in ("--quick", "--regime", "--arm", "--seeds", "--report", "--page"))


def test_arguments_that_make_no_sense(capsys, tmp_path, words):
    start = ["bench", "efficiency", "--out", tmp_path / "out"]
    refused(capsys, [*start, "--arm", "randon"], 2, "begins with random, ", "randon")
    refused(capsys, [*start, "--arm", "bold"], 2, "'bold'", "qeubo", "ed-pbrl")
    refused(capsys, [*start, "--arm", "adaptive,prior=mine"], 2, "prior among vocabulary")
    refused(capsys, [*start, "--regime", "windy"], 2, "argmax", "windy")
    refused(capsys, [*start, "--regime", "items-d10-K4", "--arm", "optuna"], 2, "'optuna'", "(items-d10-K2)")
    refused(capsys, [*start, "--seeds", "0"], 2, "seeds >= 1")
    refused(capsys, [*start, "--first-seed", "-1"], 2, "first_seed >= 0")
    refused(capsys, [*start, "--jobs", "0"], 2, "jobs >= 1")
    refused(capsys, [*start, "--episodes", "0"], 2, "(T) >= 1")
    refused(capsys, [*start, "--questions", "0"], 2, "questions >= 1")
    refused(capsys, ["bench"], 2, "efficiency")
    refused(capsys, ["bench", "answers"], 2, "efficiency")
    assert not (tmp_path / "out").exists()


def test_folders_that_are_no_run_of_this_benchmark(capsys, tmp_path, words, finished):
    refused(capsys, ["bench", "efficiency", "--report", tmp_path / "none"], 1, "none", "run the experiment")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious")
    refused(capsys, arguments(words, tmp_path / "thesis"), 1, "other files")
    other = arguments(words, finished)
    other[other.index("4")] = "5"
    refused(capsys, other, 1, "episodes was [1, 2, 4], now [1, 2, 5]", "another --out")


def test_a_second_run_in_the_same_folder_is_told_so_and_ends(words, tmp_path, capsys):
    out = tmp_path / "run"
    program = "import sys; from edpbrl_gym.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *arguments(words, out, "--seeds", "200")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        try:
            while not list(out.glob("parts/*.parquet")):
                assert first.poll() is None, "the first run ended before the second began"
                time.sleep(0.01)
            before = (out / "provenance.json").read_bytes()
            assert main(arguments(words, out)) == 1
            assert f"another process ({first.pid}) runs in it" in capsys.readouterr().err
            assert (out / "provenance.json").read_bytes() == before and first.poll() is None
        finally:
            first.kill()
