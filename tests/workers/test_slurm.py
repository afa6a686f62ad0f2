"""Jobs of SLURM: their scripts, and a run whose scripts are executed by an sbatch that knows no queue."""

from __future__ import annotations

import os
import re
import sys

import pandas
import pytest

from edpbrl_gym.cli.arguments import Workers
from edpbrl_gym.experiments.framework import run_experiment
from edpbrl_gym.workers.slurm import SlurmJobs
from tests.helpers.dask_clusters import ROOT
from tests.helpers.tiny_units import TINY, TinySettings

FILE = """
workers = 2
memory = "4GB"
walltime = "01:30:00"
cpus = 3
partition = "gpu"
account = "taste"
directives = ["--gres=gpu:1", "--exclusive=user"]
prologue = ["export OMP_NUM_THREADS=1", "echo begun"]
logs = "logs"
interface = "lo"
"""
# runs a script at once, in the background, and names it by its process number; as SLURM does, it keeps a copy, since
# dask-jobqueue deletes the script as soon as this ends
SBATCH = """#!/bin/sh
cp "$1" "$0.$$.sh"
setsid /bin/bash "$0.$$.sh" > "$0.$$.log" 2>&1 < /dev/null &
echo "$!" >> "$0.jobs"
echo "Submitted batch job $!"
"""
SCANCEL = '#!/bin/sh\nfor job in "$@"; do kill -- "-$job" 2>/dev/null; echo "$job" >> "$0.jobs"; done\n'


def test_the_script_of_a_job_says_what_the_file_says(tmp_path):
    (tmp_path / "slurm.toml").write_text(FILE)
    with SlurmJobs.read(tmp_path / "slurm.toml").cluster() as cluster:
        lines = cluster.job_script().splitlines()
        address = cluster.scheduler_address
    assert lines[0].startswith("#!") and [line for line in lines if line.startswith("#SBATCH")] == [
        "#SBATCH -J edpbrl",
        "#SBATCH -e logs/edpbrl-%J.err",
        "#SBATCH -o logs/edpbrl-%J.out",
        "#SBATCH -p gpu",
        "#SBATCH -A taste",
        "#SBATCH -n 1",
        "#SBATCH --cpus-per-task=3",
        "#SBATCH --mem=4G",
        "#SBATCH -t 01:30:00",
        "#SBATCH --gres=gpu:1",
        "#SBATCH --exclusive=user",
    ]
    worker = next(line for line in lines if address in line)
    assert lines.index("export OMP_NUM_THREADS=1") < lines.index("echo begun") < lines.index(worker)
    assert worker.startswith(f"{sys.executable} -m distributed.cli.dask_worker {address} ")
    assert "--nthreads 1" in worker and "--nworkers" not in worker and "--interface lo" in worker


def test_the_page_shows_the_script_of_its_file(tmp_path):
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    file, script = (
        re.search(rf"<!-- slurm-{name} -->\n```\w+\n(.*?)```", page, re.S)[1] for name in ("file", "script")
    )
    (tmp_path / "slurm.toml").write_text(file.replace('"ib0"', '"lo"'))
    with SlurmJobs.read(tmp_path / "slurm.toml").cluster() as cluster:
        written = cluster.job_script().replace(cluster.scheduler_address, "SCHEDULER").replace(sys.executable, "PYTHON")
    assert written.strip().replace("--interface lo", "--interface ib0") == script.strip()


def test_an_experiment_runs_in_jobs_that_are_cancelled_afterwards(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    for name, script in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    file = tmp_path / "slurm.toml"
    file.write_text('workers = 2\nmemory = "2GB"\nwalltime = "00:10:00"\ninterface = "lo"\n')
    (tmp_path / "place").mkdir()
    settings = TinySettings(str(tmp_path / "place"))
    expected = run_experiment(TINY, settings, tmp_path / "here", jobs=1).table
    for did in (tmp_path / "place").glob("did-*"):
        did.unlink()
    with Workers(dask=str(file), dask_timeout=60).executor() as executor:
        results = run_experiment(TINY, settings, tmp_path / "run", jobs=executor)
    pandas.testing.assert_frame_equal(results.table, expected, check_exact=True)
    pids = {int(path.name.rpartition("-")[2]) for path in (tmp_path / "place").glob("did-unit*")}
    assert len(pids) >= 1 and os.getpid() not in pids
    jobs = [(tmp_path / "bin" / f"{name}.jobs").read_text().split() for name in ("sbatch", "scancel")]
    assert len(jobs[0]) == 2 and set(jobs[0]) == set(jobs[1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workers = ", "Expected a description of SLURM jobs in .*slurm.toml: Invalid value"),
        ('workers = 2\nmemory = "1GB"\n', "walltime is missing"),
        (FILE + "gpus = 1\n", "the keys are workers, memory, .*; got gpus"),
        (FILE.replace("workers = 2", "workers = 0"), "Expected workers >= 1, got 0"),
        (FILE.replace('"4GB"', "4"), "Expected memory as a text that is not empty, got 4"),
        (FILE.replace('["--gres=gpu:1", "--exclusive=user"]', '"--gres=gpu:1"'), "Expected directives as a list"),
    ],
)
def test_a_file_that_is_wrong_is_told_what_is_expected(text, said, tmp_path):
    (tmp_path / "slurm.toml").write_text(text)
    with pytest.raises(ValueError, match=said):
        SlurmJobs.read(tmp_path / "slurm.toml")
