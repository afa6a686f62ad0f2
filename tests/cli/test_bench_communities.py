"""``edpbrl bench communities`` with a few people: rows, report, resuming, other processes, mistakes."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym.cli import main
from edpbrl_gym.experiments.communities.settings import DEFAULTS, KINDS, RULES_OF
from edpbrl_gym.experiments.runs import read_results
from tests.helpers.commands import refused
from tests.helpers.small_communities import SMALL


def arguments(out, *more, estimators=DEFAULTS, jobs="1"):
    given = []
    for name, value in SMALL.items():
        given += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else (value,))]
    return [
        "bench", "communities", *given, "--regime", "interiors-argmax", "interiors-scale-20",
        "--estimator", *estimators, "--jobs", jobs, "--out", str(out), *more,
    ]  # fmt: skip


def numbers(out):
    table = read_results(out).table
    return table.drop(columns=[name for name in table.columns if name.startswith("seconds")])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main(arguments(out)) == 0
    return out


def test_every_new_person_has_rows(finished):
    table = read_results(finished).table
    series = sum(len(RULES_OF[name]) for name in DEFAULTS)
    assert len(table) == 2 * series * len(KINDS) * SMALL["new"] * len(SMALL["answers"])
    assert table["preference_error"].between(0, 1).all() and (table["log_likelihood"] < 0).all()
    assert np.isfinite(table[["preference_error", "regret_ten", "log_likelihood"]]).all(axis=None)
    none = table[(table["answers"] == 0) & (table["estimator"] == "alone")]
    assert np.allclose(none["preference_error"], 0.5) and np.allclose(none["log_likelihood"], np.log(0.25))


def test_report_figure_and_page(finished, tmp_path, capsys):
    report = (finished / "REPORT.md").read_text()
    for text in (
        "Answers needed alone for the preference error that population-factors has after",
        "regret of the ten best: population-factors minus alone",
        "contenders minus population-factors with adaptive questions",
        "log-likelihood of held-out answers, unseen style, after so many answers",
        "surely for the worse",
        "20 people have answered 4 questions each",
        "A nomad's tent",
        "ms per question",
    ):
        assert text in report, text
    assert str(finished.parent) not in report  # no path of this machine
    image = Image.open(finished / "figures" / "learning.png").convert("L")
    assert np.count_nonzero(image.histogram()) > 50 and (finished / "figures" / "learning.pdf").is_file()
    page = tmp_path / "page.md"
    assert main(["bench", "communities", "--report", str(finished), "--page", str(page)]) == 0
    assert (finished / "REPORT.md").read_text() == report
    assert "(communities-learning.png)" in page.read_text() and (tmp_path / "communities-learning.png").is_file()
    assert "Answers needed alone" in capsys.readouterr().out


def test_the_same_numbers_in_any_number_of_processes_and_estimators_may_be_added(finished, tmp_path):
    out = tmp_path / "grows"
    assert main(arguments(out, estimators=("pal", "alone"), jobs="2")) == 0
    assert set(read_results(out).table["estimator"]) == {"pal", "alone"}
    assert main(arguments(out, jobs="2")) == 0
    pandas.testing.assert_frame_equal(numbers(out), numbers(finished), rtol=0, atol=1e-9)


def test_mistakes_are_named(finished, tmp_path, capsys):
    out = tmp_path / "out"
    refused(
        capsys, ["bench", "communities", "--regime", "outdoors-argmax", "--out", out], 2, "images-argmax", "outdoors"
    )
    refused(capsys, ["bench", "communities", "--estimator", "best", "--out", out], 2, "population-factors", "'best'")
    refused(capsys, ["bench", "communities", "--people", "5", "--out", out], 2, "people", "20")
    refused(capsys, ["bench", "communities", "--candidates", "9", "--out", out], 2, "at least 40 candidates")
    refused(capsys, arguments(finished, "--seed", "1"), 1, "seed")
    refused(capsys, ["bench", "communities", "--report", tmp_path / "none"], 1, "run the experiment")
