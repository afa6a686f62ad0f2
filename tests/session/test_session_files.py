"""A session on disk: resumed as if it had never stopped, no told answer lost, whatever happens in between."""

import contextlib
import io
import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym._log import decode, encode
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.likelihood import Ranking, Response
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.session import run
from tests.helpers.encoders import CountingEncoder
from tests.helpers.session_planners import (
    PLANNERS,
    THETA,
    WORDS,
    D,
    GreedyPlanner,
    encoder,
    random_planner,
    resume,
    same,
    session,
)


def lived(questions, planner=None):
    """A session in memory that the argmax user answered so many questions of."""
    one = session(planner)
    run(one, SyntheticUser(THETA), questions)
    return one


ACTIONS = ["0", "1", "2", "skip", "undo", "look", "save", "resume", "follow", "ask"]


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(ACTIONS), max_size=30),
    st.sampled_from(sorted(PLANNERS)),
    st.sampled_from(["truncated", "prompt"]),
)
def test_a_session_is_what_its_last_answers_make_it(actions, kind, feedback):
    """Any mix of answers, skips, undos and resumptions equals the plain session of the answers that stand."""
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as closing:
        folder = Path(root) / "one"
        one, stand = session(PLANNERS[kind], feedback=feedback, folder=folder), []
        for action in actions:
            if action in ("resume", "follow"):
                one.close()
                one = resume(folder, PLANNERS[kind], exact=action == "resume")
            elif action == "save":
                one.save()
            elif action == "look":
                assert one.estimate is not None
            elif action == "undo":
                _ = stand and (one.undo(), stand.pop())
            else:
                one.ask()
                if action != "ask":
                    stand.append(None if action == "skip" else int(action))
                    one.tell(stand[-1])
        one.close()
        one, other = resume(folder, PLANNERS[kind]), session(PLANNERS[kind], feedback=feedback)
        closing.callback(one.close)
        for answer in stand:
            other.ask(), other.tell(answer)
        same(one, other)
        for each in (one, other):
            run(each, SyntheticUser(THETA), 4)
        same(one, other)


@pytest.mark.parametrize("kind", sorted(PLANNERS))
def test_wherever_the_writing_stopped_the_told_answers_are_there(kind, tmp_path):
    """The journal cut after every byte of its last lines: a line without its end counts, a torn one never happened."""
    one = session(PLANNERS[kind], folder=tmp_path / "one")
    lengths = [0]
    for number in range(4):
        one.ask()
        one.tell(number % 3)
        lengths.append((tmp_path / "one/journal.jsonl").stat().st_size)
    one.ask()
    data = (tmp_path / "one/journal.jsonl").read_bytes()
    (tmp_path / "one/planner.npz").unlink(missing_ok=True)
    for cut in {*range(lengths[3], len(data) + 1, 41), *lengths[1:], *(n - 1 for n in lengths[1:]), len(data) - 1}:
        copy = tmp_path / f"cut-{cut}"
        copy.mkdir()
        shutil.copy(tmp_path / "one/session.json", copy)
        (copy / "journal.jsonl").write_bytes(data[:cut])
        with resume(copy, PLANNERS[kind]) as again:
            told = sum(length - 1 <= cut for length in lengths[1:])
            assert again.answered == told
            other = session(PLANNERS[kind])
            for number in range(told):
                other.ask(), other.tell(number % 3)
            same(again, other)
        with resume(copy, PLANNERS[kind]) as again:  # what was appended after the repair is whole
            same(again, other)
    one.close()


def test_a_damaged_line_is_an_error_and_names_its_place(tmp_path):
    with session(folder=tmp_path / "one") as one:
        run(one, SyntheticUser(THETA), 3)
    journal = tmp_path / "one/journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    others, alone, end = "wrong checksum, and more lines follow;", "wrong checksum;", "corrupt line ending;"
    # the last place is the end of the last line, which then has none any more
    for number, place, message in ((0, 40, others), (3, 40, others), (5, 40, alone), (5, -1, end)):
        broken = bytearray(lines[number])
        broken[place] ^= 1
        journal.write_bytes(b"".join([*lines[:number], bytes(broken), *lines[number + 1 :]]))
        damaged = journal.read_bytes()
        with pytest.raises(ValueError, match=f"Line {number + 1} of .*journal.jsonl is damaged: {message}"):
            resume(tmp_path / "one")
        assert journal.read_bytes() == damaged
    journal.write_bytes(b"".join([*lines[1:], lines[-1]]))
    with pytest.raises(ValueError, match="journal.jsonl, line 1 is none.*does not follow.*from a backup"):
        resume(tmp_path / "one")
    journal.write_bytes(b"".join(lines[:4]))
    with pytest.raises(ValueError, match="at least 6 lines.*got 4: answers are missing"):
        resume(tmp_path / "one")
    journal.write_bytes(b"".join(lines))
    with resume(tmp_path / "one") as again:
        assert again.answered == 3


