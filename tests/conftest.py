"""For all tests: skips where an extra is missing, Ctrl-C as in a terminal, a cache of their own, the real encoder."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import settings

from edpbrl_gym.features import TextEncoder, load_encoder
from tests.helpers.extras import FIXTURES, extras_of_module, reason
from tests.helpers.small_vocabulary import write_vocabulary

# read when huggingface_hub is imported: no test may wait for a model hub
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# how many examples hypothesis draws, as a multiple of what each test says: see CONTRIBUTING.md
PROFILES = {"ci": 1.0, "thorough": 20.0}
PROFILE = os.environ.get("EDPBRL_TEST_PROFILE", "ci")
if PROFILE not in PROFILES:
    raise pytest.UsageError(f"Expected EDPBRL_TEST_PROFILE as one of {', '.join(PROFILES)}, got {PROFILE!r}")
# no test fails because a machine is slow
settings.register_profile("ci", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=round(settings().max_examples * PROFILES["thorough"]))
settings.load_profile(PROFILE)


# the modules and tests that are loaded now stay to the end: the collector would look through them again and again
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """With ``-n``, give each process neighbouring tests, so that what they share is made once; the last are divided."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_collection_finish():
    """Collect garbage of the tests only."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    """Let the profile decide for tests that say how many examples they need, too."""
    if PROFILE == "ci":
        return
    seen = set()
    for item in items:
        test = getattr(item, "obj", None)
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is None or test in seen:
            continue
        seen.add(test)
        examples = max(2, round(own.max_examples * PROFILES[PROFILE]))
        test._hypothesis_internal_use_settings = settings(own, max_examples=examples)


class _Skipped(pytest.Module):
    """A file of tests that is not imported, as it needs an extra that is not there."""

    def collect(self):
        pytest.skip(reason(extras_of_module(self.path)), allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Skip files of tests that need an extra that is not installed."""
    return _Skipped.from_parent(parent, path=module_path) if reason(extras_of_module(module_path)) else None


def pytest_itemcollected(item):
    """Skip a single test that needs an extra: by its mark ``needs`` or a fixture."""
    marked = [extra for mark in item.iter_markers("needs") for extra in mark.args]
    used = [extra for fixture, extra in FIXTURES.items() if fixture in getattr(item, "fixturenames", ())]
    if why := reason([*marked, *used]):
        item.add_marker(pytest.mark.skip(reason=why))


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


@pytest.fixture(scope="session")
def browser():
    """The one browser of this process: there can be no second one beside it."""
    from tests.helpers.browser import chromium

    with chromium() as started:
        yield started


# folders that tests only read


@pytest.fixture(scope="session")
def words(tmp_path_factory) -> str:
    """The small vocabulary."""
    return str(write_vocabulary(tmp_path_factory.mktemp("words") / "vocabulary"))


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory) -> str:
    """A tiny language model."""
    from tests.helpers.tiny_language_model import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> str:
    """A tiny diffusion model with classes as conditions."""
    from tests.helpers.tiny_digits import save_tiny_digits

    return str(save_tiny_digits(tmp_path_factory.mktemp("digits") / "model"))


@pytest.fixture(scope="session")
def tiny_pipeline(tmp_path_factory):
    """A tiny Stable Diffusion."""
    from tests.helpers.tiny_diffusion import save_tiny_stable_diffusion

    return save_tiny_stable_diffusion(tmp_path_factory.mktemp("pipeline") / "tiny")
