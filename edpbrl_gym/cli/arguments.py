"""Arguments shared by several commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edpbrl_gym._compat import Need
from edpbrl_gym._validation import check_count

if TYPE_CHECKING:
    from edpbrl_gym._executor import Executor
    from edpbrl_gym.rendering import CachedRenderer, ImageSettings

__all__ = ["Drawing", "ModelWorkers", "Workers"]


@dataclass(frozen=True)
class Workers:
    """Who does the work."""

    jobs: int | None = None
    """Processes (None: one for each core); the results do not depend on it."""
    dask: str | None = None
    """Address of a Dask scheduler, such as tcp://host:8786: its workers do the work in place of processes; they see the
    folders and have the same environment (extra: cluster)."""
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
        """Processes, or the cluster as long as the context lasts."""
        from edpbrl_gym.workers import DaskCluster, LocalProcesses

        if self.dask is None:
            yield LocalProcesses(self.jobs)
            return
        with DaskCluster(self.dask, timeout=self.dask_timeout) as cluster:
            yield cluster

    def needs(self) -> list[Need]:
        return [] if self.dask is None else [Need("distributed", "--dask")]


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


@dataclass(frozen=True)
class Drawing:
    """Device, batches and cache of the renderer: nothing that affects the images."""

    device: str | None = None
    """Torch device (None: cuda where there is one, else cpu)."""
    batch_size: int = 4
    """Maximum number of images per batch; halved when the memory is too small."""
    attention_slicing: bool = False
    """Use less memory and more time."""
    offload: Literal["model", "sequential"] | None = None
    """Keep the weights in the CPU's memory, and move whole models or single layers to the GPU when they compute."""
    cache: Path | None = None
    """Folder of the image cache (None: images/ in the folder that EDPBRL_CACHE names, else in the user's cache)."""

    def __post_init__(self) -> None:
        check_count(self.batch_size, "--batch-size")

    def renderer(self, spec: str, images: ImageSettings, executor: Executor | None = None) -> CachedRenderer:
        """A renderer; its model is loaded when the first image is missing in the cache.

        Options with another value than the default are for the renderer, which refuses those that it doesn't have.
        """
        from edpbrl_gym.features import default_cache_folder
        from edpbrl_gym.rendering import load_renderer

        given = {
            one.name: getattr(options, one.name)
            for options in (images, self)
            for one in fields(options)
            if one.name not in ("model", "cache") and getattr(options, one.name) != one.default
        }
        folder = self.cache or default_cache_folder() / "images"
        return load_renderer(spec, cache_folder=folder, executor=executor, **given)
