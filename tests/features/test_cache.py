"""The embedding cache: hits without the model, damage, several processes, kills."""

from __future__ import annotations

import logging
import multiprocessing
import os
import platform
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from edpbrl_gym.features import CachedEncoder, MemoEncoder, default_cache_folder
from edpbrl_gym.features.store import FORMAT, EmbeddingStore, _Index, read_shard, text_key, write_shard
from tests.helpers.encoders import CountingEncoder

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [f"prompt number {i}" for i in range(50)]


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("text-embeddings/*/shard-*.safetensors"))


def filled(folder: Path, texts=TEXTS) -> tuple[np.ndarray, Path]:
    """Fill a fresh cache; return its rows and its only shard."""
    rows = CachedEncoder(CountingEncoder(), folder).encode(texts)
    (shard,) = shards(folder)
    return rows, shard


def test_a_hit_returns_the_same_bytes_without_the_encoder(tmp_path):
    inner = CountingEncoder()
    cached = CachedEncoder(inner, tmp_path)
    wanted = [TEXTS[0], TEXTS[1], TEXTS[0], "", "caf\u00e9", "\ud800 lone surrogate"]
    first = cached.encode(wanted)
    assert sorted(inner.encoded) == sorted(set(wanted))
    assert first.tobytes() == inner.encode(wanted).tobytes()
    inner.calls.clear()
    assert cached.encode(wanted).tobytes() == first.tobytes()
    other = CountingEncoder()
    reopened = CachedEncoder(other, tmp_path)
    assert reopened.encode(wanted[::-1]).tobytes() == first[::-1].tobytes()
    assert inner.calls == [] and other.calls == []
    reopened.encode([*wanted, "new"])
    assert other.encoded == ["new"]


def test_many_small_calls_leave_few_files(tmp_path):
    cached = CachedEncoder(CountingEncoder(), tmp_path)
    for i in range(400):
        cached.encode([f"text {i}", f"other {i}"])
    assert len(shards(tmp_path)) <= 10
    assert [p for p in cached.store.folder.iterdir() if not p.name.startswith("shard-")] == []
    inner = CountingEncoder()
    CachedEncoder(inner, tmp_path).encode([f"other {i}" for i in range(400)])
    assert inner.calls == []


def test_many_files_of_many_processes_are_merged_and_nothing_is_lost(tmp_path):
    plain, live = CountingEncoder(), CachedEncoder(CountingEncoder(), tmp_path)
    live.encode(["alive"])
    for i in range(EmbeddingStore.MAX_SMALL_SHARDS + 5):
        write_shard(live.store.folder, [text_key(f"t{i}")], plain.encode([f"t{i}"]), plain.fingerprint)
    inner = CountingEncoder()
    reopened = CachedEncoder(inner, tmp_path)
    texts = ["alive", *(f"t{i}" for i in range(EmbeddingStore.MAX_SMALL_SHARDS + 5))]
    np.testing.assert_array_equal(reopened.encode(texts), plain.encode(texts))
    assert inner.calls == [] and len(shards(tmp_path)) == 1
    # the process whose files were merged away goes on
    live.encode(["more"])
    np.testing.assert_array_equal(live.encode(["alive", "more", *texts]), plain.encode(["alive", "more", *texts]))
    assert live.encoder.encoded == ["alive", "more"]


def rewrite(shard, *, change=None, **metadata):
    """Write a well-formed shard with a right checksum but other content."""
    import hashlib

    tensors = load_file(shard)
    if change:
        change(tensors)
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    digest = hashlib.sha256(b"".join(tensors[name].tobytes() for name in ("keys", "rows") if name in tensors))
    entries = {"format": FORMAT, "fingerprint": CountingEncoder().fingerprint, "checksum": digest.hexdigest()}
    save_file(tensors, shard, metadata={**entries, **metadata})


def set_rows(function):
    return lambda tensors: tensors.__setitem__("rows", function(tensors["rows"]))


def with_value(value):
    def change(rows):
        rows = rows.copy()
        rows[3, 2] = value
        return rows

    return change


