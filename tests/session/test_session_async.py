"""Sessions under asyncio: the same questions, nothing blocked, no answer counted twice."""

import asyncio
import threading

import numpy as np
import pytest

from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.session import AsyncSession, Session, StoppingRule, answer_of, run
from tests.helpers.session_planners import THETA, WORDS, D, RestorableGreedyPlanner, encoder, same, session


@pytest.mark.parametrize("prefetch", [True, False])
def test_it_is_the_same_session(prefetch):
    one, other = session(RestorableGreedyPlanner), session(RestorableGreedyPlanner)
    user = SyntheticUser(THETA)

    async def person(question):
        await asyncio.sleep(0)
        return answer_of(user, question)

    async def main():
        async with AsyncSession(one, prefetch=prefetch) as asynchronous:
            assert await asynchronous.run(person, 7) == 7
            await asynchronous.undo()
            await asynchronous.tell(2)
            await asynchronous.ask()
            await asynchronous.skip()
            assert (await asynchronous.progress()).questions == 8
            assert len(await asynchronous.recommend(2)) == 2

    asyncio.run(main())
    run(other, user, 7)
    other.undo(), other.tell(2), other.ask(), other.skip()
    same(one, other)


def test_the_next_question_is_made_ahead():
    one = session(RestorableGreedyPlanner)

    async def main():
        asynchronous = AsyncSession(one)
        await asynchronous.ask()
        await asynchronous.tell(0)
        await asyncio.wait([asynchronous._ahead])
        assert one.pending is not None and one.pending.number == 1
        assert await asynchronous.ask() is one.pending
        assert (await asynchronous.undo()).number == 0  # and is dropped by undo
        await asynchronous.close()

    asyncio.run(main())


def test_the_planner_thinks_while_the_person_does():
    class Thinker(RestorableGreedyPlanner):
        thoughts = 0

        def think(self):
            self.thoughts += 1

    one = session(Thinker)

    async def main():
        async with AsyncSession(one) as asynchronous:
            await asynchronous.ask()
            for answer in range(2):
                await asynchronous.tell(answer)
                await asyncio.wait([asynchronous._ahead])
                assert one.pending.number == one.planner.thoughts == answer + 1

    asyncio.run(main())
    plain = session(RestorableGreedyPlanner)  # does not think
    plain.think()


def test_the_event_loop_is_not_blocked():
    """While the planner thinks, another task runs; it is what lets the planner go on."""
    free = threading.Event()

    class Slow(RestorableGreedyPlanner):
        def ask(self, prefixes):
            assert free.wait(20)
            return super().ask(prefixes)

    async def main():
        asynchronous = AsyncSession(session(Slow))
        asking = asyncio.ensure_future(asynchronous.ask())
        await asyncio.sleep(0.01)
        assert not asking.done()
        free.set()
        assert (await asking).number == 0
        await asynchronous.close()

    asyncio.run(main())


def test_an_answer_sent_twice_counts_once():
    """A double click: the second must not answer the question that was made ahead."""
    one = session(RestorableGreedyPlanner)

    async def main():
        async with AsyncSession(one) as asynchronous:
            await asynchronous.ask()
            results = await asyncio.gather(asynchronous.tell(1), asynchronous.tell(1), return_exceptions=True)
            assert results[0] is None and "has been answered in the meantime" in str(results[1])

    asyncio.run(main())
    assert one.answered == 1


def test_a_cancelled_call_leaves_the_session_whole():
    free = threading.Event()

    class Slow(RestorableGreedyPlanner):
        def ask(self, prefixes):
            assert free.wait(20)
            return super().ask(prefixes)

    one, other = session(Slow), session(RestorableGreedyPlanner)

    async def main():
        asynchronous = AsyncSession(one)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asynchronous.ask(), 0.01)
        free.set()
        await asynchronous.ask()
        await asynchronous.tell(2)
        await asynchronous.close()

    asyncio.run(main())
    other.ask(), other.tell(2)
    same(one, other)


def test_an_error_made_ahead_is_raised_by_the_next_ask():
    class Failing:
        name, dimension, fingerprint = "counting", D, encoder().fingerprint
        fails = False

        def encode(self, texts, *, progress=False):
            if self.fails:
                raise ConnectionError("no model")
            return encoder().encode(texts)

    failing = Failing()
    one = Session(RestorableGreedyPlanner, vocabulary=WORDS, encoder=failing, num_options=3)

    async def main():
        async with AsyncSession(one) as asynchronous:
            await asynchronous.ask()
            failing.fails = True
            await asynchronous.tell(0)
            with pytest.raises(ConnectionError):
                await asynchronous.ask()
            failing.fails = False
            assert (await asynchronous.ask()).number == 1

    asyncio.run(main())


def test_it_stops_when_it_is_sure():
    one = session(stopping=StoppingRule(target=0.8, gain=0.0, minimum=6))
    user = SyntheticUser(THETA)

    async def person(question):
        return answer_of(user, question)

    async def main():
        async with AsyncSession(one) as asynchronous:
            return await asynchronous.run(person, 300, until_sure=True)

    asked = asyncio.run(main())
    assert asked < 300 and asked == one.answered and one.progress().should_stop
    assert np.isfinite(one.estimate.theta).all()
