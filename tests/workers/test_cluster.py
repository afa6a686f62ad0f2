"""Units on the workers of a Dask cluster: as in one process to the bit, also where workers die; plain refusals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pandas
import pytest

from edpbrl_gym._compat import versions
from edpbrl_gym.cli import main
from edpbrl_gym.experiments.framework import run_experiment
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.experiments.settings import PAPER_USERS, SyntheticSettings
from edpbrl_gym.experiments.synthetic import SYNTHETIC
from edpbrl_gym.workers import cluster as cluster_module
from edpbrl_gym.workers.cluster import ClusterError, DaskCluster
from tests.helpers.dask_clusters import ROOT, local_cluster, started_cluster
from tests.helpers.killing import part_times
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.tiny_units import TINY, TinySettings


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Two workers, with more threads than should be used."""
    with local_cluster(tmp_path_factory.mktemp("local"), n_workers=2, threads_per_worker=2) as cluster:
        yield cluster


@pytest.fixture
def ordered(tmp_path):
    """Two workers that begin calls in the order in which they get them."""
    with local_cluster(tmp_path / "single", n_workers=2, threads_per_worker=1) as cluster:
        yield cluster


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "place").mkdir()
    return TinySettings(str(tmp_path / "place"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The rows of a run in one process."""
    place = tmp_path_factory.mktemp("place")
    return run_experiment(TINY, TinySettings(str(place)), place / "run", jobs=1).table


def connected(address: str) -> DaskCluster:
    """Connect, on a busy machine too."""
    return DaskCluster(address, timeout=60)


def who_did(settings: TinySettings, what: str) -> set[int]:
    """Processes that did a unit or a preparation."""
    return {int(path.name.rpartition("-")[2]) for path in Path(settings.place).glob(f"did-{what}*")}


def wait_for(condition) -> None:
    """Look again and again; the time limit of the test is that of the wait."""
    while not condition():
        time.sleep(0.05)


def same(table, expected) -> None:
    pandas.testing.assert_frame_equal(table, expected, check_exact=True)


def test_units_and_preparations_run_on_the_workers_with_the_same_results(local, settings, expected, tmp_path):
    seen = []

    def track(name, steps, total):
        seen.append((name, total))
        return steps

    with connected(local.scheduler_address) as cluster:
        results = run_experiment(TINY, settings, tmp_path / "run", jobs=cluster, track=track)
        again = run_experiment(TINY, settings, tmp_path / "run", jobs=cluster, track=track)
    same(results.table, expected)
    same(again.table, expected)
    assert seen == [("shared", 2), ("units", 6)]  # the second run found all parts
    workers = {worker.process.pid for worker in local.workers.values()}
    assert who_did(settings, "unit") | who_did(settings, "one") <= workers


def test_a_command_with_relative_paths_runs_on_workers_of_another_folder(local, tmp_path, monkeypatch, capsys):
    write_embedded(tmp_path, PAPER_USERS.values())
    monkeypatch.chdir(tmp_path)
    small = {"episodes": 2, "runs": 2, "prompts": 8, "pairs": 28, "iterations": 5}
    small |= {"vocabulary": "vocabulary", "encoder": "precomputed:embeddings.npz"}
    options = [text for name, value in small.items() for text in (f"--{name}", str(value))]
    on_cluster = ["--out", "cluster", "--dask", local.scheduler_address, "--dask-timeout", "60"]
    assert main(["reproduce", "synthetic", *options, *on_cluster]) == 0
    assert "runs" in capsys.readouterr().err  # the progress bar
    here = run_experiment(SYNTHETIC, SyntheticSettings(**small | {"episodes": (2,)}), "here", jobs=1)
    same(read_results("cluster").table, here.table)


def test_what_a_dead_worker_held_is_sent_again_where_the_scheduler_gives_it_up(settings, expected, tmp_path):
    (Path(settings.place) / "kill-1").write_bytes(b"x")
    with (
        started_cluster(tmp_path / "cluster", allowed_failures=0) as started,
        connected(started.address) as cluster,
    ):
        results = run_experiment(TINY, settings, tmp_path / "run", jobs=cluster)
        wait_for(lambda: sum(worker.poll() is not None for worker in started.workers) == 1)
    same(results.table, expected)
    assert not (Path(settings.place) / "kill-1").read_bytes()


def test_a_unit_that_kills_every_worker_ends_the_run_and_keeps_the_others(settings, expected, tmp_path, monkeypatch):
    kill = Path(settings.place) / "kill-1"
    kill.write_bytes(b"xx")
    monkeypatch.setattr(cluster_module, "_LOSSES", 2)
    with (
        started_cluster(tmp_path / "cluster", allowed_failures=0) as started,
        connected(started.address) as cluster,
        pytest.raises(ClusterError, match=r"until unit-\d is done, all that held it died in 2 tries.*memory"),
    ):
        run_experiment(TINY, settings, tmp_path / "run", jobs=cluster)
    assert kill.read_bytes() == b""
    same(run_experiment(TINY, settings, tmp_path / "run", jobs=1).table, expected)


INTERRUPTED = """
    import sys
    from edpbrl_gym.cli.arguments import Workers
    from edpbrl_gym.cli.console import explain
    from edpbrl_gym.experiments.framework import run_experiment
    from tests.helpers.tiny_units import TINY, TinySettings

    address, place, out = sys.argv[1:]
    try:
        with Workers(dask=address, dask_timeout=60).executor() as executor:
            run_experiment(TINY, TinySettings(place), out, jobs=executor)
    except BaseException as error:
        sys.exit(explain(error))
"""


def test_ctrl_c_drops_what_has_not_begun_and_keeps_what_is_finished(ordered, settings, expected, tmp_path):
    gate = Path(settings.place) / "wait"
    gate.touch()
    out = tmp_path / "run"
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), ordered.scheduler_address, settings.place, str(out)]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        wait_for(lambda: len(part_times(out)) == 2 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and said.strip().splitlines()[-1].startswith("edpbrl: interrupted"), said
    wait_for(lambda: not ordered.scheduler.tasks)
    finished = part_times(out)
    assert set(finished) == {"unit-0.parquet", "unit-1.parquet"}
    gate.unlink()
    same(run_experiment(TINY, settings, out, jobs=1).table, expected)
    assert {name: part_times(out)[name] for name in finished} == finished


def test_a_scheduler_that_goes_away_is_told_and_the_run_goes_on_later(settings, expected, tmp_path):
    gate = Path(settings.place) / "wait"
    gate.touch()
    out = tmp_path / "run"

    def track(name, steps, total):
        for step in steps:
            yield step
            if len(part_times(out)) == 2:
                started.scheduler.kill()

    with (
        started_cluster(tmp_path / "cluster", workers=1) as started,
        DaskCluster(started.address, timeout=15) as cluster,
        pytest.raises(ClusterError, match="it is gone or has dropped it.*the same command goes on"),
    ):
        run_experiment(TINY, settings, out, jobs=cluster, track=track)
    gate.unlink()
    assert len(part_times(out)) == 2
    same(run_experiment(TINY, settings, out, jobs=1).table, expected)


def test_nobody_at_the_address_is_told_before_anything_is_written(tmp_path, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    out = tmp_path / "run"
    for wrong in (address, "nonsense://x"):
        command = ["reproduce", "synthetic", "--out", str(out), "--dask", wrong, "--dask-timeout", "0.5"]
        assert main(command) == 1
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == 1 and said[0].startswith(f"edpbrl: error: Expected a Dask scheduler at '{wrong}'"), said
    assert not out.exists()


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs a name that every process sees differently")
def test_a_worker_that_does_not_see_the_run_folder_is_refused(local, settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with connected(local.scheduler_address) as cluster, pytest.raises(ClusterError) as error:
        run_experiment(TINY, settings, "/proc/self/cwd/run", jobs=cluster)
    assert "Expected the worker tcp://127.0.0.1:" in str(error.value)
    assert "to see the folder /proc/self/cwd/run, it does not; choose one that all workers see" in str(error.value)
    assert not who_did(settings, "")


def test_other_versions_on_a_worker_are_refused(local, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "versions", lambda: versions() | {"numpy": "0.1"})
    said = r"the same versions on the worker tcp://.*: numpy is \S+ there, 0.1"
    with connected(local.scheduler_address) as cluster, pytest.raises(ClusterError, match=said):
        run_experiment(TINY, settings, tmp_path / "run", jobs=cluster)
    assert not who_did(settings, "")


def test_code_that_a_worker_cannot_import_is_named(local, settings, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def run_unit(settings, unit, folder, prepared):\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    from dataclasses import replace

    from only_here import run_unit

    with (
        connected(local.scheduler_address) as cluster,
        pytest.raises(ClusterError, match="No module named 'only_here'; install it there.*PYTHONPATH"),
    ):
        run_experiment(replace(TINY, run_unit=run_unit), settings, tmp_path / "run", jobs=cluster)