def test_a_whole_line_that_says_too_little_or_nonsense_is_named_with_its_file(tmp_path):
    with session(folder=tmp_path / "one") as one:
        run(one, SyntheticUser(THETA), 1)
    journal = tmp_path / "one/journal.jsonl"
    ask, tell = (decode(line) for line in journal.read_bytes().splitlines())
    assert ask["type"] == "ask" and tell["type"] == "tell"
    cases = [(1, {key: value for key, value in ask.items() if key != name}, f"no {name!r}") for name in ask]
    cases += [(2, {key: value for key, value in tell.items() if key != name}, f"no {name!r}") for name in tell]
    cases += [(2, {**tell, "at": at}, "no text in ISO 8601") for at in (None, 7, "yesterday", [])]
    cases += [(1, {**ask, "tokens": "abc"}, "tokens"), (1, {**ask, "features": 7}, ""), (1, {**ask, "type": []}, "")]
    cases += [(2, {**tell, "response": value}, "") for value in (None, 7, [], {}, {"kind": 3}, {"kind": "best"})]
    for number, line, message in cases:
        journal.write_bytes(b"".join(encode(each) for each in ((line,) if number == 1 else (ask, line))))
        (tmp_path / "one/planner.npz").unlink(missing_ok=True)
        with pytest.raises(ValueError, match=f"journal.jsonl, line {number} .*{message}.*restore .* from a backup"):
            resume(tmp_path / "one")


def test_a_session_closes_where_the_snapshot_has_no_place_and_may_be_closed_twice(tmp_path):
    with session(folder=tmp_path / "one") as one:
        run(one, SyntheticUser(THETA), 2)
        one.close()
    one.close()
    (tmp_path / "one/planner.npz").unlink()
    (tmp_path / "one/planner.npz").mkdir()
    again = resume(tmp_path / "one")
    with pytest.warns(UserWarning, match="state could not be saved .*found a folder"):
        again.close()
    again = resume(tmp_path / "one")
    with pytest.raises(OSError, match="found a folder"):
        again.save()  # asked for by name
    shutil.rmtree(tmp_path / "one/planner.npz")
    again.close()
    with pytest.raises(ValueError, match="has been closed"):
        one.tell(1) if one.pending else one.ask()


def test_a_damaged_snapshot_is_ignored_since_the_journal_has_everything(tmp_path):
    with session(folder=tmp_path / "one") as one:
        run(one, SyntheticUser(THETA), 3)
    snapshot = tmp_path / "one/planner.npz"
    whole = snapshot.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    renamed = bytearray(whole)  # a zip archive's own checksums don't cover its directory
    renamed[whole.index(b"PK\x01\x02") + 46] ^= 1
    empty = io.BytesIO()
    np.savez(empty, header=np.frombuffer(b"[3]", dtype=np.uint8))
    for data in (b"", b"no archive", whole[:100], whole[:-7], bytes(flipped), bytes(renamed), empty.getvalue()):
        snapshot.write_bytes(data)
        with pytest.warns(UserWarning, match="planner.npz could not be read .* the journal is replayed"):
            again = resume(tmp_path / "one")
        same(again, lived(3))
        again._journal.close()  # without a new snapshot
    with pytest.warns(UserWarning, match="could not be read"), resume(tmp_path / "one") as again:
        run(again, SyntheticUser(THETA), 1)
    with warnings.catch_warnings(), resume(tmp_path / "one") as again:  # mended by the next snapshot
        warnings.simplefilter("error")
        same(again, lived(4))


@pytest.mark.parametrize("fate", ["deleted", "moved"])
def test_a_folder_that_goes_away_is_an_error_at_the_next_answer(fate, tmp_path):
    folder = tmp_path / "one"
    one = session(folder=folder)
    run(one, SyntheticUser(THETA), 2)
    one.ask()
    shutil.rmtree(folder) if fate == "deleted" else folder.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="journal.jsonl where it was opened.*if it was moved, move it back"):
            one.tell(1)
    assert one.answered == 2 and one.pending is not None
    if fate == "moved":
        (tmp_path / "elsewhere").rename(folder)
        one.tell(1)
        one.close()
        with resume(folder) as again:
            assert again.answered == 3
    else:
        with pytest.raises(FileNotFoundError, match="if it was moved, move it back"):
            one.close()
        with pytest.raises(ValueError, match="has been closed"):
            one.tell(1)


