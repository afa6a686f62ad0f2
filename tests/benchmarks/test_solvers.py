"""The solver benchmark: its own certificate, its competitors, its smoke test, its tables."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.solvers import cells, general, report, results, suites, tables, vocabularies
from benchmarks.solvers.cases import Block, Case, Instance
from benchmarks.solvers.certificate import certificate
from benchmarks.solvers.competitors import SOLVERS
from benchmarks.solvers.conditional_gradient import MissingSolverError
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


def test_certificate_refuses_what_is_no_distribution(folder):
    instance = Instance(small(), folder)
    with pytest.raises(ValueError, match="sum to 1"):
        certificate(instance, [Block(slice(0, 120), np.full(120, 0.01), 360.0)])


@pytest.mark.parametrize(("criterion", "split"), [("D", 1), ("A", 6), ("V16", 6)])
def test_all_solvers_approach_the_same_optimum(folder, criterion, split):
    """The reference gives the optimum; every solver ends below it, within its own certified gap."""
    instance = Instance(small(criterion, split=split, tokens=48, dimension=4), folder)
    optimum = reference(instance.design_problem(merged=True))
    for name, solver in SOLVERS.items():
        if name == "cvxpy" or (name == "copt" and not _has_copt()):
            continue
        recorder = Recorder(instance, target=2e-2, time_limit=20.0, max_iterations=100 if "paper" in name else 1000)
        design, _ = solver(instance, recorder)
        checked = certificate(instance, design)
        assert checked.value <= optimum.upper_bound + 1e-7 * abs(optimum.value), name
        assert checked.value + checked.gap >= optimum.value - 1e-7 * abs(optimum.value), name
        assert checked.relative_gap <= (0.1 if "paper" in name else 2.01e-2), name
        assert recorder.points[-1][1] == pytest.approx(checked.relative_gap, rel=1e-3, abs=1e-6), name


def _has_copt() -> bool:
    try:
        import copt  # noqa: F401
    except ImportError:
        return False
    return True


def test_a_missing_package_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "copt", None)
    instance = Instance(small(), folder)
    recorder = Recorder(instance, target=1e-3, time_limit=1.0, max_iterations=1)
    with pytest.raises(MissingSolverError, match="pip install copt"):
        SOLVERS["copt"](instance, recorder)


def test_the_multiplicative_algorithm_never_lowers_the_objective(folder):
    for criterion in ("D", "A"):
        instance = Instance(small(criterion, tokens=60, dimension=4), folder)
        values = []
        for steps in range(1, 8):
            recorder = Recorder(instance, target=0.0, time_limit=60.0, max_iterations=steps)
            values.append(certificate(instance, SOLVERS["multiplicative"](instance, recorder)[0]).value)
        assert (np.diff(values) > 0).all()


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
    assert rows("gauss").std() == pytest.approx(1.0, abs=0.02)
    np.testing.assert_array_equal(rows("clip+float16"), rows("clip").astype(np.float16))
    moved = rows("isotropic+offset") - rows("isotropic")
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-4)
    assert np.linalg.norm(moved[0]) == pytest.approx(1000.0, rel=1e-4)
    for wrong in ("nothing", "clip+float8"):
        with pytest.raises(ValueError, match="Expected a source of"):
            vocabularies.prepare(wrong, 10, 4, 1, 1, folder)


@pytest.mark.parametrize("criterion", ["D", "A", "V16"])
@pytest.mark.parametrize("source", general.SOURCES)
def test_certificate_of_other_mdps_agrees_with_the_linear_program(folder, source, criterion):
    instance = general.make_instance(Case(source, 15, 4, 1, criterion, 1.0, 3), folder)
    problem = instance.design_problem()
    design = frank_wolfe(problem, max_iterations=4, tolerance=0.0)
    checked = general.certified(instance, instance.of_design(design))
    assert checked.value == pytest.approx(design.value, rel=1e-9)
    assert checked.relative_gap == pytest.approx(design.relative_gap, rel=1e-7)
    assert checked.gap == pytest.approx(verify(problem, design).gap, rel=1e-6)
    blocks = instance.of_design(design)
    blocks[1].weights[:] = blocks[1].weights[::-1].copy()
    with pytest.raises(ValueError, match="that flow"):
        general.certified(instance, blocks)


def test_without_a_prior_the_gap_is_the_loss_of_efficiency(folder):
    instance = Instance(Case("gauss", 200, 4, 1, "D", 0.0, 3), folder)
    problem = instance.design_problem()
    design = frank_wolfe(problem, max_iterations=20, tolerance=0.0)
    assert certificate(instance, instance.of_design(design)).relative_gap == pytest.approx(design.relative_gap)


def test_what_was_asked_is_judged_on_every_draw():
    def line(seed, seconds, source="isotropic", solver="newton", status="reached", points=((1.0, 1e-4, 1),), **case):
        case = {"source": source, "tokens": 5000, "dimension": 768, "split": 1, "criterion": "D", **case}
        ran = {"seconds": seconds, "unit": 1.0, "points": points, "certified_gap": 1e-7, "limits": {"target": 1e-6}}
        return {"case": {"regularization": 1.0, "seed": seed, **case}, "solver": solver, "status": status, **ran}

    table = tables.weak([line(2027, 16.0), line(2026, 14.0)])
    assert "| isotropic 5,000 x 768, D, lambda = 1: at most 15 Phi G | 14 and 16 | **not met** |" in table
    assert "| 14 and 15 | met |" in tables.weak([line(2026, 14.0), line(2027, 15.0)])
    assert "| 14 | **not met** |" in tables.weak([line(2026, 14.0, status="stopped")])
    small = {"tokens": 3000, "dimension": 20}
    pair = [line(1, 4.0, **small), line(1, 7.0, "isotropic+offset", **small)]
    assert "the same rows unchanged | 1.75 | met |" in tables.weak(pair)
    walk = [line(1, 1.8, "stochastic"), line(1, 60.0, "stochastic", "frank_wolfe", points=((9.0, 1e-4, 1),))]
    table = tables.weak(walk)
    assert "10 times faster than plain Frank-Wolfe | 9 | **not met** |" in table
    assert "at most twice the time to 1e-4 | 1.8 | met |" in table
    grid = [line(seed, seconds, "decaying", dimension=384) for seed, seconds in ((1, 4.0), (2, 7.0))]
    assert "| decaying |  |  |  | 4 to 7 |  |  |" in tables.spread(grid)


def test_suites_name_every_run_once():
    for name in suites.SUITES:
        runs = suites.suite(name)
        assert len({(run.case, run.solver) for run in runs}) == len(runs)
        assert {run.solver for run in runs} <= set(SOLVERS)
    assert {(run.case, run.solver) for run in suites.suite("default")} <= {
        (run.case, run.solver) for run in suites.suite("full")
    }


@pytest.fixture(scope="module")
def quick_lines(tmp_path_factory, folder):
    """Part of the smoke test through the command line, stopped and resumed."""
    path = tmp_path_factory.mktemp("results") / "quick.jsonl"
    command = [sys.executable, "-m", "benchmarks.solvers", "run", "--quick", "--time-limit", "0.1"]
    command += ["--results", str(path), "--folder", str(folder), "--only"]
    printed = ""
    for pattern in ("^clip-.*-D-.* newton$", "^clip-.*-D-.* (newton|multiplicative)$"):
        done = subprocess.run([*command, pattern], cwd=ROOT, capture_output=True, text=True, env=dict(os.environ))
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
        assert line["certified_gap"] == pytest.approx(line["reported_gap"], rel=1e-2, abs=1e-9)
        assert line["memory"] >= line["memory_before"] > 1e7
        assert 0 < line["yardstick_least"] <= line["yardstick"]
        assert 0 < line["seconds"]
    (fast,) = cells.matching(lines.values(), solver="newton")
    assert fast["status"] == "reached" and fast["certified_gap"] <= 1e-6


def test_report_fills_every_table_and_draws(quick_lines, tmp_path):
    _, path = quick_lines
    page = tmp_path / "page.md"
    page.write_text(
        "before\n" + "".join(f"<!-- table: {name} -->\nold\n<!-- end -->\n" for name in tables.TABLES) + "after\n",
        encoding="utf-8",
    )
    report.write(path, page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "one thread of" in text
    assert {item.name for item in tmp_path.glob("*.png")} == {"performance-gap.png", "performance-scaling.png"}
    with pytest.raises(ValueError, match="known are"):
        report.filled("<!-- table: nonsense -->\n<!-- end -->", [])


def test_times_to_a_gap_and_speedups_by_hand():
    limits = {"target": 1e-6}
    fast = {"points": [[0.5, 0.2, 0], [1.0, 1e-3, 1], [2.0, 1e-7, 2], [3.0, 1e-7, 2]], "seconds": 3.0}
    slow = {"points": [[1.0, 0.2, 0], [60.0, 0.09, 1], [80.0, 0.02, 2]], "seconds": 80.0}
    fast |= {"limits": limits, "certified_gap": 1e-7}
    slow |= {"limits": limits, "certified_gap": 0.02}
    assert cells.time_to(fast, 1e-2) == 1.0
    assert cells.time_to(fast, 1e-6) == 3.0, "the design's own certificate belongs to the time"
    assert cells.time_to(fast | {"certified_gap": 1e-5}, 1e-6) is None
    assert cells.time_to(slow, 1e-2) is None
    assert tables.smallest_speedup(fast | {"unit": 1.0}, slow | {"unit": 1.0}) == 60.0
    assert tables.smallest_speedup(fast | {"unit": 0.5}, slow | {"unit": 1.0}) == 30.0, "on a machine twice as fast"


def test_page_shows_the_tables_of_the_committed_results():
    """docs/performance.md is what the report writes from benchmarks/results/solvers.jsonl."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    lines = list(results.read(ROOT / "benchmarks" / "results" / "solvers.jsonl").values())
    assert report.filled(page, lines) == page
    assert all(json.dumps(line) for line in lines)
    assert not [line for line in lines if line["status"] == "failed"]


def test_cases_have_distinct_names():
    runs = suites.suite("full")
    cases = {run.case for run in runs}
    assert len({case.name for case in cases}) == len(cases)
    assert dataclasses.astuple(next(iter(cases)))
