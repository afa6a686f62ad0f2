"""``edpbrl bench people`` on made people: rows, report, resuming, other processes, mistakes."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym.cli import main
from edpbrl_gym.experiments.runs import read_results
from tests.helpers.commands import refused
from tests.helpers.killing import kill_when_two_parts_are_done, part_times
from tests.helpers.made_people import long_table, made_people

ESTIMATORS = ("ridge100", "ridge1", "population-em6")
FOLDS = 2


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two data sets, one with missing options."""
    folder = tmp_path_factory.mktemp("people")
    long_table(made_people(14, 9)).to_csv(folder / "first.csv", index=False)
    long_table(made_people(12, 8, sizes=(3, 2), seed=1)).to_parquet(folder / "second.parquet", index=False)
    return [str(folder / "first.csv"), str(folder / "second.parquet")]


def arguments(data, out, *more, estimators=ESTIMATORS, jobs="1"):
    return [
        "bench", "people", *data, "--estimator", *estimators, "--folds", str(FOLDS), "--answers", "0", "2", "5",
        "--rule", "random", "adaptive", "bald", "--people-per-fold", "5", "--jobs", jobs, "--out", str(out), *more,
    ]  # fmt: skip


def numbers(out):
    table = read_results(out).table
    return table.drop(columns=[name for name in table.columns if name.startswith("seconds")])


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main(arguments(data, out)) == 0
    return out


def test_every_new_person_has_rows(finished):
    table = read_results(finished).table
    first, second = (table[table["data"] == name] for name in ("first", "second"))
    assert len(first) == len(ESTIMATORS) * 3 * FOLDS * 5 * 3 * 4  # rules, people, numbers of answers, held out
    assert len(second) == len(ESTIMATORS) * 3 * FOLDS * 5 * 2 * 4  # nobody there has 5 answers beside the held-out ones
    assert table["hit"].between(0, 1).all() and table["confidence"].between(0, 1).all()
    assert (table["log_probability"] < 0).all() and np.isfinite(table["log_probability_at_estimate"]).all()
    none = first[(first["answers"] == 0) & (first["estimator"] == "ridge1")]
    assert np.allclose(none["hit"], 1 / 3)


def test_report_figures_and_page(finished, tmp_path, capsys, data):
    report = (finished / "REPORT.md").read_text()
    for text in (
        "hit rate of held-out answers",
        "expected calibration error",
        "answers needed for the log-likelihood",
        "difference to random questions",
        "ms per question",
        "14 people with 9 to 9 questions",
        "12 people with 8 to 8 questions, up to 3 options",
        "six rounds of EM",
        "From first.csv",
    ):
        assert text in report, text
    assert str(finished.parent) not in report and data[0] not in report  # no path of this machine
    for name in ("learning", "reliability"):
        assert (finished / "figures" / f"{name}.pdf").is_file()
        image = Image.open(finished / "figures" / f"{name}.png").convert("L")
        assert np.count_nonzero(image.histogram()) > 50, name
    page = tmp_path / "page.md"
    assert main(["bench", "people", "--report", str(finished), "--page", str(page)]) == 0
    assert (finished / "REPORT.md").read_text() == report
    assert "(people-learning.png)" in page.read_text() and (tmp_path / "people-learning.png").is_file()
    assert "first: hit rate" in capsys.readouterr().out
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "results.parquet").write_bytes((finished / "results.parquet").read_bytes())
    assert main(["report", str(alone)]) == 0
    assert (alone / "REPORT.md").read_text() == report


def test_the_same_numbers_in_any_number_of_processes(finished, data, tmp_path):
    assert main(arguments(data, tmp_path / "again", jobs="2")) == 0
    pandas.testing.assert_frame_equal(numbers(tmp_path / "again"), numbers(finished), rtol=0, atol=1e-9)


def test_estimators_may_be_added_and_a_killed_run_goes_on(finished, data, tmp_path):
    out = tmp_path / "grows"
    done = kill_when_two_parts_are_done(arguments(data, out, estimators=ESTIMATORS[:2]), out)
    assert not (out / "results.parquet").exists()
    assert main(["bench", "people", "--report", str(out)]) == 0  # an unfinished run can be looked at
    assert main(arguments(data, out)) == 0
    after = part_times(out)
    assert len(after) == 2 * FOLDS * len(ESTIMATORS) and {name: after[name] for name in done} == done
    pandas.testing.assert_frame_equal(numbers(out), numbers(finished), rtol=0, atol=1e-9)


def test_a_run_with_other_data_or_settings_is_another_run(finished, data, tmp_path, capsys):
    refused(capsys, arguments(data, finished, "--held-out", "3"), 1, "held_out was 4, now 3", "another --out")
    changed = tmp_path / "first.csv"
    long_table(made_people(14, 9, seed=5)).to_csv(changed, index=False)
    refused(capsys, arguments([str(changed), data[1]], finished), 1, "data was", "another --out")


def test_arguments_that_make_no_sense(capsys, tmp_path, data):
    out = tmp_path / "out"
    known = ("--estimator", "ridge1")
    for more, code, *said in (
        (["--estimator", "lasso"], 2, "ridge100", "lasso"),
        (["--rule", "best"], 2, "adaptive", "best"),
        (["--answers", "-1"], 2, "answers >= 0"),
        (["--held-out", "0"], 2, "held_out >= 1"),
        (["--held-out", "9"], 2, "more than 9 questions", "smaller --held-out"),
        (["--folds", "1"], 2, "folds >= 2"),
        (["--folds", "15"], 2, "15 people for 15 folds"),
        (["--people-per-fold", "0"], 2, "people_per_fold >= 1"),
        (["--draws", "10"], 2, "draws >= 100"),
        (["--jobs", "0"], 2, "jobs >= 1"),
    ):
        estimator = () if "--estimator" in more else known
        refused(capsys, ["bench", "people", *data, "--out", out, *estimator, *more], code, *said)
    refused(capsys, ["bench", "people", "--out", out], 2, "Expected data of people", "long table")
    refused(capsys, ["bench", "people", tmp_path / "none.csv", "--out", out], 2, "found no such file")
    refused(capsys, ["bench", "people", data[0], "--out", out], 2, "at least 20 other people", "--estimator")
    (tmp_path / "bad.csv").write_text("person,question,option,chosen,x\n1,1,1,1,2\n1,1,2,maybe,3\n")
    refused(capsys, ["bench", "people", tmp_path / "bad.csv", "--out", out], 2, "line 3", "'maybe'")
    refused(capsys, ["bench", "people", "--report", tmp_path / "none"], 1, "run the experiment")
    assert not out.exists()


def test_hierarchical_bayes_needs_r_and_one_number_of_options(capsys, tmp_path, data, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    start = ["bench", "people", *data, "--estimator", "hierarchical-bayes", "--out", tmp_path / "out"]
    refused(capsys, start, 1, "Rscript", "r-cran-bayesm")
    (tmp_path / "Rscript").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "Rscript").chmod(0o755)
    refused(capsys, start, 1, "package bayesm")
    (tmp_path / "Rscript").write_text("#!/bin/sh\nexit 0\n")
    refused(capsys, start, 2, "same number of options", "second.parquet")
