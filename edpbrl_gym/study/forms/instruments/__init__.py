"""Instruments by name: pages whose questions are known, each in a file with its translations and its source."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

__all__ = ["INSTRUMENTS", "load_instrument"]

INSTRUMENTS = {
    "demographics": "demographics.toml",
    "nasa-tlx": "nasa_tlx.toml",
    "sus": "sus.toml",
}
"""Files by name."""


def load_instrument(name: str) -> dict[str, Any]:
    """The document of an instrument: what a page of a configuration has, and translations by language."""
    text = (files("edpbrl_gym.study.forms.instruments") / INSTRUMENTS[name]).read_text(encoding="utf-8")
    return tomllib.loads(text)
