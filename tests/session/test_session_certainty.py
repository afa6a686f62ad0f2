"""How sure a session is follows from its answers alone, and changes by what an answer says, not by noise."""

import numpy as np

from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.likelihood import Terms
from edpbrl_gym.planners import RandomPlanner
from edpbrl_gym.session import Session, StoppingRule
from tests.helpers.session_planners import WORDS, encoder

TOKENS = encoder().encode(WORDS.all_tokens)
TASTE = 12.0 * TOKENS[4].astype(np.float64)
RULE = StoppingRule(target=0.85, gain=0.0, lookahead=10, minimum=30)


def told(answers, *, look=False):
    planner = RandomPlanner(WORDS.sizes, prior=VocabularyPrior(TOKENS), num_options=3)
    session = Session(planner, vocabulary=WORDS, encoder=encoder(), num_options=3, stopping=RULE)
    for _ in range(answers):
        question = session.ask()
        session.tell(int((question.features.astype(np.float64) @ TASTE).argmax()))
        if look:
            session.progress()
    return session


def test_the_same_answers_give_the_same_numbers():
    first, second = told(9, look=True).progress(), told(9).progress([3])
    assert (first.accuracy, first.left, first.reason) == (second.accuracy, second.left, second.reason)
    assert first.left.low <= first.left.questions <= (first.left.high or first.left.most)
    assert first.left.low >= RULE.minimum - 9 and first.left.questions > 0


def test_an_answer_that_says_nothing_changes_little():
    session = told(12)
    terms = session.comparisons.terms(session.model)
    same = np.repeat(terms.rows[:1, :1], terms.rows.shape[1], axis=1)  # options that do not differ
    more = Terms(np.concatenate([terms.rows, same]), np.vstack([terms.offsets, terms.offsets[:1]]), [*terms.chosen, 0])

    def progress(answers):
        return session.outlook.progress(session.theta, session.model, answers, questions=12, answers=12, further=())

    before, after = progress(terms), progress(more)
    assert abs(before.accuracy - after.accuracy) < 0.01
    assert abs(before.left.questions - after.left.questions) <= 2
