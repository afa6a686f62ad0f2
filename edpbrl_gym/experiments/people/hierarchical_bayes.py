"""Hierarchical Bayes as the field does it: bayesm's ``rhierMnlRwMixture``, run by R (Rossi, Allenby & McCulloch, 2005).

A chain is run for every number of answers of the new people, who are fitted together with all others: that is how the
method is used, and it can't be updated with one more answer. Answers come in random order.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.experiments.people.data import Person
from edpbrl_gym.experiments.people.estimators import HIERARCHICAL_BAYES, Fit
from edpbrl_gym.experiments.people.prediction import averaged_over_draws
from edpbrl_gym.experiments.people.protocol import Fold
from edpbrl_gym.experiments.people.replay import judge

__all__ = ["check_r", "draw_tastes", "replay_with_r"]

_SCRIPT = Path(__file__).with_name("hierarchical_bayes.R")
_INSTALL = "install R with it (Debian, Ubuntu: apt-get install r-cran-bayesm), or leave the estimator out"
_MISSING = f"Expected R's package bayesm for {HIERARCHICAL_BAYES}, it is not installed; {_INSTALL}"
_NO_BAYESM = 3  # exit status of the script
_ASK = f'quit(status = if (requireNamespace("bayesm", quietly = TRUE)) 0 else {_NO_BAYESM})'
_KEPT = 2000  # draws kept at most


def check_r() -> str:
    """Path of Rscript, if bayesm is installed for it.

    Raises:
        ModuleNotFoundError: Rscript is not on the PATH, or bayesm is not installed.
    """
    found = shutil.which("Rscript")
    if found is None:
        raise ModuleNotFoundError(
            f"Expected Rscript on the PATH for {HIERARCHICAL_BAYES} (R's package bayesm), found none; {_INSTALL}"
        )
    asked = subprocess.run([found, "-e", _ASK], capture_output=True, check=False)
    if asked.returncode == _NO_BAYESM:
        raise ModuleNotFoundError(_MISSING)
    return found


def draw_tastes(known: Sequence[Person], new: Sequence[Person], *, draws: int, seed: int) -> Floats:
    """Draws of the new people's tastes from the posterior of the whole hierarchical model, (m, draws kept, d).

    Args:
        known: People of whom all answers count.
        new: People of whom these answers count; of those without any the taste is drawn from the population.
        draws: Length of the chain; the first half is discarded.
        seed: Seed of R's generator.

    Raises:
        ModuleNotFoundError: R or bayesm is not installed.
        ValueError: Questions with different numbers of options, which bayesm does not take.
        RuntimeError: R failed; the message ends with what it said.
    """
    rscript = check_r()
    people = [*known, *new]
    sizes = np.unique(np.concatenate([person.sizes for person in people]))
    if len(sizes) != 1:
        raise ValueError(
            f"Expected questions with the same number of options for {HIERARCHICAL_BAYES}, got {sizes.tolist()}; leave "
            "the estimator out for these data"
        )
    size, width = int(sizes[0]), int(people[0].options.shape[2])
    numbers = (len(people), len(new), size, width, draws, max(1, draws // _KEPT), seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        options = np.concatenate([person.options[:, :size] for person in people])
        options.astype("<f8").tofile(place / "options.bin")
        np.concatenate([person.chosen + 1 for person in people]).astype("<i4").tofile(place / "chosen.bin")
        np.array([len(person) for person in people], dtype="<i4").tofile(place / "counts.bin")
        command = [rscript, str(_SCRIPT), folder, *map(str, numbers)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        said = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        if done.returncode == _NO_BAYESM:
            raise ModuleNotFoundError(_MISSING)
        result = place / "new.bin"
        if done.returncode or not result.is_file():
            raise RuntimeError(f"Expected draws from R's bayesm, it ended with status {done.returncode}: {said}")
        values = np.fromfile(result, dtype="<f8")
    if not len(values) or len(values) % (len(new) * width) or not np.isfinite(values).all():
        raise RuntimeError(f"Expected draws of {len(new)} x {width} finite numbers from R, got {len(values)} values")
    return np.asarray(values.reshape(len(new), width, -1).transpose(0, 2, 1))


def replay_with_r(fold: Fold, answers: Sequence[int], *, draws: int) -> list[dict[str, Any]]:
    """Rows of all new people of a fold, as of ``replay.replay``, with the place of each person.

    seconds_fit is the time of a chain divided by the number of new people, whom one chain serves.

    Raises:
        ModuleNotFoundError, ValueError, RuntimeError: As for ``draw_tastes``.
    """
    rows: list[dict[str, Any]] = []
    for count in answers:
        people = [person for person in fold.new if len(person.asked) >= count]
        if not people:
            continue
        start = time.perf_counter()
        first = [person.asked.select(np.arange(count)) for person in people]
        tastes = draw_tastes(fold.known, first, draws=draws, seed=count + 1)
        seconds = {"seconds_fit": (time.perf_counter() - start) / len(people), "seconds_question": 0.0}
        for person, draws_of in zip(people, tastes, strict=True):
            fit = Fit(draws_of.mean(axis=0), functools.partial(averaged_over_draws, draws_of))
            facts = {"person": person.place, "answers": count, **seconds}
            rows += [{**facts, **row} for row in judge(fit, person.held_out)]
    return rows
