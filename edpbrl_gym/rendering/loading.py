"""Renderers by name, such as "diffusers:stabilityai/sd-turbo"."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from edpbrl_gym._compat import Need, check_installed, import_string
from edpbrl_gym._devices import own_device
from edpbrl_gym._executor import Executor
from edpbrl_gym._validation import did_you_mean, known_name
from edpbrl_gym.rendering.base import Renderer
from edpbrl_gym.rendering.cached import CachedRenderer

__all__ = ["BACK_ENDS", "load_renderer", "option_value", "renderer_forms", "renderer_needs", "renderer_options"]


class BackEnd(NamedTuple):
    """A row of the table."""

    path: str  # "package.module:Class" of a ``Renderer``, made of a source and options
    source: str | None  # what follows the colon; None: nothing does
    packages: tuple[str, ...] = ()  # without which it can't draw
    extra: str | None = None  # that brings them
    is_address: bool = False  # whether the source is an address, of which parameters may be options: URL?OPTION=VALUE
    fragment: str | None = None  # the option that follows the "#" of an address
    files: tuple[str, ...] = ()  # options that name files

    def form(self, kind: str) -> str:
        """How the renderer is written."""
        return f"'{kind}'" if self.source is None else f"'{kind}:SOURCE' ({self.source})"


BACK_ENDS: dict[str, BackEnd] = {
    "diffusers": BackEnd(
        "edpbrl_gym.rendering.diffusers:DiffusersRenderer",
        "a text-to-image model, by hub id, folder or .safetensors file",
        ("diffusers", "torch", "transformers", "PIL"),
        "images",
    ),
    "openai": BackEnd(
        "edpbrl_gym.rendering.services.openai:OpenAIRenderer",
        "URL#MODEL of an OpenAI-compatible images endpoint",
        ("httpx2", "PIL"),
        "pictures",
        is_address=True,
        fragment="model",
    ),
    "a1111": BackEnd(
        "edpbrl_gym.rendering.services.a1111:A1111Renderer",
        "URL of A1111, Forge or SD.Next, or URL#CHECKPOINT",
        ("httpx2", "PIL"),
        "pictures",
        is_address=True,
        fragment="model",
    ),
    "comfyui": BackEnd(
        "edpbrl_gym.rendering.services.comfyui:ComfyUIRenderer",
        "URL?workflow=FILE of ComfyUI and a workflow with {prompt} in it",
        ("httpx2", "PIL"),
        "pictures",
        is_address=True,
        fragment="model",
        files=("workflow",),
    ),
    "folder": BackEnd(
        "edpbrl_gym.rendering.folder:FolderRenderer",
        "pictures that exist: a folder, or a table of files and prompts",
        ("PIL",),
        "pictures",
    ),
    "posters": BackEnd("edpbrl_gym.rendering.posters:PostersRenderer", None, ("resvg_py",), "pictures"),
}
"""Kind of renderer -> what it is; the first is meant by a source alone."""
_IMPORT_STRING = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _parts(spec: str) -> tuple[str, list[str]]:
    """The kind, "" of an import string, and the arguments without names: the source, if there is one."""
    problem = None
    if not isinstance(spec, str) or not spec.strip():
        problem = f"got {spec!r}"
    else:
        named, colon, source = spec.partition(":")
        kind = known_name(named, BACK_ENDS)
        if kind in BACK_ENDS and (BACK_ENDS[kind].source is not None) == bool(colon):
            return kind, [source] if colon else []
        is_import, meant = _IMPORT_STRING.fullmatch(spec), did_you_mean(named, BACK_ENDS)
        if kind in BACK_ENDS:
            problem = f"got {_shown(spec)!r}; write {BACK_ENDS[kind].form(kind)}"
        elif is_import and not (meant and find_spec(named.partition(".")[0]) is None):
            return "", []
        elif (colon and len(named) > 1) or (meant and "/" not in spec):  # "C:" is a drive
            problem = f"got {_shown(spec)!r}"
            if meant:
                raise ValueError(f"Expected a renderer, {problem}{meant}")
        if problem is None or Path(spec).exists():
            return next(iter(BACK_ENDS)), [spec]
    raise ValueError(f"Expected a renderer of one of the forms {renderer_forms()}; {problem}")


def _shown(spec: str) -> str:
    """A renderer as messages name it: without what may be a password or a key in an address."""
    return re.sub(r"(//)[^/?#]*@", r"\1***@", spec).partition("?")[0]


def renderer_forms() -> str:
    """The names of renderers, in words."""
    forms = [row.form(kind) for kind, row in BACK_ENDS.items()]
    return "; ".join([*forms, "'package.module:Class' (a renderer of your own)"])


def option_value(text: str) -> Any:
    """The value of an option in a text: a number, true, false, null, a text in double quotes, else the text itself."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def _class(spec: str) -> type[Renderer]:
    kind, _ = _parts(spec)
    cls = import_string(BACK_ENDS[kind].path if kind else spec, "renderer")
    if not (isinstance(cls, type) and issubclass(cls, Renderer)):
        raise TypeError(f"Expected {spec!r} to be a subclass of {Renderer.__module__}.Renderer, got {cls!r}")
    return cls


