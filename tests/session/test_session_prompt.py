"""Sessions that compare complete prompts: one question an episode, whose tokens the planner chooses step by step."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.session import AsyncSession, Session, run
from tests.helpers.session_planners import (
    PLANNERS,
    THETA,
    WORDS,
    GreedyPlanner,
    RestorableGreedyPlanner,
    adaptive_planner,
    encoder,
    random_planner,
    same,
    session,
)

H = WORDS.horizon


def complete(planner=None, **arguments):
    return session(planner, feedback="prompt", **arguments)


def resume(folder, planner=None, **arguments):
    arguments = {"vocabulary": WORDS, "encoder": encoder(), **arguments}
    return Session.resume(folder, random_planner() if planner is None else planner, **arguments)


class Watched(RestorableGreedyPlanner):
    """Keeps the prefixes that it was asked to extend, and the answers that it was told."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.prefixes, self.told = [], []

    def ask(self, prefixes):
        self.prefixes.append(np.array(prefixes))
        return super().ask(prefixes)

    def tell(self, options, responses):
        self.told.append((np.array(options), list(responses)))
        super().tell(options, responses)


def test_one_question_an_episode_of_complete_prompts():
    planner = Watched()
    one = complete(planner)
    for number in range(4):
        question = one.ask()
        assert question is one.ask()
        assert (question.number, question.episode, question.step) == (number, number, H - 1)
        assert question.tokens.shape == (3, H) and question.num_new == H and question.prefixes.shape == (3, 0)
        assert question.texts == tuple(WORDS.prompt(row) for row in question.tokens)
        np.testing.assert_array_equal(question.features, encoder().encode(question.texts))
        asked = planner.prefixes[-H:]
        assert len(planner.prefixes) == H * (number + 1)
        for step, prefixes in enumerate(asked):  # its own tokens, one more each time
            np.testing.assert_array_equal(prefixes, question.tokens[:, :step])
        one.tell(number % 3)
        (options, responses) = planner.told[-1]
        np.testing.assert_array_equal(options, question.features[None])
        assert len(planner.told) == number + 1 and responses == [Response.best(number % 3)]
    found = one.comparisons
    assert found.metadata["feedback"] == "prompt"
    assert found.step.tolist() == [H - 1] * 4 and found.episode.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("step", range(H))
def test_a_planner_that_fails_is_not_asked_twice_for_a_step(step):
    class Failing(Watched):
        fails = True

        def ask(self, prefixes):
            if self.fails and prefixes.shape[1] == step:
                raise ConnectionError("no tokens")
            return super().ask(prefixes)

    one, other = complete(Failing()), complete(Watched())
    for _ in range(3):
        with pytest.raises(ConnectionError):
            one.ask()
        assert [prefixes.shape[1] for prefixes in one.planner.prefixes] == list(range(step))
    one.planner.fails = False
    same(one, other)
    assert [prefixes.shape[1] for prefixes in one.planner.prefixes] == list(range(H))


def test_illegal_tokens_of_any_step_are_named():
    class Wrong(GreedyPlanner):
        def ask(self, prefixes):
            self.asked += 1
            return np.full(3, 8 if prefixes.shape[1] == 1 else 0)

    one = complete(Wrong())
    for _ in range(2):
        with pytest.raises(ValueError, match=r"tokens in 0\.\.7, got 8"):
            one.ask()
    assert one.planner.asked == 2


def test_an_option_twice_is_refused_only_as_a_whole_prompt():
    class Repeats(GreedyPlanner):
        distinct = True
        last = (0, 1, 2)

        def ask(self, prefixes):
            return np.array(self.last if prefixes.shape[1] == H - 1 else (4, 4, 4))

    assert len(set(complete(Repeats()).ask().texts)) == 3
    planner = Repeats()
    planner.last = (0, 1, 0)
    with pytest.raises(ValueError, match="Expected 3 different options.*as options 0 and 2"):
        complete(planner).ask()


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(["0", "1", "2", "skip", "undo", "save", "resume", "ask"]), max_size=30),
    st.sampled_from(sorted(PLANNERS)),
)
def test_a_resumed_session_goes_on_as_the_uninterrupted_one(actions, kind):
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as closing:
        one, other, stand = complete(PLANNERS[kind], folder=Path(root) / "one"), complete(PLANNERS[kind]), []
        for action in actions:
            if action == "resume":
                one.close()
                one = resume(Path(root) / "one", PLANNERS[kind])
                continue
            for each in (one, other):
                if action == "save":
                    _ = each.save() if each is one else None
                elif action == "undo":
                    _ = each.undo() if each.answered else None
                else:
                    each.ask()
                    _ = each.tell(None if action == "skip" else int(action)) if action != "ask" else None
            if action == "undo":
                stand = stand[:-1]
            elif action in ("0", "1", "2", "skip"):
                stand.append(None if action == "skip" else int(action))
        one.close()
        one = resume(Path(root) / "one", PLANNERS[kind])
        closing.callback(one.close)
        same(one, other)
        plain = complete(PLANNERS[kind])  # the session of the answers that stand
        for answer in stand:
            plain.ask(), plain.tell(answer)
        same(one, plain)


