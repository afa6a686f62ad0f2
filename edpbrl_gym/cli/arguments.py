"""How the command line reads arguments of some types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import tyro

__all__ = ["RULES", "CriterionName"]

CriterionName = Literal["V", "A", "D"]
RULES = tyro.constructors.ConstructorRegistry()


@RULES.primitive_rule
def _path(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Paths as tyro reads them, but not the empty one: ``Path("")`` is the current folder, which nobody has named."""
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
    """Texts by name as ``name=text``; a name alone has an empty text, which the settings may know."""
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
