"""What an installation has: optional packages, torch devices, and small repairs of common mismatches."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["constructor_options", "declare_torchvision_schemas", "import_string", "need", "require", "resolve_device"]

# the operators for which torchvision registers a Python kernel at import, without asking whether they exist
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_done: list[bool] = []


def _operators_load(package: Path) -> bool:
    """Whether torchvision's compiled operators load into this torch; loading them again later is harmless."""
    import torch

    for library in sorted(package.glob("_C*")):
        if library.suffix in (".so", ".pyd", ".dll", ".dylib"):
            try:
                torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
            except (OSError, ImportError):
                return False
            return True
    return False


def declare_torchvision_schemas() -> None:
    """Let ``import torchvision`` go through where its compiled operators do not load.

    The torchvision of the package index is built for CUDA. Beside a CPU build of torch its library does not load,
    ``import torchvision`` fails with "operator torchvision::nms does not exist" and takes transformers,
    sentence-transformers and open_clip down with it. None of our models uses these operators: declaring their schemas
    is enough. A torchvision that fits its torch is left alone (it would refuse a second declaration).

    Call this before importing any of these packages. It does nothing without torchvision, after torchvision has been
    imported, and when called again.
    """
    if _done or "torchvision" in sys.modules:
        return
    _done.append(True)
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return
    if _operators_load(Path(next(iter(spec.submodule_search_locations)))):
        return
    import torch

    for name, schema in _SCHEMAS.items():
        try:
            torch.library.define(f"torchvision::{name}", schema)
        except RuntimeError:  # someone else has applied the same repair
            continue


def require(package: str, purpose: str, install: str) -> ModuleType:
    """Import an optional package.

    Raises:
        ModuleNotFoundError: it is not installed; the message says what to install.
        ImportError: it is installed but broken.
    """
    try:
        declare_torchvision_schemas()
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        missing = error.name or package
        raise ModuleNotFoundError(
            f"Expected the package {missing!r} for {purpose}, got no such package; run: {install}", name=missing
        ) from error
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"Expected to import {package!r} for {purpose}, got {error}; the package is installed but broken, "
            f"run: {install} --upgrade"
        ) from error


def need(package: str, purpose: str, extra: str) -> None:
    """Raise now if an optional package that will be needed later isn't installed; nothing is imported.

    Args:
        package: Name under which it is imported.
        purpose: What for, for the message.
        extra: Of edpbrl-gym, that brings it.

    Raises:
        ModuleNotFoundError: The message says what to install.
    """
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(
            f"Expected the package {package!r} for {purpose}, got no such package; run: "
            f'pip install "edpbrl-gym[{extra}]"',
            name=package,
        )


def import_string(path: str, what: str) -> Any:
    """Return what an import string "package.module:Class" names.

    Args:
        path: The import string.
        what: What it stands for, for messages ("agent").

    Raises:
        ImportError: If the module or the name in it can't be found; an import that fails inside the module is raised
            as it is.
    """
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ImportError(
                f"Expected an importable module {module_name!r} for the {what} {path!r}, there is none; install it or "
                "add its folder to PYTHONPATH."
            ) from error
        raise
    found = getattr(module, name, None)
    if found is None:
        raise ImportError(f"The module {module_name!r} has no {name!r}, asked for by the {what} {path!r}.")
    return found


def constructor_options(cls: type) -> list[str]:
    """Names of a constructor's arguments, through all ``**arguments`` of its bases."""
    names: dict[str, None] = {}
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        names |= {p.name: None for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return list(names)


def resolve_device(device: str | None) -> str:
    """Return the torch device name: the given one, else "cuda" where there is one, else "cpu".

    Raises:
        ValueError: an unknown device, or CUDA where there is none.
    """
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError):
        raise ValueError(f"Expected device as 'cpu', 'cuda' or 'cuda:<number>', got {device!r}") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"Expected an available device, got {device!r}, but torch finds no CUDA; use device='cpu'")
    return str(device)
