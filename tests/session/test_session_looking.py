"""The estimate is a function of the answers alone: looking at it, in whatever order, changes nothing."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.planners import AdaptivePlanner, ComposedFeatures, RandomPlanner
from edpbrl_gym.planners.rules import RulePlanner
from edpbrl_gym.session import Session
from tests.helpers.session_planners import WORDS, D, encoder

TOKENS = encoder().encode(WORDS.all_tokens)
OPTIONS = ComposedFeatures(WORDS, TOKENS, encoder(), prompts=20)
PRIORS = {"words": VocabularyPrior(TOKENS), "ridge": GaussianPrior.isotropic(D, 0.1)}
TASTE = 12.0 * TOKENS[4].astype(np.float64)

PLANNERS = {
    **{
        f"adaptive, {name}": functools.partial(AdaptivePlanner, WORDS, options=OPTIONS, prior=prior, num_options=3)
        for name, prior in PRIORS.items()
    },
    "adaptive, memory": functools.partial(
        AdaptivePlanner, WORDS, options=OPTIONS, prior=PRIORS["words"], num_options=3, memory=7
    ),
    **{
        f"bald, {name}": functools.partial(RulePlanner, WORDS, rule="bald", options=OPTIONS, prior=prior, num_options=3)
        for name, prior in PRIORS.items()
    },
    "random": functools.partial(RandomPlanner, WORDS.sizes, prior=PRIORS["words"], num_options=3),
}


def open_session(planner, folder=None):
    return Session(planner, vocabulary=WORDS, encoder=encoder(), num_options=3, folder=folder)


def best_of(question):
    return int((question.features.astype(np.float64) @ TASTE).argmax())


class Looking(RuleBasedStateMachine):
    """A session to which everything may happen, against sessions that only live through its answers."""

    make = PLANNERS["random"]

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.session = open_session(self.make(), self.root / "session")
        self.answers = []

    def teardown(self):
        self.session.close()
        shutil.rmtree(self.root)

    @rule()
    def ask(self):
        self.session.ask()

    @rule(choice=st.integers(0, 2) | st.just(None))
    def tell(self, choice):
        self.session.ask()
        self.session.tell(choice)
        self.answers.append(choice)

    @rule()
    def tell_truly(self):
        self.tell(best_of(self.session.ask()))

    @precondition(lambda self: self.answers)
    @rule()
    def undo(self):
        self.session.undo()
        self.answers.pop()

    @rule()
    def think(self):
        self.session.think()

    @rule()
    def look_at_the_estimate(self):
        assert self.session.estimate.converged

    @rule()
    def look_at_the_posterior(self):
        assert self.session.posterior.precision.shape == (D, D)

    @precondition(lambda self: any(choice is not None for choice in self.answers))
    @rule()
    def look_at_the_progress(self):
        assert 0.0 <= self.session.progress((6,)).accuracy <= 1.0

    @rule()
    def resume(self):
        self.session.close()
        self.session = Session.resume(self.root / "session", self.make(), vocabulary=WORDS, encoder=encoder())

    @invariant()
    def the_estimate_is_that_of_the_answers(self):
        if not self.answers:
            return
        fresh = self.make()
        told = self.session.comparisons.answered
        if len(told):
            fresh.tell(np.array(told.features), told.responses)
        np.testing.assert_array_equal(self.session.estimate.theta, fresh.estimate.theta)

    @invariant()
    def the_question_is_that_of_a_fresh_replay(self):
        if self.session.pending is None:
            return
        replay = open_session(self.make())
        for choice in self.answers:
            replay.ask()
            replay.tell(choice)
        np.testing.assert_array_equal(self.session.pending.tokens, replay.ask().tokens)


@pytest.mark.parametrize("kind", sorted(PLANNERS))
def test_nothing_but_the_answers_decides_estimate_and_questions(kind):
    machine = type("Machine", (Looking,), {"make": staticmethod(PLANNERS[kind])})
    run_state_machine_as_test(machine, settings=settings(max_examples=3, stateful_step_count=20))