def test_an_adaptive_planner_asks_tells_goes_back_and_resumes(tmp_path):
    one, other = complete(adaptive_planner(), folder=tmp_path / "one"), complete(adaptive_planner())
    for number in range(5):
        one.ask()
        if number % 2:
            one.tell(2), one.ask(), one.undo()
        one.tell(number % 3), other.ask(), other.tell(number % 3)
    one.ask(), one.close()
    with resume(tmp_path / "one", adaptive_planner()) as again:
        same(again, other)
        assert len(set(again.pending.texts)) == 3
    other_seed = adaptive_planner(seed=6)
    with pytest.raises(ValueError, match="to ask question 0 again as it did"):
        resume(tmp_path / "one", other_seed)


@pytest.mark.parametrize("kind", sorted(PLANNERS))
def test_wherever_the_writing_stopped_the_told_answers_are_there(kind, tmp_path):
    one, lengths = complete(PLANNERS[kind], folder=tmp_path / "one"), [0]
    for number in range(3):
        one.ask(), one.tell(number)
        lengths.append((tmp_path / "one/journal.jsonl").stat().st_size)
    one.ask()
    data = (tmp_path / "one/journal.jsonl").read_bytes()
    for cut in {*range(lengths[2], len(data) + 1, 97), *lengths[1:], len(data) - 1}:
        copy = tmp_path / f"cut-{cut}"
        copy.mkdir()
        (copy / "session.json").write_bytes((tmp_path / "one/session.json").read_bytes())
        (copy / "journal.jsonl").write_bytes(data[:cut])
        with resume(copy, PLANNERS[kind]) as again:
            told = sum(length - 1 <= cut for length in lengths[1:])
            assert again.answered == told
            other = complete(PLANNERS[kind])
            for number in range(told):
                other.ask(), other.tell(number)
            same(again, other)
    one.close()


KILLED = """
import sys
from pathlib import Path
from tests.helpers.session_planners import RestorableGreedyPlanner, session

one = session(RestorableGreedyPlanner, feedback="prompt", folder=Path(sys.argv[1]))
while True:
    one.ask()
    one.tell(one.answered % 3)
    print(one.answered, flush=True)  # told, and acknowledged
"""


def test_no_told_answer_is_lost_by_a_kill(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "one")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    while int(process.stdout.readline()) < 12:
        pass
    process.send_signal(signal.SIGKILL)
    acknowledged = int((process.stdout.read().split() or ["12"])[-1])
    process.wait()
    with resume(tmp_path / "one", RestorableGreedyPlanner) as again:
        assert again.answered >= acknowledged
        assert again.comparisons.responses == tuple(Response.best(n % 3) for n in range(again.answered))
        other = complete(RestorableGreedyPlanner)
        for number in range(again.answered):
            other.ask(), other.tell(number % 3)
        same(again, other)


def test_what_is_learnt_predicted_and_saved(tmp_path):
    one = complete()
    assert run(one, SyntheticUser(THETA), 24) == 24
    assert one.estimate.theta @ THETA > 0.8 * np.linalg.norm(one.estimate.theta) * np.linalg.norm(THETA)
    typical = one.outlook.typical
    assert typical.shape == (20 * H, 3, 8)
    texts = {text for call in one.memo.encoder.calls for text in call if text.count(", ") == H - 1}
    known = {row.tobytes() for row in encoder().encode(sorted(texts))}
    assert all(row.astype(np.float32).tobytes() in known for row in typical.reshape(-1, 8))  # complete prompts
    progress = one.progress()
    assert progress.answers == 24 and (np.diff(progress.curve) > 0).all()
    assert one.recommend(1)[0].text.count(", ") == H - 1
    one.comparisons.to_parquet(tmp_path / "told.parquet")
    again = Comparisons.from_parquet(tmp_path / "told.parquet")
    assert again.metadata["feedback"] == "prompt" and again.responses == one.comparisons.responses


def test_the_same_session_for_asyncio():
    async def live():
        async with AsyncSession(complete(RestorableGreedyPlanner())) as one:
            for number in range(4):
                await one.ask()
                await one.tell(number % 3)
            await one.undo()
            await one.skip()
            return one.session

    found = asyncio.run(live())
    other = complete(RestorableGreedyPlanner())
    for answer in (0, 1, 2, None):
        other.ask(), other.tell(answer)
    same(found, other)


def test_a_journal_of_other_feedback_is_refused(tmp_path):
    with session(folder=tmp_path / "one") as one:
        one.ask(), one.tell(0)
    path = tmp_path / "one/session.json"
    path.write_text(path.read_text().replace('"truncated"', '"prompt"'))
    with pytest.raises(ValueError, match="line 1 is none that can come there"):
        resume(tmp_path / "one")
