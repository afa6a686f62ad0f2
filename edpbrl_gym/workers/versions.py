"""Versions of what a result depends on: they are noted with it, and the same on all workers."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

__all__ = ["versions"]

_PACKAGES = (
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


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect a result; absent packages are left out."""
    result = {"python": sys.version.split()[0], "platform": f"{platform.system()} {platform.machine()}"}
    for name in _PACKAGES:
        try:
            result[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return result
