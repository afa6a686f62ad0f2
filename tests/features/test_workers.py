"""Encoding on worker processes: the rows of one process to the bit, also where workers are killed; files of rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.features import CachedEncoder, load_encoder
from edpbrl_gym.features.store import EmbeddingStore
from edpbrl_gym.workers import LocalProcesses
from tests.helpers.worker_kills import KILLS, Killer

SPEC = "tests.helpers.encoders:BatchEncoder"
CHUNK = 16
TEXTS = [f"{'a very ' * (number % 7)}old gate, number {number}" for number in range(CHUNK * (10 + 8 * KILLS))]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(CachedEncoder, "CHUNK", CHUNK)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The rows of one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CachedEncoder, "CHUNK", CHUNK)
        return load_encoder(SPEC, cache_folder=tmp_path_factory.mktemp("here")).encode(TEXTS)


def test_workers_killed_at_random_points_lose_nothing(expected, tmp_path):
    total = len(TEXTS) // CHUNK
    for attempt in range(10):  # on a busy machine the work may end before the last kill
        cache = tmp_path / str(attempt)
        encoder = load_encoder(SPEC, cache_folder=cache, executor=LocalProcesses(2))
        done = partial(lambda folder: len(list(folder.glob("*/*/shard-*"))), cache)
        with Killer(done, total * 9 // 10, seed=KILLS + attempt) as killer:
            rows = encoder.encode(TEXTS)
        print(f"{len(killer.killed)} kills at {killer.points} of {total} chunks")
        np.testing.assert_array_equal(rows, expected)
        np.testing.assert_array_equal(load_encoder(SPEC, cache_folder=cache).encode(TEXTS), expected)
        if len(killer.killed) == KILLS:
            break
    assert len(killer.killed) == KILLS


def test_a_stopped_command_goes_on_with_the_same_rows(expected, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS) + "\n")
    out = tmp_path / "features.npy"
    calls = []

    def stop(self, *arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return add(self, *arguments)

    add = EmbeddingStore.add
    command = ["encode", str(tmp_path / "texts.txt"), "--out", str(out), "--encoder", SPEC]
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddingStore, "add", stop)
        assert main(command) == 130
    assert not out.exists() and "the same command encodes the rest" in capsys.readouterr().err
    assert main([*command, "--jobs", "2"]) == 0
    assert f"{len(TEXTS):,} x 16 features" in capsys.readouterr().out
    rows = np.load(out, mmap_mode="r")
    assert isinstance(rows, np.memmap) and rows.dtype == np.float32
    np.testing.assert_array_equal(rows, expected)


def test_a_worker_with_other_weights_is_refused(tmp_path):
    encoder = load_encoder(SPEC, cache_folder=tmp_path, executor=LocalProcesses(2))
    encoder.fingerprint = "0" * 64
    with pytest.raises(ValueError, match="Expected the same weights of tests.helpers.encoders:BatchEncoder on all"):
        encoder.encode(TEXTS)
