"""Problems with many rows: float32 features, memory-mapped files, and one state with a million tokens."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym._arrays import CHUNK_ROWS
from edpbrl_gym.design import DesignProblem, frank_wolfe, make_criterion, reference
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import prompt_problem, random_mdp_problem, random_rows

SEVERAL_CHUNKS = (CHUNK_ROWS + 700, 900, CHUNK_ROWS)  # tokens at each step


def rounded(problem: DesignProblem) -> tuple[DesignProblem, DesignProblem]:
    small = problem.features.astype(np.float32)
    return replace(problem, features=small), replace(problem, features=small.astype(np.float64))


def large_problem(criterion: str = "D", **options) -> DesignProblem:
    return prompt_problem(criterion, sizes=SEVERAL_CHUNKS, dimension=7, **options)


def test_float32_features_are_kept_without_a_copy_and_locked(tmp_path):
    given = np.random.default_rng(0).standard_normal((31, 5)).astype(np.float32)
    problem = replace(prompt_problem("D"), features=given)
    assert problem.features.dtype == np.float32
    assert np.shares_memory(problem.features, given)
    assert not problem.features.flags.writeable and given.flags.writeable
    np.save(tmp_path / "features.npy", given)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    from_file = replace(problem, features=mapped)
    assert np.shares_memory(from_file.features, mapped)
    assert from_file.fingerprint == problem.fingerprint
    for other in (given.astype(np.float16), given.astype(">f4"), given.astype(np.longdouble), given.tolist()):
        assert replace(problem, features=other).features.dtype == np.float64


def test_rows_are_float64_copies():
    small, large = rounded(prompt_problem("D"))
    for problem in (small, large):
        rows = problem.rows([3, 30, 3])
        assert rows.dtype == np.float64 and rows.flags.writeable
        np.testing.assert_array_equal(rows, large.features[[3, 30, 3]])
        np.testing.assert_array_equal(problem.rows(slice(4, 9)), large.features[4:9])
        assert not np.shares_memory(problem.rows(slice(0, 2)), problem.features)
        assert problem.rows([]).shape == (0, 5)
        with pytest.raises(TypeError, match="indices as integers, got dtype bool"):
            problem.rows(np.ones(31, dtype=bool))
        for outside in (-1, 31):
            with pytest.raises(ValueError, match=rf"indices in 0..30, got {outside} at index \(1,\)"):
                problem.rows([4, outside])


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_bad_number_far_down_is_named(bad):
    features = np.zeros((300_000, 8), dtype=np.float32)
    features[[0, 170_000, 299_999], [1, 5, 0]] = [1.0, bad, bad]
    with pytest.raises(ValueError, match=r"finite features, got 2 NaN .* first at index \(170000, 5\)"):
        replace(prompt_problem("D"), mdp=PromptMDP.repeated(300_000, 2), features=features)


def test_the_fingerprint_is_that_of_the_values():
    small, large = rounded(large_problem("V"))
    assert small.fingerprint == large.fingerprint
    assert large_problem("V").fingerprint != large.fingerprint
    # a design saved by an earlier version still finds its problem
    known = DesignProblem(
        mdp=PromptMDP([2, 3]),
        features=np.arange(10.0).reshape(5, 2) / 8,
        num_policies=2,
        episodes=3,
        criterion=make_criterion("D"),
        regularization=0.5,
    )
    assert known.fingerprint == "5a04369fa4e564dfcacef43368cfc0016e177abbae2f1b6adc6aaa4b11cf0bda"
    assert replace(known, features=known.features.astype(np.float32)).fingerprint == known.fingerprint


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_float32_features_give_the_float64_numbers(criterion):
    small, large = rounded(large_problem(criterion))
    rows = random_rows(small.mdp, np.random.default_rng(0))
    sparse = np.where(rows < np.quantile(rows, 0.97), 0.0, rows)
    for mass in (rows, sparse):
        assert small.information(mass).dtype == np.float64
        np.testing.assert_allclose(small.information(mass), large.information(mass), rtol=1e-12, atol=1e-12)
        gradient = small.gradient(mass)
        assert gradient.dtype == np.float64
        np.testing.assert_allclose(gradient, large.gradient(mass), rtol=1e-10, atol=1e-12 * np.abs(gradient).max())
        assert small.objective(mass) == pytest.approx(large.objective(mass), rel=1e-12)


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_solvers_take_float32(criterion):
    for base in (prompt_problem(criterion), random_mdp_problem(criterion)):
        small, large = rounded(base)
        found, expected = (frank_wolfe(one, max_iterations=10) for one in (small, large))
        assert found.value == pytest.approx(expected.value, rel=1e-10)
        assert found.gap == pytest.approx(expected.gap, rel=1e-5)
        assert found.occupancies.dtype == np.float64
        assert reference(small).value == pytest.approx(reference(large).value, rel=1e-9)


MEMORY = """
    import sys, tracemalloc
    import numpy as np
    from edpbrl_gym.design import DesignProblem, certify, frank_wolfe, make_criterion, verify
    verifier = sys.modules["edpbrl_gym.design.verify"]
    verifier.MAX_COLUMNS = 100_000  # the linear program's own memory is not what is measured
    from edpbrl_gym.mdp import PromptMDP

    features = np.load(sys.argv[1], mmap_mode="r")
    mdp = PromptMDP.repeated(len(features), 2) if sys.argv[2] == "repeated" else PromptMDP([len(features) // 2] * 2)
    tracemalloc.start()
    problem = DesignProblem(mdp=mdp, features=features, num_policies=2, episodes=60, criterion=make_criterion("D"),
                            regularization=100.0)
    uniform = mdp.occupancy(mdp.uniform_policy())
    first = certify(problem, uniform, status="given", solver="", iterations=0, oracle_calls=0, seconds=0.0)
    design = frank_wolfe(problem, max_iterations=2)
    problem.fingerprint
    assert design.value > first.value
    assert verify(problem, design).confirmed
    print(tracemalloc.get_traced_memory()[1] / features.nbytes)
"""


@pytest.mark.parametrize("kind", ["repeated", "general"])
def test_memory_stays_far_below_the_features(tmp_path, kind):
    """A float32 file of 61 MB: certified, improved and verified with less than half of that beside it."""
    file = np.lib.format.open_memmap(tmp_path / "f.npy", mode="w+", dtype=np.float32, shape=(60_000, 256))
    rng = np.random.default_rng(0)
    for begin in range(0, len(file), 10_000):
        file[begin : begin + 10_000] = rng.standard_normal((10_000, 256), dtype=np.float32)
    file.flush()
    code = textwrap.dedent(MEMORY)
    command = [sys.executable, "-c", code, str(tmp_path / "f.npy"), kind]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 0.5
