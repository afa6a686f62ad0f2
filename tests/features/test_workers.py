"""Encoding on worker processes: the rows of one process to the bit, also where workers are killed; files of rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.features import CachedEncoder, encode_to_file, load_encoder
from edpbrl_gym.features.cache import EmbeddingStore
from edpbrl_gym.features.shards import text_key, write_shard
from edpbrl_gym.workers import DaskCluster, LocalProcesses
from tests.helpers.dask_clusters import local_cluster
from tests.helpers.encoders import BatchEncoder
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


def test_rows_depend_on_the_chunks(expected):
    assert not np.array_equal(expected, BatchEncoder().encode(TEXTS))  # else nothing is tested below


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


def test_workers_of_a_cluster_write_the_same_rows(expected, tmp_path):
    few = sorted(TEXTS, key=len, reverse=True)[: 2 * CHUNK]  # the first two chunks
    with (
        local_cluster(tmp_path / "dask", n_workers=1, threads_per_worker=1) as local,
        DaskCluster(local.scheduler_address, timeout=60) as cluster,
    ):
        encoder = load_encoder(SPEC, cache_folder=tmp_path / "cache", executor=cluster)
        encode_to_file(encoder, few, tmp_path / "rows.npy")
    places = [TEXTS.index(text) for text in few]
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), expected[places])


def test_a_worker_with_other_weights_is_refused(tmp_path):
    encoder = load_encoder(SPEC, cache_folder=tmp_path, executor=LocalProcesses(2))
    encoder.fingerprint = "0" * 64
    with pytest.raises(ValueError, match="Expected the same weights of tests.helpers.encoders:BatchEncoder on all"):
        encoder.encode(TEXTS)


def test_rows_that_are_on_the_disk_leave_the_memory(expected, tmp_path, monkeypatch):
    monkeypatch.setattr(EmbeddingStore, "MAX_SHARD_ROWS", 2 * CHUNK)
    encoder = load_encoder(SPEC, cache_folder=tmp_path)
    np.testing.assert_array_equal(encoder.encode(TEXTS), expected)
    assert len(encoder.store._blocks[0]) <= 1024 and len(encoder.store._own_keys) < 4 * CHUNK
    assert sum(len(block) for block in encoder.store._blocks[1:]) + len(encoder.store._own_keys) == len(TEXTS)
    np.testing.assert_array_equal(load_encoder(SPEC, cache_folder=tmp_path).encode(TEXTS), expected)


def test_many_small_shards_are_merged_in_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(EmbeddingStore, "MAX_SHARD_ROWS", 100)
    monkeypatch.setattr(EmbeddingStore, "MAX_SMALL_SHARDS", 4)
    rows = np.eye(8, dtype=np.float32)
    folder = tmp_path / "f00dbabe"
    keys = [[text_key(f"{shard}/{row}") for row in range(8)] for shard in range(30)]
    for own in keys:
        write_shard(folder, own, rows, "f00dbabe")
    store = EmbeddingStore(tmp_path, "f00dbabe", 8)
    shards = list(folder.glob("*.safetensors"))
    assert 3 <= len(shards) <= 4  # twelve of eight rows in each, at most 100
    for one in (store, EmbeddingStore(tmp_path, "f00dbabe", 8)):
        for own in keys:
            np.testing.assert_array_equal(one.get(own), rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "rows.npz"], "file name ending in .npy"),
        (["--encoder", "nonsense"], "Expected an encoder of one of the forms"),
        (["--batch-size", "0"], "--batch-size"),
        (["--jobs", "0"], "--jobs >= 1"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_encoded(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("a gate\n")
    assert main(["encode", "texts.txt", *arguments]) == 2
    assert said in capsys.readouterr().err
    (tmp_path / "texts.txt").write_text("\n\n")
    assert main(["encode", "texts.txt"]) == 2
    assert "Expected at least one text in texts.txt" in capsys.readouterr().err
