"""The parquet format: a faithful round trip, and no file that is damaged, foreign or newer is ever used."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Comparisons
from tests.helpers import answered
from tests.helpers.answered import assert_equal


def comparisons(n=50, num_options=3, d=8, seed=0, **changes):
    return answered.comparisons(n, num_options, d, seed, **changes)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 9),
    st.integers(2, 5),
    st.integers(1, 6),
    st.integers(0, 10**6),
    st.booleans(),
    st.booleans(),
    st.text(max_size=5),
    st.dictionaries(st.text(max_size=3), st.none() | st.integers(-9, 9) | st.text(max_size=3), max_size=3),
)
def test_round_trip(tmp_path, n, num_options, d, seed, texts, times, who, metadata):
    changes = {} if texts else {"texts": None}
    changes |= {} if times else {"answered_at": None}
    before = comparisons(n, num_options, d, seed, who=who, metadata=metadata, **changes)
    before.to_parquet(tmp_path / "answers.parquet")
    assert_equal(before, Comparisons.from_parquet(tmp_path / "answers.parquet"))


def test_round_trip_of_skips_ties_and_undone_questions(tmp_path):
    path = tmp_path / "answers.parquet"
    for kinds in (("skip",), ("tie",), ("skip", "tie", "ranking")):
        before = comparisons(n=8, kinds=kinds).undone(3)
        before.to_parquet(path)
        assert_equal(before, Comparisons.from_parquet(str(path)))


def test_unknown_times_of_single_answers(tmp_path):
    times = np.datetime64("2026-01-01T00:00:00.000001") + np.arange(50)
    times[3] = np.datetime64("NaT")
    before = comparisons(answered_at=times)
    before.to_parquet(tmp_path / "answers.parquet")
    after = Comparisons.from_parquet(str(tmp_path / "answers.parquet"))
    assert np.isnat(after.answered_at[3])
    assert_equal(before, after)


def test_other_tools_can_read_it(tmp_path):
    data = comparisons()
    data.to_parquet(tmp_path / "answers.parquet")
    table = pq.read_table(tmp_path / "answers.parquet")
    assert table.schema.field("features").type == pa.list_(pa.float32(), 24)
    assert table["kind"].to_pylist() == [response.kind for response in data.responses]
    assert table["order"].to_pylist() == [list(response.order) for response in data.responses]
    header = json.loads(table.schema.metadata[b"edpbrl_gym"])
    assert header["format"] == "edpbrl_gym.comparisons" and header["version"] == 2
    assert header["metadata"] == data.metadata and header["num_options"] == 3 and header["dimension"] == 8
    assert os.listdir(tmp_path) == ["answers.parquet"]


def test_writing_the_same_answers_gives_the_same_bytes(tmp_path):
    for name in "ab":
        comparisons().to_parquet(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_damaged_byte_is_an_error_or_harmless(tmp_path):
    """Flip bytes all over the file: either an error that names the file, or exactly what was written."""
    data = comparisons()
    path = tmp_path / "answers.parquet"
    data.to_parquet(path)
    good = path.read_bytes()
    errors = 0
    for position in range(0, len(good), max(1, len(good) // 150)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x55]) + good[position + 1 :])
        try:
            after = Comparisons.from_parquet(path)
        except ValueError as error:
            assert "answers.parquet" in str(error)
            errors += 1
        else:
            np.testing.assert_array_equal(after.features, data.features)
            assert after.responses == data.responses
    assert errors > 75


@pytest.mark.parametrize("keep", [0, 3, 200, -1])
def test_truncated_file(tmp_path, keep):
    path = tmp_path / "answers.parquet"
    comparisons().to_parquet(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="corrupted or other one"):
        Comparisons.from_parquet(path)


def replaced(table, name, values):
    return table.set_column(table.column_names.index(name), name, values)


def rewrite(path, change):
    table = pq.read_table(path)
    header = json.loads(table.schema.metadata[b"edpbrl_gym"])
    table, header = change(table, header)
    pq.write_table(table.replace_schema_metadata({b"edpbrl_gym": json.dumps(header).encode()}), path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, h: (t, h | {"version": 3}), "version 2 .* got version 3; use the version of edpbrl-gym that"),
        (lambda t, h: (t, h | {"version": 1}), "version 2 .* got version 1; use the version of edpbrl-gym that"),
        (lambda t, h: (t, {"format": "another"}), "no edpbrl_gym.comparisons header"),
        (lambda t, h: (t, ["a list"]), "no edpbrl_gym.comparisons header"),
        (lambda t, h: (t.drop_columns(["order"]), h), "it lacks order"),
        (lambda t, h: (t, {k: v for k, v in h.items() if k != "dimension"}), "contents that do not fit: 'dimension'"),
        (lambda t, h: (t, h | {"dimension": 7}), "do not fit"),
        (lambda t, h: (t, h | {"num_options": 24, "dimension": 1}), "do not fit: Expected 24 texts"),
        (lambda t, h: (replaced(t, "kind", pa.array(["worst"] * 50)), h), "do not fit: Expected kind"),
        (lambda t, h: (replaced(t, "kind", pa.array([None] * 50, pa.string())), h), "do not fit: Expected kind"),
        (lambda t, h: (replaced(t, "order", pa.array([[7]] * 50)), h), "do not fit"),
        (lambda t, h: (replaced(t, "order", pa.array([None] * 50, pa.list_(pa.int32()))), h), "do not fit"),
        (lambda t, h: (replaced(t, "order", pa.array([[None]] * 50, pa.list_(pa.int32()))), h), "do not fit"),
        (lambda t, h: (replaced(t, "features", pa.array(["x"] * 50)), h), "do not fit"),
    ],
)
def test_foreign_contents(tmp_path, change, message):
    path = tmp_path / "answers.parquet"
    comparisons(kinds=("best",)).to_parquet(path)
    rewrite(path, change)
    with pytest.raises(ValueError, match=message) as caught:
        Comparisons.from_parquet(path)
    assert "answers.parquet" in str(caught.value)


def test_someone_elses_parquet_and_no_parquet(tmp_path):
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(ValueError, match=r"to_parquet, got .*other.parquet with columns \['a'\]"):
        Comparisons.from_parquet(path)
    path.write_text("not a table")
    with pytest.raises(ValueError, match="other.parquet"):
        Comparisons.from_parquet(path)
    with pytest.raises(FileNotFoundError, match="found none"):
        Comparisons.from_parquet(tmp_path / "missing.parquet")
    with pytest.raises(FileNotFoundError, match="found none"):
        Comparisons.from_parquet(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "answers.parquet"
    comparisons().to_parquet(path)
    before = path.read_bytes()

    def full(table, stream, **_):
        stream.write(b"half a file")
        raise OSError("No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="No space"):
        comparisons(seed=1).to_parquet(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["answers.parquet"]


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="create it first"):
        comparisons().to_parquet(tmp_path / "nowhere" / "answers.parquet")


def test_importing_comparisons_loads_no_pyarrow():
    code = "import sys, edpbrl_gym.comparisons; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
