"""Workers as jobs of SLURM, through dask-jobqueue: a TOML file describes a job, which runs one worker."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from edpbrl_gym._compat import Need, check_installed
from edpbrl_gym._files import errors_naming
from edpbrl_gym._validation import check_count

__all__ = ["SlurmJobs"]


@dataclass(frozen=True, kw_only=True)
class SlurmJobs:
    """Jobs with one worker each, which does one call at a time.

    Attributes:
        workers: Number of jobs that are kept queued or running.
        memory: Memory of a job, such as "32GB".
        walltime: Longest time of a job, hours:minutes:seconds; a job that ends is replaced, and its work done again.
        cpus: Cores of a job.
        partition: Partition (None: SLURM's own choice).
        account: Account that is charged (None: SLURM's own choice).
        directives: Further options of sbatch, such as "--gres=gpu:1" for a GPU.
        prologue: Shell commands that a job runs first, such as "module load cuda".
        interface: Network interface on which workers and scheduler talk, such as "ib0" (None: the default one).
        logs: Folder of the jobs' output (None: SLURM's own choice).

    Raises:
        ValueError, TypeError: A value is out of its range or of another type.
    """

    workers: int
    memory: str
    walltime: str
    cpus: int = 1
    partition: str | None = None
    account: str | None = None
    directives: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    interface: str | None = None
    logs: str | None = None

    def __post_init__(self) -> None:
        check_count(self.workers, "workers")
        check_count(self.cpus, "cpus")
        for name in ("directives", "prologue"):
            lines = getattr(self, name)
            if not isinstance(lines, (list, tuple)) or not all(isinstance(line, str) for line in lines):
                raise TypeError(f"Expected {name} as a list of texts, got {lines!r}")
            object.__setattr__(self, name, tuple(lines))
        for name in ("memory", "walltime", "partition", "account", "interface", "logs"):
            value = getattr(self, name)
            optional = name not in ("memory", "walltime")
            if not (isinstance(value, str) and value.strip()) and not (optional and value is None):
                raise TypeError(f"Expected {name} as a text that is not empty, got {value!r}")

    @classmethod
    def read(cls, path: Path) -> SlurmJobs:
        """Read a TOML file with the attributes as keys.

        Raises:
            ValueError: It is no TOML, lacks a key, or has an unknown or wrong one.
            OSError: It can't be read.
        """
        with errors_naming(path):
            data = path.read_bytes()
        try:
            given = tomllib.loads(data.decode("utf-8"))
            known = [field.name for field in fields(cls)]
            unknown = sorted(set(given) - set(known))
            missing = [name for name in ("workers", "memory", "walltime") if name not in given]
            if unknown or missing:
                what = f"got {', '.join(unknown)}" if unknown else f"{', '.join(missing)} is missing"
                raise ValueError(f"the keys are {', '.join(known)}; {what}")
            return cls(**given)
        except (ValueError, TypeError) as error:
            raise ValueError(f"Expected a description of SLURM jobs in {path}: {error}") from error

    def cluster(self) -> Any:
        """Start a scheduler in this process, without jobs; ``job_script()`` of the result is what would be submitted.

        Returns:
            A ``dask_jobqueue.SLURMCluster``, to be closed.

        Raises:
            ModuleNotFoundError: dask-jobqueue is not installed.
        """
        check_installed(Need("dask_jobqueue", "jobs of SLURM"))
        from dask_jobqueue.slurm import SLURMCluster

        return SLURMCluster(
            queue=self.partition,
            account=self.account,
            walltime=self.walltime,
            memory=self.memory,
            cores=1,  # one call at a time
            processes=1,
            job_cpu=self.cpus,
            job_name="edpbrl",
            job_extra_directives=list(self.directives),
            job_script_prologue=list(self.prologue),
            log_directory=self.logs,
            interface=self.interface,
            python=sys.executable,
            scheduler_options={"dashboard": False, "dashboard_address": ":0"},
        )

    @contextmanager
    def started(self) -> Iterator[str]:
        """Submit the jobs, and yield the scheduler's address; they are cancelled afterwards.

        Raises:
            RuntimeError: There is no sbatch, or it fails.
        """
        with self.cluster() as cluster:
            cluster.adapt(minimum_jobs=self.workers, maximum_jobs=self.workers)  # replaces jobs that have ended
            yield cluster.scheduler_address
