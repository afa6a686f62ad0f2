"""``edpbrl bench queries`` on a tiny vocabulary with precomputed embeddings: resuming, determinism, mistakes."""

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
from edpbrl_gym.experiments.framework import gather, run_experiment
from edpbrl_gym.experiments.query_bench.run import QUERIES, plan_units
from edpbrl_gym.experiments.query_bench.settings import SENTENCES, BenchSettings
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.features import save_precomputed
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.killing import kill_when_two_parts_are_done, part_times
from tests.helpers.small_vocabulary import write_vocabulary

ARMS = ("random+ridge100", "random+ours", "static-D+ours", "adaptive")
SEEDS = 2


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A vocabulary folder and embeddings of all its partial prompts: sums of token vectors, bent a little."""
    place = tmp_path_factory.mktemp("bench")
    folder = write_vocabulary(place / "vocabulary")
    vocabulary = load_vocabulary(folder)
    rng = np.random.default_rng(0)
    vectors = {token: rng.normal(size=10) for token in vocabulary.all_tokens}
    rows = {token: vector for token, vector in vectors.items()}
    for length in (2, 3):
        for tokens in itertools.product(*vocabulary.tokens[:length]):
            rows[", ".join(tokens)] = np.sum([vectors[t] for t in tokens], axis=0) + 0.3 * rng.normal(size=10)
    rows |= {sentence: rng.normal(size=10) for sentence in SENTENCES.values()}
    file = place / "embeddings.npz"
    save_precomputed(file, list(rows), np.stack(list(rows.values())))
    return folder, file


def arguments(words, out, *more: str, arms=ARMS, jobs: str = "1") -> list[str]:
    folder, file = words
    return [
        "bench", "queries", "--vocabulary", str(folder), "--encoder", f"precomputed:{file}", "--episodes", "1", "2",
        "4", "--seeds", str(SEEDS), "--regime", "argmax", "scale-20", "--arm", *arms, "--jobs", jobs,
        "--out", str(out), *more,
    ]  # fmt: skip


def numbers(out) -> pandas.DataFrame:
    """The results without the times, which no two runs share."""
    table = read_results(out).table
    return table.drop(columns=[name for name in table.columns if name.startswith("seconds")])


@pytest.fixture(scope="module")
def finished(words, tmp_path_factory, embedding_cache):
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main(arguments(words, out)) == 0
    return out


def test_every_unit_has_its_rows(finished):
    table = read_results(finished).table
    assert len(table) == 2 * len(ARMS) * SEEDS * 2 * 3  # regimes, arms, seeds, sentences, T
    assert set(table["arm"]) == set(ARMS) and set(table["regime"]) == {"argmax", "scale-20"}
    assert (table["questions"] == 3 * table["episodes"]).all() and table["converged"].all()
    assert table["cosine_error"].between(0, 2).all()
    assert table[["preference_error", "choice_error"]].apply(lambda column: column.between(0, 1)).all(axis=None)
    assert (table.loc[table["regime"] == "argmax", "best_chosen"] == 1.0).all()
    assert (table.loc[table["regime"] == "scale-20", "best_chosen"] < 1.0).any() and (table["skipped"] == 0).all()
    searched = table["episodes"] == 4
    assert table.loc[~searched, "prompt_regret"].isna().all() and (table.loc[searched, "prompt_regret"] >= -1e-6).all()
    means = table[table["regime"] == "argmax"].groupby(["arm", "episodes"])["cosine_error"].mean()
    assert means["random+ours", 4] < means["random+ours", 1]


def test_all_users_of_a_seed_answer_the_same_questions_and_their_draws_are_one(finished):
    table = read_results(finished).table
    cell = table[(table["seed"] == 1) & (table["episodes"] == 4) & (table["regime"] == "scale-20")]
    own = cell[cell["sentence"] == cell["sentence"].iloc[0]].set_index("arm")
    # two estimators of one rule: the same questions, the same answers
    assert own.loc["random+ridge100", "best_chosen"] == own.loc["random+ours", "best_chosen"]
    assert own.loc["random+ridge100", "best_shown"] == own.loc["random+ours", "best_shown"]
    assert own.loc["random+ridge100", "cosine_error"] != own.loc["random+ours", "cosine_error"]
    assert len(list((finished / "questions").glob("*random*"))) == SEEDS
    assert len(list((finished / "designs").iterdir())) == 1


def test_report_figures_and_page(finished, words, tmp_path, capsys):
    report = (finished / "REPORT.md").read_text()
    for text in ("Questions needed", "Win, tie or loss", "What each piece buys", "Milliseconds", "sunny"):
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
    assert main(["bench", "queries", "--report", str(finished), "--page", str(page)]) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert "(queries-curves.png)" in page.read_text() and (page.parent / "queries-curves.png").is_file()
    assert "Questions needed" in capsys.readouterr().out
    # the parquet stands alone
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "results.parquet").write_bytes((finished / "results.parquet").read_bytes())
    assert main(["bench", "queries", "--report", str(alone)]) == 0
    assert (alone / "REPORT.md").read_bytes() == before[finished / "REPORT.md"]


def test_the_same_numbers_in_any_number_of_processes(finished, words, tmp_path):
    assert main(arguments(words, tmp_path / "again", jobs="2")) == 0
    pandas.testing.assert_frame_equal(numbers(tmp_path / "again"), numbers(finished), rtol=0, atol=1e-9)


def test_arms_may_be_added_to_a_folder_later(finished, words, tmp_path):
    out = tmp_path / "grows"
    folder, file = words
    settings = BenchSettings(episodes=(1, 2, 4), vocabulary=str(folder), encoder=f"precomputed:{file}")

    def run(arms):
        units = plan_units(settings, regimes=("argmax", "scale-20"), arms=arms, seeds=SEEDS)
        return run_experiment(QUERIES, settings, out, units=units, jobs=1)

    first = run(ARMS[:1])
    assert set(first.table["arm"]) == {ARMS[0]}
    done = {path.name: path.stat().st_mtime_ns for path in out.glob("parts/*")}
    run(ARMS[1:])
    after = part_times(out)
    assert {name: after[name] for name in done} == done
    pandas.testing.assert_frame_equal(numbers(out), numbers(finished), rtol=0, atol=1e-9)
    # an unfinished run can be looked at: what is finished counts
    (out / "results.parquet").unlink()
    next(out.glob("parts/scale-20__random+ours__*")).unlink()
    assert len(gather(QUERIES, out).table) == len(numbers(finished)) - 3


def test_a_killed_run_goes_on_and_ends_with_the_same_table(finished, words, tmp_path):
    out = tmp_path / "killed"
    done = kill_when_two_parts_are_done(arguments(words, out), out)
    assert 2 <= len(done) < 32 and not (out / "results.parquet").exists()
    assert main(arguments(words, out)) == 0
    after = part_times(out)
    assert len(after) == 32 and {name: after[name] for name in done} == done
    pandas.testing.assert_frame_equal(numbers(out), numbers(finished), rtol=0, atol=1e-9)


def test_help_names_what_there_is(capsys):
    assert main(["bench", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(option in printed for option in ("--quick", "--regime", "--arm", "--seeds", "--report", "--page"))


def refused(capsys, arguments, code, *said: str) -> None:
    """Run the command; expect the exit code and one line on stderr that holds the texts."""
    assert main([str(argument) for argument in arguments]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("edpbrl: error: "), lines
    for text in said:
        assert text in lines[0], lines[0]


def test_arguments_that_make_no_sense(capsys, tmp_path, words):
    given = ["bench", "queries", "--out", tmp_path / "out"]
    refused(capsys, [*given, "--arm", "randon+ours"], 2, "begins with random, ", "randon+ours")
    refused(capsys, [*given, "--arm", "random"], 2, "random+ours")
    refused(capsys, [*given, "--regime", "windy"], 2, "argmax", "windy")
    refused(capsys, [*given, "--seeds", "0"], 2, "seeds >= 1")
    refused(capsys, [*given, "--jobs", "0"], 2, "jobs >= 1")
    refused(capsys, [*given, "--episodes", "0"], 2, "(T) >= 1")
    refused(capsys, ["bench"], 2, "queries")
    refused(capsys, ["bench", "answers"], 2, "queries")
    assert not (tmp_path / "out").exists()


def test_folders_that_are_no_run_of_this_benchmark(capsys, tmp_path, words, finished):
    refused(capsys, ["bench", "queries", "--report", tmp_path / "none"], 1, "none", "run the experiment")
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
