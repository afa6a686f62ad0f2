"""Hierarchical Bayes through R: what is handed over and read back, by a stand-in for Rscript; the script where R is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edpbrl_gym.experiments.people import hierarchical_bayes
from edpbrl_gym.experiments.people.hierarchical_bayes import draw_tastes, replay_with_r
from edpbrl_gym.experiments.people.protocol import make_fold
from tests.helpers.made_people import MEAN, made_people

# writes draws from which the person, the attribute and the draw can be told, and the sums of what it was given
STAND_IN = f"""#!{sys.executable}
import sys
from pathlib import Path
import numpy as np
if sys.argv[1] == "-e":  # whether bayesm is there
    sys.exit(0)
script, folder, *numbers = sys.argv[1:]
people, new, size, width, draws, keep, seed = map(int, numbers)
folder = Path(folder)
assert "rhierMnlRwMixture" in Path(script).read_text()
counts = np.fromfile(folder / "counts.bin", "<i4")
chosen = np.fromfile(folder / "chosen.bin", "<i4")
options = np.fromfile(folder / "options.bin", "<f8").reshape(-1, size, width)
assert len(counts) == people and counts.sum() == len(chosen) == len(options)
assert chosen.min() >= 1 and chosen.max() <= size
rows = options[np.arange(len(chosen)), chosen - 1]
theta = rows.mean(axis=0) - options.mean(axis=(0, 1))  # what was chosen, against what was shown
result = np.zeros((new, width, 6))
for person in range(new):
    result[person] = theta[:, None] + 1000 * (person == 0) * np.arange(width)[:, None] * (np.arange(6) == 5)
result.astype("<f8").tofile(folder / "new.bin")
"""

THERE = '#!/bin/sh\n[ "$1" = -e ] && exit 0\n'  # bayesm is there


def put_rscript(folder, monkeypatch, text):
    script = folder / "Rscript"
    script.write_text(text)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.fixture
def fold():
    return make_fold(made_people(12).standardised(), 0, folds=3, most=3, held_out=4)


def test_answers_reach_r_and_draws_come_back(fold, tmp_path, monkeypatch):
    put_rscript(tmp_path, monkeypatch, STAND_IN)
    first = [person.asked.select([0, 1]) for person in fold.new]
    draws = draw_tastes(fold.known, first, draws=8000, seed=1)
    assert draws.shape == (3, 6, 3)
    everyone = [*fold.known, *first]
    picked = np.concatenate([one.options[np.arange(len(one)), one.chosen] for one in everyone])
    theta = picked.mean(axis=0) - np.concatenate([one.options for one in everyone]).mean(axis=(0, 1))
    assert np.allclose(draws[1], theta) and np.allclose(draws[0, :5], theta)
    assert np.allclose(draws[0, 5] - theta, [0, 1000, 2000])  # the last draw of the first person, by attribute


def test_a_fold_is_replayed_at_every_number_of_answers(fold, tmp_path, monkeypatch):
    put_rscript(tmp_path, monkeypatch, STAND_IN)
    rows = replay_with_r(fold, (0, 2, 30), draws=100)
    assert len(rows) == 2 * 3 * 4 and {row["answers"] for row in rows} == {0, 2}
    assert {row["person"] for row in rows} == {person.place for person in fold.new}
    assert all(np.isfinite(row["log_probability"]) and row["seconds_fit"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("#!/bin/sh\nexit 3\n", ModuleNotFoundError, "package bayesm .*r-cran-bayesm"),
        (THERE + "echo 'Error in rhier: singular' >&2\nexit 1\n", RuntimeError, "status 1: Error in rhier"),
        ("#!/bin/sh\nexit 0\n", RuntimeError, "draws from R"),
        (THERE + 'printf 12345678 > "$2/new.bin"\n', RuntimeError, "3 x 3 finite numbers"),
    ],
)
def test_what_r_may_do_wrong_is_said(fold, tmp_path, monkeypatch, text, error, said):
    put_rscript(tmp_path, monkeypatch, text)
    with pytest.raises(error, match=said):
        draw_tastes(fold.known, [person.asked for person in fold.new], draws=100, seed=1)


def test_without_r_it_says_what_to_install(fold, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="Rscript on the PATH.*apt-get install r-cran-bayesm"):
        draw_tastes(fold.known, [person.asked for person in fold.new], draws=100, seed=1)


def test_bayesm_takes_one_number_of_options(tmp_path, monkeypatch):
    put_rscript(tmp_path, monkeypatch, STAND_IN)
    people = made_people(4, sizes=(3, 2)).people
    with pytest.raises(ValueError, match=r"same number of options.*\[2, 3\]"):
        draw_tastes(people[:2], people[2:], draws=100, seed=1)


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="needs R")
def test_with_r_the_population_is_found():
    script = Path(hierarchical_bayes.__file__).with_name("hierarchical_bayes.R")
    subprocess.run(["Rscript", "-e", f"parse({str(script)!r})"], check=True, capture_output=True)
    if subprocess.run(["Rscript", "-e", "library(bayesm)"], capture_output=True).returncode:
        pytest.skip("needs bayesm")
    people = made_people(60, 12).standardised().people
    new = [people[0].select([]), people[1]]
    draws = draw_tastes(people[2:], new, draws=2000, seed=1)
    assert np.allclose(draws[0].mean(axis=0), MEAN, atol=0.5)
    assert draws[1].std(axis=0).mean() < draws[0].std(axis=0).mean()
