"""The folder of a prompt language model on disk; see ``ModelFolders``."""

from __future__ import annotations

from edpbrl_gym._places import TRAINING_FILE, ModelFolders

__all__ = ["KIND", "TRAINING_FILE", "check_replaceable", "replacing_model"]

KIND = "edpbrl prompt language model"
_FOLDERS = ModelFolders(KIND, "edpbrl train-prompt-lm")
check_replaceable = _FOLDERS.check_replaceable
replacing_model = _FOLDERS.replacing
