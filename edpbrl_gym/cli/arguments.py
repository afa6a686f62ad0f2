"""Arguments shared by several commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, UseAppendAction, arg

from edpbrl_gym._compat import Need
from edpbrl_gym._validation import check_count
from edpbrl_gym.cli.console import output
from edpbrl_gym.rendering.loading import option_value, renderer_forms, renderer_needs
from edpbrl_gym.rendering.settings import ImageSettings

if TYPE_CHECKING:
    from edpbrl_gym._executor import Executor
    from edpbrl_gym.rendering import CachedRenderer

__all__ = ["Budget", "Drawing", "ModelWorkers", "Workers", "check_counts", "say_what_is_drawn"]


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
class Budget:
    """How many pictures are asked for."""

    budget_pictures: int | None = None
    """Ask for at most so many new pictures; those in the cache are free (None: no limit)."""

    def __post_init__(self) -> None:
        check_counts(self, budget_pictures=0)


@dataclass(frozen=True)
class Drawing(Budget):
    """Who draws, with which options, and where the pictures are kept."""

    renderer: Annotated[str | None, arg(metavar="NAME", help=f"Who draws: {renderer_forms()}.")] = None
    images: OmitArgPrefixes[ImageSettings] = field(default_factory=ImageSettings)
    renderer_option: UseAppendAction[tuple[str, ...]] = ()
    """Another option of the renderer, as NAME=VALUE, once for each: quality=high (openai), sampler=Euler (a1111),
    workflow=FILE (comfyui). A name that it doesn't have is refused with those that it has. Numbers, true and false are
    read as such, or as a text in double quotes."""
    device: str | None = None
    """Torch device (None: cuda where there is one, else cpu)."""
    batch_size: int | None = None
    """Images at once, at most (None: as many as the renderer takes); halved when the memory is too small."""
    attention_slicing: bool = False
    """Use less memory and more time."""
    offload: Literal["model", "sequential"] | None = None
    """Keep the weights in the CPU's memory, and move whole models or single layers to the GPU when they compute."""
    price: float | None = None
    """What a picture costs, of those who draw for money, in any currency: the cost is said before and after."""
    cache: Path | None = None
    """Folder of the image cache (None: images/ in the folder that EDPBRL_CACHE names, else in the user's cache)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, batch_size=1)

    def needs(self, *, required: bool = False) -> list[Need]:
        """What the renderer needs; a ValueError if there is none and it is ``required``."""
        if self.renderer is None and required:
            raise ValueError(f"Expected --renderer, who draws: {renderer_forms()}; got none")
        return [] if self.renderer is None else renderer_needs(self.renderer, "--renderer")

    def options(self) -> dict[str, Any]:
        """The options of the renderer with another value than the default.

        Raises:
            ValueError: An option is wrong.
        """
        given = {
            name: getattr(options, name)
            for options, names in ((self.images, [one.name for one in fields(self.images)]), (self, _OF_MACHINE))
            for name in names
            if getattr(options, name) != getattr(type(options), name)
        }
        for text in self.renderer_option:
            name, value = _option(text)
            if name in given:
                raise ValueError(f"Expected the option {name} of the renderer once, got it twice; leave one out")
            given[name] = value
        return given

    def load(self, executor: Executor | None = None) -> CachedRenderer:
        """The renderer; a model is loaded when the first image is missing in the cache.

        Options with another value than the default are for the renderer, which refuses those that it doesn't have.

        Raises:
            ValueError: An option is wrong; see also ``load_renderer``.
        """
        assert self.renderer is not None
        return self.load_as(self.renderer, self.options(), executor)

    def load_as(self, renderer: str, options: Mapping[str, Any], executor: Executor | None = None) -> CachedRenderer:
        """A renderer with options, with the cache and the budget that are chosen here."""
        from edpbrl_gym.features import default_cache_folder
        from edpbrl_gym.rendering import load_renderer

        folder, budget = self.cache or default_cache_folder() / "images", self.budget_pictures
        return load_renderer(renderer, cache_folder=folder, executor=executor, budget=budget, **options)


def check_counts(options: Any, *, most: int | None = None, **least: int) -> None:
    """Check that options, where they are given, are integers of at least so much, and at most ``most``."""
    for name, minimum in least.items():
        if getattr(options, name) is not None:
            check_count(getattr(options, name), f"--{name.replace('_', '-')}", minimum=minimum, maximum=most)


_OF_MACHINE = ("device", "batch_size", "attention_slicing", "offload", "price")  # options that affect no image


def say_what_is_drawn(renderer: CachedRenderer, texts: Sequence[str], seed: int | Sequence[int]) -> None:
    """Print, before anything is drawn, how many pictures are in the cache, how many will be drawn, and their cost."""
    number, missing = renderer.missing(texts, seed=seed)
    drawn = missing if renderer.budget is None else min(missing, renderer.budget)
    said = f"{number} pictures by {renderer.renderer.name}: {number - missing} in the cache, {drawn} to be drawn"
    if drawn < missing:
        said += f" of {missing}, as --budget-pictures says"
    if renderer.renderer.price and drawn:
        said += f", for {drawn * renderer.renderer.price:g} (at {renderer.renderer.price:g} each)"
    output().print(said, soft_wrap=True)


def _option(text: str) -> tuple[str, Any]:
    """Name and value of NAME=VALUE."""
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name.isidentifier():
        raise ValueError(f"Expected --renderer-option as NAME=VALUE, got {text!r}")
    return name, option_value(value)