def _arguments(spec: str) -> tuple[list[str], dict[str, Any]]:
    """The arguments without names, and the options in the text of an address; its other parameters stay in it."""
    kind, source = _parts(spec)
    if not kind or not BACK_ENDS[kind].is_address:
        return source, {}
    address, _, fragment = source[0].partition("#")
    address, _, query = address.partition("?")
    known, kept, options = set(_class(spec).options()[1:]), [], dict[str, Any]()
    for pair in filter(None, query.split("&")):
        name, _, text = pair.partition("=")
        if name not in known:
            kept.append(pair)
            continue
        options[name] = option_value(unquote(text)) if name not in BACK_ENDS[kind].files else unquote(text)
    if fragment:
        follows = BACK_ENDS[kind].fragment
        if follows is None or follows in options:
            raise ValueError(f"Expected the renderer {_shown(spec)!r} without a '#' part, got {fragment!r}")
        options[follows] = unquote(fragment)
    return [address + ("?" + "&".join(kept) if kept else "")], options


def renderer_needs(spec: str, purpose: str) -> list[Need]:
    """The packages without which a renderer can't draw; none for those of others."""
    kind, _ = _parts(spec)
    return [Need(one, purpose, BACK_ENDS[kind].extra) for one in BACK_ENDS[kind].packages] if kind else []


def renderer_options(spec: str) -> list[str]:
    """Names of the options of a renderer that its text leaves open; raises as ``load_renderer``."""
    source, given = _arguments(spec)
    return [option for option in _class(spec).options()[len(source) :] if option not in given]


@dataclass(frozen=True)
class _Maker:
    """Makes a renderer on a worker, with a device of its own."""

    spec: str
    options: dict[str, Any]

    def __call__(self) -> Renderer:
        device = {"device": own_device(self.options.get("device"))} if "device" in renderer_options(self.spec) else {}
        return self.make(**device)

    def make(self, **options: Any) -> Renderer:
        source, given = _arguments(self.spec)
        return _class(self.spec)(*source, **given | self.options | options)


def load_renderer(
    spec: str | Renderer,
    *,
    cache_folder: str | PathLike[str],
    beside: Path | None = None,
    executor: Executor | None = None,
    budget: int | None = None,
    **options: Any,
) -> CachedRenderer:
    """Return the renderer that ``spec`` names, or that it is, behind a cache on disk.

    Args:
        spec: "KIND:SOURCE" with a kind of ``BACK_ENDS``, or "KIND" alone of one without a source; a source alone, of a
            text-to-image model; the import string "package.module:Class" of a ``Renderer``; or an instance of one.
            Where the source is an address, options may be among its parameters: "KIND:URL?OPTION=VALUE".
        cache_folder: Folder of the images of all renderers.
        beside: Folder to which a source, or a file among the options, may be relative.
        executor: Renders on its workers, each with a renderer of its own, made from ``spec``, no instance.
        budget: Number of new images that are asked for in all, at most (None: no limit).
        **options: Of the renderer (``renderer_options``), such as ``steps`` of a text-to-image model.

    Raises:
        ValueError, TypeError: A form, option or value is wrong.
        ModuleNotFoundError, ImportError: A package or class is missing.
    """
    if isinstance(spec, Renderer):
        if executor is not None or options:
            raise TypeError("Expected the name of a renderer with an executor or options, got an instance; name it")
        return CachedRenderer(spec, cache_folder=cache_folder, budget=budget)
    kind, source = _parts(spec)
    row = BACK_ENDS[kind] if kind else None
    if row is not None and source and not row.is_address and beside is not None and (beside / source[0]).exists():
        spec = f"{kind}:{beside / source[0]}"
    check_installed(*renderer_needs(spec, f"the renderer {_shown(spec)!r}"))
    known = renderer_options(spec)
    for option in options:
        if option not in known:
            listed = ", ".join(known) or "none"
            raise TypeError(
                f"Expected an option of the renderer {_shown(spec)!r}, got {option!r}; its options: {listed}"
            )
    if row is not None and beside is not None:
        for name, value in (_arguments(spec)[1] | options).items():
            if name in row.files and (beside / str(value)).exists():
                options[name] = str(beside / str(value))
    maker = _Maker(spec, options)
    return CachedRenderer(maker.make(), cache_folder=cache_folder, executor=executor, maker=maker, budget=budget)
