"""Scripts beside an export that read ``options.csv`` and fit a conditional logit: for R, Python and SPSS."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from edpbrl_gym._places import write_atomically
from edpbrl_gym.study.export_tables import Column

__all__ = ["write_scripts"]

_WHOLE = ("logit.R", "logit.py")
_SPSS = "logit.sps"
_FORMATS = {"integer": "F8.0", "number": "F20.12"}


def write_scripts(folder: Path, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the scripts; that of SPSS names the columns of ``options.csv``, whose rows these are."""
    source = files("edpbrl_gym.study") / "scripts"
    for name in (*_WHOLE, _SPSS):
        text = (source / f"{name}.txt").read_text(encoding="utf-8")
        if name == _SPSS:
            text = _filled(text, columns, rows)
        write_atomically(folder / name, functools.partial(Path.write_text, data=text, encoding="utf-8"))


def _filled(text: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    names = [column.name for column in columns]
    attributes = [name for name in names if name.startswith("feature_")]
    tokens = [] if attributes else [name for name in names if name.startswith("token_")]
    written = []
    for column in columns:
        longest = max((len(str(row[column.name] or "").encode()) + 1 for row in rows), default=1)  # and an apostrophe
        written.append(f"    {column.name} {_FORMATS.get(column.type) or f'A{longest}'}")
    codes = [f"{name}_code" for name in tokens]  # of texts SPSS compares the first eight bytes only
    recode = f"AUTORECODE VARIABLES={' '.join(tokens)}\n  /INTO {' '.join(codes)}\n  /PRINT.\n" if tokens else ""
    categories = "".join(f"\n  /CONTRAST({code})=INDICATOR" for code in codes)
    fields = {
        "variables": "\n".join(written),
        "attributes": " ".join(attributes or codes),
        "recode": recode,
        "categories": f"\n  /CATEGORICAL={' '.join(codes)}{categories}" if codes else "",
    }
    return text.format_map(fields)