def test_what_it_began_with_must_be_the_same(tmp_path):
    folder = tmp_path / "one"
    with session(folder=folder) as one:
        run(one, SyntheticUser(THETA), 3)
    (folder / "planner.npz").unlink()
    other_words = WORDS.subset(7, seed=0)
    for arguments, message in (
        ({"vocabulary": other_words}, "vocabulary fingerprint"),
        ({"encoder": CountingEncoder(D, "feed" * 16)}, "encoder fingerprint"),
        ({"model": Ranking()}, "model"),
        ({"planner": GreedyPlanner}, "planner with which .*'random'.*got 'greedy'"),
        ({"planner": random_planner(seed=6)}, "ask question 0 again as it did"),
    ):
        with pytest.raises(ValueError, match=message):
            resume(folder, **arguments)
    with resume(folder, random_planner(seed=6), exact=False) as again:  # the answers count, if not the draws
        np.testing.assert_array_equal(again.estimate.theta, lived(3).estimate.theta)
    (folder / "planner.npz").unlink()
    with resume(folder) as again:  # none of them has changed or locked anything
        same(again, lived(3))


def test_a_state_that_no_file_holds_still_serves_to_go_back(tmp_path):
    class Opaque(PLANNERS["restored"]):
        def state(self):
            return {**super().state(), "opaque": object()}

    with session(Opaque(), folder=tmp_path / "one") as one:
        run(one, SyntheticUser(THETA), 12)
        assert one.undo().number == 11
        one.tell(1)
    assert not (tmp_path / "one/planner.npz").exists()
    with resume(tmp_path / "one", Opaque()) as again:
        assert again.answered == 12


def test_a_planner_that_fails_costs_no_answer(tmp_path):
    """The answer is told and saved; the state that lacks it is not, so the resumed planner hears it."""

    class Failing(PLANNERS["restored"]):
        fails = False

        def tell(self, options, responses):
            if self.fails:
                raise np.linalg.LinAlgError("singular")
            super().tell(options, responses)

    planner = Failing()
    with session(planner, folder=tmp_path / "one") as one:
        run(one, SyntheticUser(THETA), 4)
        one.save()
        planner.fails = True
        with pytest.raises(np.linalg.LinAlgError):
            run(one, SyntheticUser(THETA), 1)
        assert one.answered == 5
    with resume(tmp_path / "one", Failing()) as again:
        same(again, lived(5, PLANNERS["restored"]))


def test_saving_is_whole_or_not_at_all(tmp_path, monkeypatch):
    one = session()
    run(one, SyntheticUser(THETA), 4)
    with pytest.raises(ValueError, match="a folder to save"):
        one.save()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").write_text("mine")
    with pytest.raises(FileExistsError, match="holds something"):
        one.save(tmp_path / "full")

    def fails(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", fails)
        with pytest.raises(OSError, match="No space"):
            one.save(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["full"] and one.folder is None
    (tmp_path / "empty").mkdir()
    assert one.save(tmp_path / "empty") == tmp_path / "empty" == one.save()
    with pytest.raises(ValueError, match="the session's own folder"):
        one.save(tmp_path / "other")
    run(one, SyntheticUser(THETA), 2)
    one.close()
    with resume(tmp_path / "empty") as again:
        assert again.answered == 6
        same(again, lived(6))


def test_a_full_disk_costs_nothing_told_before(tmp_path, monkeypatch):
    one = session(folder=tmp_path / "one")
    one.ask(), one.tell(1)
    one.ask()
    write = os.write

    def full(handle, data):
        write(handle, data[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                one.tell(2)
    assert one.answered == 1 and one.pending is not None
    one.tell(0)
    one.close()
    with resume(tmp_path / "one") as again:
        assert again.comparisons.responses == (Response.best(1), Response.best(0))


def test_the_history_goes_to_parquet_and_back(tmp_path):
    one = session(who="Ada")
    assert len(one.comparisons) == 0
    run(one, SyntheticUser(THETA), 4)
    one.ask(), one.skip()
    one.comparisons.to_parquet(tmp_path / "answers.parquet")
    back = Comparisons.from_parquet(tmp_path / "answers.parquet")
    assert back.responses == one.comparisons.responses and back.who == "Ada" and len(back) == 5
    assert back.metadata["encoder_fingerprint"] == encoder().fingerprint
    assert (np.diff(back.answered_at.astype(np.int64)) > 0).all()
    np.testing.assert_array_equal(back.features, one.comparisons.features)


def test_no_session_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="begin a session and save"):
        resume(tmp_path)
    with session(folder=tmp_path / "one"):
        pass
    settings = json.loads((tmp_path / "one/session.json").read_text())
    (tmp_path / "one/session.json").write_text(json.dumps({**settings, "format": "edpbrl-gym session 9"}))
    with pytest.raises(ValueError, match="'edpbrl-gym session 1'.*got 'edpbrl-gym session 9'"):
        resume(tmp_path / "one")
    (tmp_path / "one/session.json").write_text("{")
    with pytest.raises(ValueError, match="could not read"):
        resume(tmp_path / "one")
