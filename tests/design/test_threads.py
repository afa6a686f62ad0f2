"""Threads around the solver: results don't depend on them, limits are restored, Ctrl-C and errors get through."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import scipy.linalg  # noqa: F401
from threadpoolctl import ThreadpoolController

from edpbrl_gym._threads import blas_threads, for_each, one_blas_thread
from edpbrl_gym.design import newton
from tests.helpers.design_cases import prompt_problem

BLAS = ThreadpoolController().select(user_api="blas")


def threads() -> list[int]:
    return [library.num_threads for library in BLAS.lib_controllers]


@pytest.fixture(params=[1, 2, 3])
def allowed(request):
    with BLAS.limit(limits=request.param):
        assert threads() == [request.param] * len(threads())
        yield request.param


def test_one_thread_inside_and_as_before_outside(allowed):
    assert blas_threads() == allowed
    with one_blas_thread():
        assert set(threads()) == {1} and blas_threads() == allowed
        with one_blas_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert set(threads()) == {allowed}
    with pytest.raises(KeyboardInterrupt), one_blas_thread():
        raise KeyboardInterrupt
    assert set(threads()) == {allowed}


def overlapping():
    """A thread inside `one_blas_thread` until it is told to leave; returns the function that tells it and waits."""
    entered, leave = threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            entered.set()
            leave.wait(10)

    helper = threading.Thread(target=other)
    helper.start()
    assert entered.wait(10)

    def end():
        leave.set()
        helper.join()

    return end


def test_whoever_sets_the_limit_restores_it(allowed):
    with one_blas_thread():
        end = overlapping()
        assert set(threads()) == {1} and blas_threads() == allowed
    assert set(threads()) == {allowed}
    with one_blas_thread():
        end()
        assert set(threads()) == {1}
    assert set(threads()) == {allowed}


def test_every_item_is_done_once_with_one_blas_thread_each(allowed):
    done, limits, workers = [], set(), set()
    barrier = threading.Barrier(allowed)

    def work(item):
        if item < allowed:
            barrier.wait(10)  # so many are at work at the same time
        done.append(item)
        limits.update(threads())
        workers.add(threading.get_ident())

    for_each(work, range(20))
    assert sorted(done) == list(range(20)) and limits == {1}
    assert len(workers) >= allowed
    assert set(threads()) == {allowed}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_error_of_one_item_ends_the_rest(allowed, error):
    done = []

    def work(item):
        if item == 0:
            raise error("item 0")
        time.sleep(0.002)
        done.append(item)

    with pytest.raises(error, match="item 0"):
        for_each(work, range(2_000))
    assert len(done) < 1_999
    assert set(threads()) == {allowed}
    for_each(done.append, [])


def test_the_solver_restores_the_limits_after_errors(allowed):
    problem = prompt_problem("D")

    def callback(state):
        assert set(threads()) == {1}
        raise LookupError

    with pytest.raises(LookupError):
        newton(problem, callback=callback)
    assert set(threads()) == {allowed}


@pytest.mark.parametrize("criterion", ["A", "V", "D"])
def test_designs_do_not_depend_on_the_threads(criterion):
    """Several chunks of tokens, a full prior precision: chunks are scored in any order, to the same numbers."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((8, 8))
    problem = prompt_problem(
        criterion, sizes=(5000, 300), dimension=8, prior_precision=root @ root.T / 8 + 0.1 * np.eye(8)
    )
    found = []
    for count in (1, 3):
        with BLAS.limit(limits=count):
            found.append(newton(problem))
    one, other = found
    assert one.status == other.status == "converged"
    np.testing.assert_array_equal(one.occupancies, other.occupancies)
    assert (one.value, one.gap, one.iterations) == (other.value, other.gap, other.iterations)


def test_the_environment_sets_the_threads():
    code = textwrap.dedent("""
        from edpbrl_gym._threads import blas_threads, for_each
        import threading
        used = set()
        for_each(lambda item: used.add(threading.current_thread().name), range(50))
        print(blas_threads(), used == {"MainThread"})
    """)
    for count in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"OMP_NUM_THREADS": count, "PATH": ""},
        )
        assert result.stdout.split() == [count, str(count == "1")]


@pytest.mark.parametrize("given", ["", "1", "2"])
def test_torch_is_not_loaded_to_be_limited_and_has_one_thread_where_it_is_loaded_inside(given):
    pytest.importorskip("torch")
    program = """
import os, sys
from edpbrl_gym._threads import one_thread
with one_thread():
    assert "torch" not in sys.modules
    import torch
    inside = torch.get_num_threads()
outside = torch.get_num_threads()
with one_thread():
    print(inside, outside, torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS", ""))
print(torch.get_num_threads())
"""
    environment = {**os.environ, "OMP_NUM_THREADS": given}
    if not given:
        del environment["OMP_NUM_THREADS"]
    said = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    count = given or str(os.cpu_count())
    assert said.stdout.split("\n")[:2] == [f"1 {count} 1 {given}", count]
