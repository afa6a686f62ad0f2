"""Renderers by name, such as "diffusers:stabilityai/sd-turbo"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from edpbrl_gym._compat import Need, check_installed, import_string
from edpbrl_gym._devices import own_device
from edpbrl_gym._executor import Executor
from edpbrl_gym.rendering.base import Renderer
from edpbrl_gym.rendering.cached import CachedRenderer

__all__ = ["BACK_ENDS", "load_renderer", "renderer_forms", "renderer_needs", "renderer_options"]


class BackEnd(NamedTuple):
    """A row of the table."""

    path: str  # "package.module:Class" of a ``Renderer``, made of a source and options
    source: str  # what follows the colon
    packages: tuple[str, ...] = ()  # without which it can't draw
    extra: str | None = None  # that brings them


BACK_ENDS: dict[str, BackEnd] = {
    "diffusers": BackEnd(
        "edpbrl_gym.rendering.diffusers:DiffusersRenderer",
        "a text-to-image model, by hub id or folder",
        ("diffusers", "torch", "transformers", "PIL"),
        "images",
    ),
}
"""Kind of renderer -> what it is; the first is meant by a source alone."""
_IMPORT_STRING = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _parts(spec: str) -> tuple[str, list[str]]:
    """The kind, "" of an import string, and the arguments without names: the source."""
    if not isinstance(spec, str) or not spec.strip():
        raise ValueError(f"Expected a renderer, one of {renderer_forms()}; got {spec!r}")
    kind, _, source = spec.partition(":")
    if kind in BACK_ENDS:
        return kind, [source]
    return ("", []) if _IMPORT_STRING.fullmatch(spec) else (next(iter(BACK_ENDS)), [spec])


def renderer_forms() -> str:
    """The names of renderers, in words."""
    forms = [f"{kind}:SOURCE ({row.source})" for kind, row in BACK_ENDS.items()]
    return "; ".join([*forms, "package.module:Class (a class of your own)"])


def _class(spec: str) -> type[Renderer]:
    kind, _ = _parts(spec)
    cls = import_string(BACK_ENDS[kind].path if kind else spec, "renderer")
    if not (isinstance(cls, type) and issubclass(cls, Renderer)):
        raise TypeError(f"Expected {spec!r} to be a subclass of {Renderer.__module__}.Renderer, got {cls!r}")
    return cls


def renderer_needs(spec: str, purpose: str) -> list[Need]:
    """The packages without which a renderer can't draw; none for those of others."""
    kind, _ = _parts(spec)
    return [Need(one, purpose, BACK_ENDS[kind].extra) for one in BACK_ENDS[kind].packages] if kind else []


def renderer_options(spec: str) -> list[str]:
    """Names of the options of a renderer; raises as ``load_renderer``."""
    return _class(spec).options()[len(_parts(spec)[1]) :]


@dataclass(frozen=True)
class _Maker:
    """Makes a renderer on a worker, with a device of its own."""

    spec: str
    options: dict[str, Any]

    def __call__(self) -> Renderer:
        device = {"device": own_device(self.options.get("device"))} if "device" in renderer_options(self.spec) else {}
        return _class(self.spec)(*_parts(self.spec)[1], **self.options | device)


def load_renderer(
    spec: str | Renderer,
    *,
    cache_folder: str | PathLike[str],
    beside: Path | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> CachedRenderer:
    """Return the renderer that ``spec`` names, or that it is, behind a cache on disk.

    Args:
        spec: "KIND:SOURCE" with a kind of ``BACK_ENDS``; a source alone, of a text-to-image model; the import string
            "package.module:Class" of a ``Renderer``; or an instance of one.
        cache_folder: Folder of the images of all renderers.
        beside: Folder to which a source may be relative.
        executor: Renders on its workers, each with a renderer of its own, made from ``spec``, no instance.
        **options: Of the renderer (``renderer_options``), such as ``steps`` of a text-to-image model.

    Raises:
        ValueError, TypeError: A form, option or value is wrong.
        ModuleNotFoundError, ImportError: A package or class is missing.
    """
    if isinstance(spec, Renderer):
        if executor is not None or options:
            raise TypeError("Expected the name of a renderer with an executor or options, got an instance; name it")
        return CachedRenderer(spec, cache_folder=cache_folder)
    kind, source = _parts(spec)
    if kind and beside is not None and (beside / source[0]).exists():
        spec = f"{kind}:{beside / source[0]}"
    check_installed(*renderer_needs(spec, f"the renderer {spec!r}"))
    known = renderer_options(spec)
    for option in options:
        if option not in known:
            listed = ", ".join(known) or "none"
            raise TypeError(f"Expected an option of the renderer {spec!r}, got {option!r}; its options: {listed}")
    renderer = _class(spec)(*_parts(spec)[1], **options)
    return CachedRenderer(renderer, cache_folder=cache_folder, executor=executor, maker=_Maker(spec, options))
