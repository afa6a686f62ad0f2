"""What is made when it is first used: the names of packages (PEP 562) and fields of dataclasses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, Self, TypeVar, cast, overload

__all__ = ["MadeWhenRead", "lazy_names"]

T = TypeVar("T")


class MadeWhenRead(Generic[T]):
    """A field of a dataclass that is given as a value, or as a function of no arguments that returns it.

    The function is called when the field is first read, and once. A function that is pickled with the object must be
    one that pickle knows, such as a ``functools.partial`` of a module's function.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember the field's name, under which the value is kept in the object's ``__dict__``."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        """The value, made now if it is read for the first time."""
        if instance is None:
            raise AttributeError(self._name)  # so that dataclass sees no default
        value = instance.__dict__[self._name]
        if callable(value):
            value = instance.__dict__[self._name] = value()
        return cast(T, value)

    def __set__(self, instance: object, value: T | Callable[[], T]) -> None:
        """Keep the value, or the function that makes it."""
        instance.__dict__[self._name] = value


def lazy_names(
    package: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package that imports its names when they are first used.

    Type checkers read the ``__init__.pyi`` beside the package's ``__init__.py``, which imports the same names.

    Args:
        package: Full name of the package, its ``__name__``.
        names: Names by module, relative to the package.
    """
    modules = {name: module for module, module_names in names.items() for name in module_names}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names_of() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names_of, sorted(modules, key=lambda name: (name[0].islower(), not name.isupper(), name))
