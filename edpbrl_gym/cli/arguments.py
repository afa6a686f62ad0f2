"""Rules that read command-line arguments of some types, and arguments shared by several commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from edpbrl_gym._compat import Need

if TYPE_CHECKING:
    from edpbrl_gym._executor import Executor

__all__ = ["RULES", "CriterionName", "ModelWorkers", "Workers"]

CriterionName = Literal["V", "A", "D"]
RULES = tyro.constructors.ConstructorRegistry()


@RULES.primitive_rule
def _path(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Paths as tyro reads them, except the empty one: ``Path("")`` would silently be the current folder."""
    optional = info.type == (Path | None)
    if info.type is not Path and not optional:
        return None

    def read(arguments: list[str]) -> Path | None:
        if optional and arguments[0] == "None":
            return None
        if not arguments[0]:
            raise ValueError("an empty path; leave the option out for its default, or write . for the current folder")
        return Path(arguments[0])

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="{None}|PATH" if optional else "PATH",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, Path) or (optional and value is None),
        str_from_instance=lambda value: [str(value)],
    )


@RULES.primitive_rule
def _named_texts(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Texts by name as ``name=text``; a name alone gets an empty text, which the settings may replace."""
    if info.type != Mapping[str, str]:
        return None

    def read(arguments: list[str]) -> dict[str, str]:
        texts: dict[str, str] = {}
        for argument in arguments:
            if argument.partition("=")[0] in texts:
                raise ValueError(f"every name once, got {argument!r}")
            name, equals, texts[name] = argument.partition("=")
            if equals and not texts[name].strip():
                raise ValueError(f"a text after {name}=, got none")
        return texts

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME[=TEXT] ...",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, Mapping),
        str_from_instance=lambda value: list(value),
    )


@dataclass(frozen=True)
class Workers:
    """Who does the work."""

    jobs: int | None = None
    """Processes (None: one for each core); the results do not depend on it."""
    dask: str | None = None
    """Address of a Dask scheduler, such as tcp://host:8786, or a TOML file that describes jobs of SLURM: their workers
    do the work in place of processes; they see the folders and have the same environment (extra: cluster)."""
    dask_timeout: float = 10.0
    """Seconds to wait for the scheduler."""

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"Expected --jobs >= 1, got {self.jobs}")
        if self.jobs is not None and self.dask is not None:
            raise ValueError("Expected --jobs or --dask, got both; a cluster has as many workers as were started")
        if not self.dask_timeout > 0:
            raise ValueError(f"Expected --dask-timeout > 0, got {self.dask_timeout}")

    @contextmanager
    def executor(self) -> Iterator[Executor]:
        """Processes, or the connection to the cluster as long as the context lasts.

        Raises:
            ClusterError: If there is no such scheduler.
            ValueError: If a file does not describe jobs.
        """
        from edpbrl_gym.workers.processes import LocalProcesses

        if self.dask is None:
            yield LocalProcesses(self.jobs)
            return
        with ExitStack() as stack:
            address = self.dask
            if address.endswith(".toml"):
                from edpbrl_gym.workers.slurm import SlurmJobs

                address = stack.enter_context(SlurmJobs.read(Path(address)).started())
            from edpbrl_gym.workers.cluster import DaskCluster

            yield stack.enter_context(DaskCluster(address, timeout=self.dask_timeout))

    def needs(self) -> list[Need]:
        """The optional packages that these options need."""
        packages = ("distributed", *(("dask_jobqueue",) if str(self.dask).endswith(".toml") else ()))
        return [] if self.dask is None else [Need(package, "--dask") for package in packages]


@dataclass(frozen=True)
class ModelWorkers(Workers):
    """Who runs a model: this process, or workers with a model each."""

    jobs: int | None = None
    """Processes, each with the model on a GPU of its own where there are GPUs (None: this process alone); the results
    do not depend on it."""

    @contextmanager
    def if_any(self) -> Iterator[Executor | None]:
        """The executor; None where this process works alone."""
        if self.dask is None and self.jobs in (None, 1):
            yield None
            return
        with self.executor() as executor:
            yield executor
