"""Fixtures for all tests: Ctrl-C as in a terminal, an embedding cache of their own and the real default encoder."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from edpbrl_gym.features import TextEncoder, load_encoder

# read when huggingface_hub is imported: no test may wait for a model hub
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# no test fails because a machine is slow
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Let SIGINT interrupt, also where the suite was started with it ignored, as a script's ``pytest &`` is.

    A handler becomes the default in child processes (an ignored signal stays ignored there), so this serves the
    commands that tests start too.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def embedding_cache(tmp_path_factory):
    """Keep every test, subprocesses included, away from the user's own cache."""
    folder = tmp_path_factory.mktemp("edpbrl-cache")
    before = os.environ.get("EDPBRL_CACHE")
    os.environ["EDPBRL_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["EDPBRL_CACHE"]
    else:
        os.environ["EDPBRL_CACHE"] = before


@pytest.fixture(scope="session")
def minilm(embedding_cache) -> TextEncoder:
    """The real MiniLM with its cache in a temporary folder."""
    return load_encoder("minilm", cache_folder=embedding_cache)
