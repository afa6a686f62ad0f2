"""The record of a conversation: appending, undoing, terms, and its parquet file."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Comparisons, History
from edpbrl_gym.likelihood import BestOf, BestWorst, Ranking, Response, WithTies

START = np.datetime64("2026-01-01T00:00:00.123456")


def a_response(rng, kinds, num_options):
    kind = kinds[rng.integers(len(kinds))]
    order = [int(option) for option in rng.permutation(num_options)]
    length = {"best": 1, "best_worst": 2, "ranking": num_options}.get(kind, 0)
    return Response(kind, tuple(order[:length]))


def history(n=6, num_options=3, d=4, seed=0, kinds=("best", "best_worst", "ranking", "tie", "skip"), **changes):
    rng = np.random.default_rng(seed)
    values = dict(
        features=rng.normal(size=(n, num_options, d)).astype(np.float32),
        responses=tuple(a_response(rng, kinds, num_options) for _ in range(n)),
        episode=np.arange(n) // 2,
        step=np.arange(n) % 2,
        texts=[[f"a café, {i}{k}" for k in range(num_options)] for i in range(n)],
        who="a user",
        answered_at=START + np.arange(n),
        metadata={"encoder": "minilm", "model": {"name": "ties", "nu": 0.5}},
    )
    return History(**(values | changes))


def assert_equal(first, second):
    for name in ("features", "episode", "step"):
        one, other = getattr(first, name), getattr(second, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    for name in ("responses", "texts", "who", "metadata"):
        assert getattr(first, name) == getattr(second, name)
    assert (first.answered_at is None) == (second.answered_at is None)
    if first.answered_at is not None:
        np.testing.assert_array_equal(first.answered_at, second.answered_at)


def question(whole, index):
    return dict(
        features=whole.features[index],
        response=whole.responses[index],
        episode=int(whole.episode[index]),
        step=int(whole.step[index]),
        texts=whole.texts[index],
        answered_at=whole.answered_at[index],
    )


# ---------------------------------------------------------------- building


def test_questions_appended_one_by_one_are_the_whole():
    whole = history()
    built = History.empty(3, 4, who="a user", metadata=whole.metadata)
    for index in range(len(whole)):
        before = built
        built = built.appended(**question(whole, index))
        assert len(before) == index and len(built) == index + 1
    assert_equal(built, whole)


def test_undo():
    whole = history()
    assert_equal(whole.undone().appended(**question(whole, 5)), whole)
    assert_equal(whole.undone(4), history().undone().undone().undone().undone())
    assert len(whole.undone(6)) == 0 and whole.undone(6).who == "a user" and len(whole) == 6
    again = whole.undone(6).appended(whole.features[0], Response.skip(), episode=0, step=0)
    assert again.texts is None and again.responses == (Response.skip(),)
    with pytest.raises(ValueError, match=r"at least 7 question\(s\) to undo, got a history of 6"):
        whole.undone(7)
    with pytest.raises(ValueError, match="undo"):
        History.empty(2, 2).undone()
    with pytest.raises(ValueError, match="count"):
        whole.undone(0)


def test_extended():
    whole = history()
    first, last = whole.undone(4), history(seed=1).undone(4)
    both = first.extended(last)
    assert len(both) == 4 and both.responses == (*first.responses, *last.responses)
    np.testing.assert_array_equal(both.features[2:], last.features)
    assert both.texts == [*first.texts, *last.texts]
    assert_equal(both.undone(2), first)
    assert_equal(whole.extended(History.empty(3, 4, who="a user")), whole)
    assert_equal(History.empty(3, 4, who="a user", metadata=whole.metadata).extended(whole), whole)


def test_times_may_be_known_for_some():
    whole = history(answered_at=None)
    assert whole.answered_at is None
    one = whole.appended(**(question(history(), 0) | {"answered_at": START}))
    assert np.isnat(one.answered_at[:6]).all() and one.answered_at[6] == START
    two = one.appended(**(question(history(), 0) | {"answered_at": None}))
    assert np.isnat(two.answered_at[7]) and two.answered_at[6] == START


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"features": np.zeros((2, 4))}, ValueError, r"features of shape \(3, 4\), got shape \(2, 4\)"),
        ({"features": np.full((3, 4), np.nan)}, ValueError, "NaN"),
        ({"response": Response.best(3)}, ValueError, r"0\.\.2"),
        ({"response": Response.ranking([0, 1])}, ValueError, "a ranking of all 3 options"),
        ({"response": 1}, TypeError, "as Response, got int"),
        ({"texts": ["one"]}, ValueError, "Expected 3 texts"),
        ({"texts": None}, ValueError, "for all questions of a history or for none"),
        ({"episode": -1}, ValueError, "episode"),
        ({"step": 0.5}, TypeError, "step"),
        ({"answered_at": "today"}, TypeError, "datetime64"),
    ],
)
def test_questions_that_do_not_fit(changes, error, message):
    whole = history()
    with pytest.raises(error, match=message):
        whole.appended(**(question(whole, 0) | changes))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"responses": (Response.skip(),)}, ValueError, "each of the 6 questions, got 1"),
        ({"responses": (Response.best(3),) * 6}, ValueError, r"0\.\.2"),
        ({"responses": ("best",) * 6}, TypeError, "at question 0"),
        ({"episode": np.zeros(5, dtype=int)}, ValueError, "episode"),
        ({"metadata": {"a": object()}}, TypeError, "JSON"),
        ({"who": 3}, TypeError, "who"),
    ],
)
def test_histories_that_make_no_sense(changes, error, message):
    with pytest.raises(error, match=message):
        history(**changes)


def test_other_users_and_shapes_do_not_mix():
    with pytest.raises(ValueError, match="one history for each user"):
        history().extended(history(who="another"))
    with pytest.raises(ValueError, match=r"\(3, 4, 'a user'\), got \(2, 4, 'a user'\)"):
        history().extended(history(num_options=2))


def test_it_is_frozen():
    whole = history()
    with pytest.raises(AttributeError):
        whole.who = "another"
    with pytest.raises(ValueError, match="read-only"):
        whole.features[0, 0, 0] = 1.0


# ---------------------------------------------------------------- what the estimate sees


def test_terms():
    """The sum over the questions; skips say nothing, wherever they stand."""
    whole = history(n=40, kinds=("best", "tie", "skip"))
    theta = np.random.default_rng(1).normal(size=4)
    model = WithTies(0.5)
    terms = whole.terms(model)
    answered = [index for index, response in enumerate(whole.responses) if response.kind != "skip"]
    assert len(terms) == len(answered) < 40
    expected = sum(
        np.log(model.probabilities(whole.features[index, None], theta))[
            0, model.outcomes(3).index(whole.responses[index])
        ]
        for index in answered
    )
    assert terms.log_likelihood(theta) == pytest.approx(expected, abs=1e-10)
    skipped = whole.appended(**(question(whole, 0) | {"response": Response.skip()}))
    assert len(skipped.terms(model)) == len(terms)
    assert len(history(n=5, kinds=("ranking",)).terms(Ranking())) == 10
    assert len(history(n=5, kinds=("best_worst",)).terms(BestWorst())) == 10
    with pytest.raises(ValueError, match="under the model best"):
        whole.terms(BestOf())


def test_comparisons():
    whole = history(n=30)
    told = [index for index, response in enumerate(whole.responses) if response.kind not in ("tie", "skip")]
    comparisons = whole.comparisons
    assert 0 < len(comparisons) == len(told) < 30
    np.testing.assert_array_equal(comparisons.choice, [whole.responses[index].order[0] for index in told])
    np.testing.assert_array_equal(comparisons.features, whole.features[told])
    np.testing.assert_array_equal(comparisons.answered_at, whole.answered_at[told])
    assert comparisons.texts == [whole.texts[index] for index in told]
    assert comparisons.who == whole.who and comparisons.metadata == whole.metadata
    assert len(history(kinds=("skip",)).comparisons) == 0
    assert len(whole.queries) == 30


def test_from_comparisons_and_back():
    whole = history(kinds=("best",))
    assert_equal(History.from_comparisons(whole.comparisons), whole)


# ---------------------------------------------------------------- parquet


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 9),
    st.integers(2, 5),
    st.integers(1, 6),
    st.integers(0, 10**6),
    st.booleans(),
    st.booleans(),
    st.text(max_size=5),
)
def test_round_trip(tmp_path, n, num_options, d, seed, texts, times, who):
    changes = {} if texts else {"texts": None}
    changes |= {} if times else {"answered_at": None}
    before = history(n, num_options, d, seed, who=who, **changes)
    before.to_parquet(tmp_path / "history.parquet")
    assert_equal(before, History.from_parquet(tmp_path / "history.parquet"))


def test_round_trip_of_skips_ties_and_undone_questions(tmp_path):
    path = tmp_path / "history.parquet"
    for kinds in (("skip",), ("tie",), ("skip", "tie", "ranking")):
        before = history(n=8, kinds=kinds).undone(3)
        before.to_parquet(path)
        assert_equal(before, History.from_parquet(str(path)))
    partly = history(answered_at=None).appended(**question(history(), 0))
    partly.to_parquet(path)
    assert_equal(partly, History.from_parquet(path))


def test_other_tools_can_read_it(tmp_path):
    data = history()
    data.to_parquet(tmp_path / "history.parquet")
    table = pq.read_table(tmp_path / "history.parquet")
    assert table.schema.field("features").type == pa.list_(pa.float32(), 12)
    assert table["kind"].to_pylist() == [response.kind for response in data.responses]
    assert table["order"].to_pylist() == [list(response.order) for response in data.responses]
    header = json.loads(table.schema.metadata[b"edpbrl_gym"])
    assert header["format"] == "edpbrl_gym.history" and header["version"] == 1
    assert header["metadata"] == data.metadata and header["num_options"] == 3 and header["dimension"] == 4
    assert os.listdir(tmp_path) == ["history.parquet"]


def test_every_damaged_byte_is_an_error_or_harmless(tmp_path):
    """Flip bytes all over the file: either an error that names the file, or exactly what was written."""
    data = history(n=50)
    path = tmp_path / "history.parquet"
    data.to_parquet(path)
    good = path.read_bytes()
    errors = 0
    for position in range(0, len(good), max(1, len(good) // 150)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x55]) + good[position + 1 :])
        try:
            after = History.from_parquet(path)
        except ValueError as error:
            assert "history.parquet" in str(error)
            errors += 1
        else:
            np.testing.assert_array_equal(after.features, data.features)
            assert after.responses == data.responses
    assert errors > 75


@pytest.mark.parametrize("keep", [0, 3, 200, -1])
def test_truncated_file(tmp_path, keep):
    path = tmp_path / "history.parquet"
    history().to_parquet(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="corrupted or other one"):
        History.from_parquet(path)


def replaced(table, name, values):
    place = table.column_names.index(name)
    return table.set_column(place, name, values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, h: (t, h | {"version": 2}), "version 1 .* got version 2; update edpbrl-gym"),
        (lambda t, h: (t, h | {"format": "edpbrl_gym.comparisons"}), "written by History.to_parquet"),
        (lambda t, h: (t.drop_columns(["order"]), h), "it lacks order"),
        (lambda t, h: (t, h | {"dimension": 5}), "Expected history .* do not fit"),
        (lambda t, h: (replaced(t, "kind", pa.array(["worst"] * 6)), h), "do not fit: Expected kind"),
        (lambda t, h: (replaced(t, "kind", pa.array([None] * 6, pa.string())), h), "do not fit: Expected kind"),
        (lambda t, h: (replaced(t, "order", pa.array([[7]] * 6)), h), "do not fit"),
        (lambda t, h: (replaced(t, "order", pa.array([None] * 6, pa.list_(pa.int32()))), h), "do not fit"),
        (lambda t, h: (replaced(t, "order", pa.array([[None]] * 6, pa.list_(pa.int32()))), h), "do not fit"),
    ],
)
def test_foreign_contents(tmp_path, change, message):
    path = tmp_path / "history.parquet"
    history(kinds=("best",)).to_parquet(path)
    table = pq.read_table(path)
    table, header = change(table, json.loads(table.schema.metadata[b"edpbrl_gym"]))
    pq.write_table(table.replace_schema_metadata({b"edpbrl_gym": json.dumps(header).encode()}), path)
    with pytest.raises(ValueError, match=message) as caught:
        History.from_parquet(path)
    assert "history.parquet" in str(caught.value)


def test_comparisons_are_no_history(tmp_path):
    path = tmp_path / "file.parquet"
    history(kinds=("best",)).comparisons.to_parquet(path)
    with pytest.raises(ValueError, match="written by History.to_parquet"):
        History.from_parquet(path)
    history().to_parquet(path)
    with pytest.raises(ValueError, match="written by Comparisons.to_parquet"):
        Comparisons.from_parquet(path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "history.parquet"
    history().to_parquet(path)
    before = path.read_bytes()

    def full(table, stream, **_):
        stream.write(b"half a file")
        raise OSError("No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="No space"):
        history(seed=1).to_parquet(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["history.parquet"]


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="a history file at .* found none"):
        History.from_parquet(tmp_path / "missing.parquet")
    with pytest.raises(FileNotFoundError, match="create it first"):
        history().to_parquet(tmp_path / "nowhere" / "history.parquet")
