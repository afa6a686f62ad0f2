"""The solver benchmark: its own certificate, its competitors, its smoke test, its tables."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.solvers import cells, report, results, suites, vocabularies
from benchmarks.solvers.__main__ import PAGES
from benchmarks.solvers.cases import Case, Instance
from benchmarks.solvers.certificate import certificate
from benchmarks.solvers.competitors import SOLVERS
from benchmarks.solvers.recorder import Recorder
from edpbrl_gym.design import certify, frank_wolfe, reference, verify

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


def small(criterion="D", *, split=1, tokens=120, dimension=6, regularization=1.0) -> Case:
    return Case("clip", tokens, dimension, split, criterion, regularization)


@pytest.mark.parametrize("split", [1, 6])
@pytest.mark.parametrize("criterion", ["D", "A", "V16"])
def test_certificate_agrees_with_the_library_and_the_linear_program(folder, criterion, split):
    instance = Instance(small(criterion, split=split), folder)
    problem = instance.design_problem()
    design = frank_wolfe(problem, max_iterations=5, tolerance=0.0)
    checked = certificate(instance, instance.of_design(design))
    assert checked.value == pytest.approx(design.value, rel=1e-9)
    assert checked.gap == pytest.approx(design.gap, rel=1e-7)
    assert checked.relative_gap == pytest.approx(design.relative_gap, rel=1e-7)
    assert checked.gap == pytest.approx(verify(problem, design).gap, rel=1e-6)


def test_certificate_of_steps_with_different_weights(folder):
    """H steps over one vocabulary, each with its own weights: the general form against the library's."""
    instance = Instance(small(), folder)
    problem = instance.design_problem()
    occupancy = np.random.default_rng(0).dirichlet(np.ones(120), size=problem.horizon)
    design = certify(problem, occupancy, status="", solver="", iterations=0, oracle_calls=0, seconds=0.0)
    checked = certificate(instance, instance.of_design(design))
    assert checked.gap == pytest.approx(design.gap, rel=1e-9)


@pytest.mark.parametrize(("criterion", "split"), [("D", 1), ("A", 6), ("V16", 6)])
def test_all_solvers_approach_the_same_optimum(folder, criterion, split):
    """The reference gives the optimum; every solver ends below it, within its own certified gap."""
    instance = Instance(small(criterion, split=split, tokens=48, dimension=4), folder)
    optimum = reference(instance.design_problem(merged=True))
    for name, solver in SOLVERS.items():
        if name == "cvxpy":
            continue
        recorder = Recorder(instance, target=2e-2, time_limit=20.0, max_iterations=100 if "paper" in name else 1000)
        design, _ = solver(instance, recorder)
        checked = certificate(instance, design)
        assert checked.value <= optimum.upper_bound + 1e-7 * abs(optimum.value), name
        assert checked.value + checked.gap >= optimum.value - 1e-7 * abs(optimum.value), name
        assert checked.relative_gap <= (0.1 if "paper" in name else 2.01e-2), name
        assert recorder.points[-1][1] == pytest.approx(checked.relative_gap, rel=1e-3, abs=1e-6), name


def test_synthetic_features_are_what_the_page_says(folder):
    vocabulary = vocabularies.prepare("clip", 6000, 64, 6, 2026, folder)
    rows = np.asarray(vocabulary.features, dtype=np.float64)
    assert vocabulary.features.dtype == np.float32
    assert sum(vocabulary.sizes) == 6000
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
    cosines = rows[:3000] @ rows[3000:].T
    assert 0.66 < cosines.mean() < 0.74
    smaller = vocabularies.prepare("clip", 500, 64, 1, 2026, folder)
    np.testing.assert_array_equal(smaller.features, vocabulary.features[:500])
    other = vocabularies.prepare("clip", 500, 64, 1, 2027, folder)
    assert abs(np.corrcoef(other.features.ravel(), smaller.features.ravel())[0, 1]) < 0.5


def test_every_source_has_the_structure_of_its_name(folder):
    def rows(source):
        return np.asarray(vocabularies.prepare(source, 5000, 32, 1, 1, folder).features, dtype=np.float64)

    spectrum = np.linalg.eigvalsh(np.cov(rows("decaying").T))
    assert spectrum[-1] > 15 * spectrum[0]
    assert np.ptp(np.linalg.eigvalsh(np.cov(rows("isotropic").T))) < 0.3 / 32
    nearest = np.sort(rows("clustered") @ rows("clustered")[:50].T, axis=0)[-30:-1]
    assert nearest.min() > 0.8  # the 29 nearest of 5,000 are of the same cluster, one of 100
    lengths = np.linalg.norm(rows("heavy-tailed"), axis=1)
    assert lengths.max() > 6 * np.median(lengths)
    np.testing.assert_array_equal(rows("clip+float16"), rows("clip").astype(np.float16))
    for wrong in ("nothing", "clip+float8"):
        with pytest.raises(ValueError, match="Expected a source of"):
            vocabularies.prepare(wrong, 10, 4, 1, 1, folder)


def test_suites_name_every_run_once():
    for name in suites.SUITES:
        runs = suites.suite(name)
        assert len({(run.case.name, run.solver) for run in runs}) == len(runs)
        assert {run.solver for run in runs} <= set(SOLVERS)


@pytest.fixture(scope="module")
def quick_lines(tmp_path_factory, folder):
    """Part of the smoke test through the command line, stopped and resumed."""
    path = tmp_path_factory.mktemp("results") / "quick.jsonl"
    command = [sys.executable, "-m", "benchmarks.solvers", "run", "--quick", "--time-limit", "0.1"]
    command += ["--results", str(path), "--folder", str(folder), "--only"]
    printed = ""
    for pattern in ("^clip-.*-D-.* newton$", "^clip-.*-D-.* (newton|pairwise)$"):
        done = subprocess.run([*command, pattern], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed += done.stdout
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"case": {"source": "cl')  # killed while writing
    return printed, path


def test_quick_run_measures_and_resumes(quick_lines):
    printed, path = quick_lines
    assert printed.count(" newton: reached") == 1, "the second call must not run it again"
    lines = results.read(path)
    assert len(lines) == 2
    for line in lines.values():
        assert line["memory"] >= line["memory_before"] > 1e7
        assert 0 < line["yardstick_least"] <= line["yardstick"]
        assert 0 < line["seconds"]
    (fast,) = cells.matching(lines.values(), solver="newton")
    assert fast["status"] == "reached" and fast["certified_gap"] <= 1e-6
    assert fast["certified_gap"] == pytest.approx(fast["reported_gap"], rel=1e-2, abs=1e-9)


@pytest.mark.parametrize("name", PAGES)
def test_page_shows_the_tables_of_the_committed_results(name, tmp_path):
    """The page is what the report writes from benchmarks/results/solvers.jsonl."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    committed, page = ROOT / "benchmarks" / "results" / "solvers.jsonl", tmp_path / "page.md"
    emptied = re.sub(r"(<!-- table: .* -->\n).*?(<!-- end -->)", r"\1old\n\2", text, flags=re.S)
    page.write_text(emptied, encoding="utf-8")
    report.write(committed, page)
    assert page.read_text(encoding="utf-8") == text
    assert not [line for line in results.read(committed).values() if line["status"] == "failed"]
    with pytest.raises(ValueError, match="known are"):
        report.filled("<!-- table: nonsense -->\n<!-- end -->", [])