DAMAGE = {
    "cut in the rows": lambda shard: shard.write_bytes(shard.read_bytes()[:-5]),
    "another encoder": lambda shard: rewrite(shard, fingerprint="f" * 64),
    "another format": lambda shard: rewrite(shard, format="something-else"),
    "NaN": lambda shard: rewrite(shard, change=set_rows(with_value(np.nan))),
    "no unit norm": lambda shard: rewrite(shard, change=set_rows(lambda rows: rows * np.float32(1.5))),
    "another dimension": lambda shard: rewrite(shard, change=set_rows(lambda rows: rows[:, :-1])),
    "float64 rows": lambda shard: rewrite(shard, change=set_rows(lambda rows: rows.astype(np.float64))),
    "fewer rows than keys": lambda shard: rewrite(shard, change=set_rows(lambda rows: rows[:-1])),
    "flat rows": lambda shard: rewrite(shard, change=set_rows(np.ravel)),
    "no keys": lambda shard: rewrite(shard, change=lambda tensors: tensors.pop("keys")),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_or_foreign_file_is_deleted_and_rebuilt(tmp_path, caplog, damage):
    rows, shard = filled(tmp_path)
    damage(shard)
    inner = CountingEncoder()
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(CachedEncoder(inner, tmp_path).encode(TEXTS), rows)
    assert sorted(inner.encoded) == sorted(TEXTS)
    assert f"Deleted the cache file {shard}" in caplog.text
    assert not shard.exists() and len(shards(tmp_path)) == 1
    healed = CountingEncoder()
    np.testing.assert_array_equal(CachedEncoder(healed, tmp_path).encode(TEXTS), rows)
    assert healed.calls == []


@settings(max_examples=60)
@given(st.data())
def test_no_flipped_byte_gets_through(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("flip")
    rows, shard = filled(folder, TEXTS[:5])
    content = bytearray(shard.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    shard.write_bytes(content)
    # a byte of padding in the header may change without consequence; the rows must be right in every case
    np.testing.assert_array_equal(CachedEncoder(CountingEncoder(), folder).encode(TEXTS[:5]), rows)


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(OSError, match="set EDPBRL_CACHE.*cache=False"):
        CachedEncoder(CountingEncoder(), blocker).encode(["a"])


def _fill(folder, numbers, ready, go):
    inner = CountingEncoder()
    cached = CachedEncoder(inner, folder)
    cached.CHUNK = 16
    ready.release()
    go.wait(60)
    for start in range(0, len(numbers), 20):
        texts = [f"text {i}" for i in numbers[start : start + 20]]
        if not np.array_equal(cached.encode(texts), CountingEncoder().encode(texts)):
            os._exit(3)


def test_processes_that_write_at_once(tmp_path):
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    ready, go = context.Semaphore(0), context.Event()
    parts = [list(range(0, 600)), list(range(300, 900)), list(range(899, 250, -1))]
    workers = [context.Process(target=_fill, args=(tmp_path, part, ready, go)) for part in parts]
    for worker in workers:
        worker.start()
    for _ in workers:
        assert ready.acquire(timeout=60)
    go.set()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    inner = CountingEncoder()
    texts = [f"text {i}" for i in range(900)]
    np.testing.assert_array_equal(CachedEncoder(inner, tmp_path).encode(texts), CountingEncoder().encode(texts))
    assert inner.calls == []


def test_a_kill_in_the_middle_keeps_what_was_done(tmp_path):
    code = f"""
        import time
        from edpbrl_gym.features import CachedEncoder
        from tests.helpers.encoders import CountingEncoder

        class Slow(CountingEncoder):
            def encode(self, texts, *, progress=False):
                time.sleep(0.01)
                return super().encode(texts)

        cached = CachedEncoder(Slow(), {str(tmp_path)!r})
        cached.CHUNK = 10
        cached.encode([f"text {{i:06d}}" for i in range(100_000)])
    """
    worker = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT)
    folder = tmp_path / "text-embeddings" / CountingEncoder().fingerprint
    deadline = time.monotonic() + 60
    while _bytes_in(folder) < 5_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    worker.send_signal(signal.SIGKILL)
    assert worker.wait(30) == -signal.SIGKILL
    leftover = folder / f".shard-1.safetensors.1.{'0' * 32}.part"  # what a kill during a write leaves
    leftover.write_bytes(b"half a shard")
    inner = CountingEncoder()
    cached = CachedEncoder(inner, tmp_path)
    kept = len(cached.store)
    assert not leftover.exists()
    assert 0 < kept < 100_000 and kept % 10 == 0
    texts = [f"text {i:06d}" for i in range(kept + 50)]
    np.testing.assert_array_equal(cached.encode(texts), CountingEncoder().encode(texts))
    assert inner.encoded == texts[kept:]


def _bytes_in(folder):
    total = 0
    for path in folder.glob("shard-*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # merged meanwhile
            continue
    return total


def test_threads_share_one_encoder(tmp_path):
    cached = CachedEncoder(CountingEncoder(), tmp_path)
    wrong = []

    def work(offset):
        for i in range(30):
            texts = [f"text {(offset + i + j) % 60}" for j in range(8)]
            if not np.array_equal(cached.encode(texts), CountingEncoder().encode(texts)):
                wrong.append(offset)

    workers = [threading.Thread(target=work, args=(7 * k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong and len(cached.encoder.encoded) == len(set(cached.encoder.encoded))


def test_an_encoder_that_returns_nonsense_is_stopped_before_the_disk(tmp_path):
    class Broken(CountingEncoder):
        def encode(self, texts, *, progress=False):
            rows = super().encode(texts)
            rows[-1] = np.nan
            return rows

    cached = CachedEncoder(Broken(), tmp_path)
    with pytest.raises(ValueError, match="NaN or infinity"):
        cached.encode(TEXTS)
    assert shards(tmp_path) == []

    class Long(CountingEncoder):
        def encode(self, texts, *, progress=False):
            return (3.0 * super().encode(texts)).astype(np.float64)

    rows = CachedEncoder(Long(fingerprint="1" * 64), tmp_path).encode(TEXTS)
    np.testing.assert_allclose(rows, CountingEncoder().encode(TEXTS), atol=1e-6)
    with pytest.raises(TypeError, match="Expected an encoder with dimension"):
        CachedEncoder(object(), tmp_path)
    with pytest.raises(ValueError, match="Expected a fingerprint"):
        CachedEncoder(CountingEncoder(fingerprint="../elsewhere"), tmp_path)


def test_where_the_cache_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "chosen"))
    assert default_cache_folder() == tmp_path / "chosen"
    assert CachedEncoder(CountingEncoder()).folder == tmp_path / "chosen" / "text-embeddings"
    monkeypatch.delenv("EDPBRL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_folder() == tmp_path / "xdg" / "edpbrl-gym"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert default_cache_folder() == tmp_path / "home" / ".cache" / "edpbrl-gym"


# -- disks that take no more -------------------------------------------------------------------------------------------


@pytest.fixture
def file_size_limit():
    """Set how large files may get: a real error of the system in every larger write (Errno 27)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_ends_nothing_and_later_rows_are_kept_again(tmp_path, caplog, file_size_limit):
    inner = CountingEncoder()
    cached = CachedEncoder(inner, tmp_path)
    before, during, after = TEXTS[:10], TEXTS[10:20], TEXTS[20:30]
    expected = {text: row for text, row in zip(TEXTS, CountingEncoder().encode(TEXTS), strict=True)}
    cached.encode(before)
    file_size_limit(50)
    with caplog.at_level("WARNING"):
        for text in during:  # none of them can be written
            assert cached.encode([text]).tobytes() == expected[text].tobytes()
    file_size_limit(None)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "File too large" in told and str(tmp_path) in told and "EDPBRL_CACHE" in told
    inner.calls.clear()
    cached.encode([*before, *during])
    assert inner.calls == []  # kept in memory
    cached.encode(after)  # room again
    later = CountingEncoder()
    rows = CachedEncoder(later, tmp_path).encode([*before, *after])
    assert rows.tobytes() == b"".join(expected[text].tobytes() for text in [*before, *after])
    assert later.calls == [] and not list(tmp_path.rglob(".*"))


def test_a_memo_encodes_each_text_once():
    encoder = CountingEncoder()
    known, a, b = encoder.encode(["known", "a", "b"])
    memo = MemoEncoder(encoder, texts=["known"], rows=known[None])
    np.testing.assert_array_equal(memo.encode(["b", "a", "b", "known"]), [b, a, b, known])
    assert memo.encode([]).shape == (0, 8) and memo.encode(["a"]).tobytes() == a.tobytes()
    assert encoder.calls[1:] == [["b", "a"]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory of a mapped file is read from /proc")
def test_a_shard_that_is_opened_takes_no_memory_until_it_is_used(tmp_path):
    rows = np.random.default_rng(0).normal(size=(8000, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    path = write_shard(tmp_path, [text_key(str(number)) for number in range(len(rows))], rows, "f")

    def resident():
        """Kilobytes of the file that this process has in memory."""
        parts = Path("/proc/self/smaps").read_text(encoding="utf-8").split(str(path))[1:]
        return sum(int(part.partition("Rss:")[2].split()[0]) for part in parts)

    _, read = read_shard(path, "f", 384)
    assert resident() < 500  # of 12,000
    np.testing.assert_array_equal(read, rows)
    assert resident() > 11_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory of a mapped file is read from /proc")
def test_what_a_long_run_has_written_and_read_again_is_not_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(EmbeddingStore, "MAX_OWN_ROWS", 4000)
    rows = np.random.default_rng(0).normal(size=(9000, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    keys = [text_key(str(number)) for number in range(len(rows))]
    store = EmbeddingStore(tmp_path, "f", 384)
    for start in range(0, len(rows), 50):
        store.add(keys[start : start + 50], rows[start : start + 50])
        np.testing.assert_array_equal(store.get(keys[: start + 50 : 7]), rows[: start + 50 : 7])
    assert sum(len(block) for block in store._blocks if block.base is None) == 1024  # of the last 1,000 rows
    parts = Path("/proc/self/smaps").read_text(encoding="utf-8").split(str(tmp_path))[1:]
    assert len(parts) == 2 and sum(int(part.partition("Rss:")[2].split()[0]) for part in parts) < 500  # of 12,000
    assert len(list(store.folder.glob("shard-*"))) < 10 and len(store._shard_names) < 10
    again = EmbeddingStore(tmp_path, "f", 384)
    np.testing.assert_array_equal(again.get(keys), rows)


KEYS = st.lists(st.integers(0, 60), min_size=1, unique=True)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(["own", "other", "let go"]), KEYS), max_size=12))
def test_an_index_finds_what_a_dictionary_does(steps):
    """Keys that end with zeros too, and that come again in other blocks; small limits, so that all is moved."""
    index, expected, own, blocks = _Index(), {}, [], 0
    index.MOST_RECENT, index.FEW = 10, 5

    def key(number):
        return bytes([number, number % 3, *[0] * 14])

    for kind, numbers in steps:
        keys = [key(number) for number in numbers]
        if kind == "other":
            blocks += 1
            index.put(keys, blocks)
            places = {one: {blocks << 32 | row} for row, one in enumerate(keys)}
        else:
            keys = [one for one in keys if one not in expected]
            index.put(keys, 0, len(own))
            places = {one: {len(own) + row} for row, one in enumerate(keys)}
            own += keys
        for one, place in places.items():
            expected[one] = expected.get(one, set()) | place
        if kind == "let go":
            blocks += 1
            index.forget(own)
            index.put(own, blocks)
            for row, one in enumerate(own):
                expected[one] = {place for place in expected[one] if place >> 32} | {blocks << 32 | row}
            own = []
        asked = [key(number) for number in range(61)]
        for one, place in zip(asked, index.find(asked).tolist(), strict=True):
            assert place in expected.get(one, {-1})
        assert len(index) == len(expected)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="freed memory is given back where the C library is glibc")
def test_an_index_takes_the_memory_of_its_keys():
    """24 bytes a key, and not what sorting them took besides: a server meets hundreds of thousands."""
    script = textwrap.dedent("""
        import numpy as np
        from edpbrl_gym.features.store import _Index

        def anonymous():
            with open("/proc/self/smaps_rollup") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("Anonymous:")) * 1024

        index, rng, taken = _Index(), np.random.default_rng(0), []
        for block in range(1, 36):
            keys = [bytes(row) for row in rng.integers(256, size=(16384, 16), dtype=np.uint8)]
            index.put(keys, block)
            index.find(keys[:4])
            del keys
            taken.append(anonymous())
        print(max((one - taken[0]) / 16384 / block for block, one in enumerate(taken) if block >= 10))
    """)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 40


def test_a_key_that_is_not_stored_is_an_error(tmp_path):
    store = EmbeddingStore(tmp_path, "f", 8)
    with pytest.raises(KeyError):
        store.get([text_key("never seen")])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the files that are held are read from /proc")
def test_files_that_another_process_has_merged_are_not_held(tmp_path):
    rows = np.random.default_rng(0).normal(size=(3000, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    keys = [text_key(str(number)) for number in range(len(rows))]
    writer, reader = EmbeddingStore(tmp_path, "f", 64), EmbeddingStore(tmp_path, "f", 64)
    for start in range(0, len(rows), 20):
        writer.add(keys[start : start + 20], rows[start : start + 20])
        reader.refresh()
        assert reader.has(keys[: start + 20]).all()
        held = [one for one in Path("/proc/self/maps").read_text("utf-8").splitlines() if str(tmp_path) in one]
        assert sum("(deleted)" in one for one in held) <= 3 and len(held) <= 12
    np.testing.assert_array_equal(reader.get(keys), rows)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="open files are read from /proc")
def test_a_process_that_stays_merges_what_many_short_ones_leave(tmp_path):
    """A study's server: whoever finishes has a process of their own, which leaves a few small files."""
    rows = np.random.default_rng(0).normal(size=(3000, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    keys = [text_key(str(number)) for number in range(len(rows))]
    stays = EmbeddingStore(tmp_path, "f", 16)
    for start in range(0, len(rows), 10):
        write_shard(stays.folder, keys[start : start + 10], rows[start : start + 10], "f")
        stays.refresh()
        assert stays.has(keys[: start + 10]).all()
        held = Path("/proc/self/maps").read_text(encoding="utf-8").count(f"{tmp_path}/")
        assert held <= EmbeddingStore.MAX_SMALL_SHARDS + 2 and len(shards(tmp_path)) <= held + 1
    np.testing.assert_array_equal(stays.get(keys), rows)
    np.testing.assert_array_equal(EmbeddingStore(tmp_path, "f", 16).get(keys), rows)
