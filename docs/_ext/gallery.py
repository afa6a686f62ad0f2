"""How sphinx-gallery shows the examples: which run when the site is built, and with which arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["EXECUTED", "Arguments", "gallery_settings"]

# the examples that take less than about ten seconds of one core, and the arguments that they get
EXECUTED: dict[str, list[str]] = {
    "ask_tell.py": [],
    "custom_agent.py": [],
    "human_oracle.py": [],
    "local_judge.py": ["--demo"],
    "plug_in_environment.py": [],
    "random_rollout.py": [],
    "text_generation.py": [],
}


class Arguments:
    """The command line of an example; an object, as Sphinx stores no functions with its settings."""

    def __call__(self, gallery_conf: dict[str, Any], script_vars: dict[str, Any]) -> list[str]:
        """The arguments after the name of the file."""
        return list(EXECUTED[Path(script_vars["src_file"]).name])

    def __repr__(self) -> str:
        return f"Arguments({EXECUTED})"


def gallery_settings(examples: Path) -> dict[str, Any]:
    """``sphinx_gallery_conf``."""
    return {
        "examples_dirs": str(examples),
        "gallery_dirs": "gallery",
        "filename_pattern": "/(" + "|".join(name.removesuffix(".py") for name in EXECUTED) + r")\.py$",
        "ignore_pattern": r"__init__\.py",
        "reset_argv": Arguments(),
        "capture_repr": (),
        "download_all_examples": False,
        "show_memory": False,
        "show_signature": False,
        "min_reported_time": 1_000_000,
        "write_computation_times": False,
        "abort_on_example_error": True,
        "remove_config_comments": True,
        # a notebook has no command line to read
        "first_notebook_cell": "import sys\n\nsys.argv = sys.argv[:1]  # every argument has its default",
    }
