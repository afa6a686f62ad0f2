"""The parquet format: a faithful round trip, and no file that is damaged, foreign or newer is ever used."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edpbrl_gym.comparisons import Comparisons
from tests.helpers import answered
from tests.helpers.answered import assert_equal


def comparisons(n=50, num_options=3, d=8, seed=0, **changes):
    return answered.comparisons(n, num_options, d, seed, **changes)


def test_round_trip_of_skips_ties_and_undone_questions(tmp_path):
    path = tmp_path / "answers.parquet"
    for kinds in (("skip",), ("tie",), ("skip", "tie", "ranking")):
        before = comparisons(n=8, kinds=kinds).undone(3)
        before.to_parquet(path)
        assert_equal(before, Comparisons.from_parquet(str(path)))


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
        (lambda t, h: (t, h | {"version": 4}), "version 2 or 3 .* got version 4; use the version of edpbrl-gym that"),
        (lambda t, h: (t, h | {"version": 1}), "version 2 or 3 .* got version 1; use the version of edpbrl-gym that"),
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
