"""A small vocabulary, planners and sessions that the session tests share."""

import numpy as np

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.likelihood import BestOf
from edpbrl_gym.planners import AdaptivePlanner, ComposedFeatures, Planner, RandomPlanner
from edpbrl_gym.session import Session
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.encoders import CountingEncoder
from tests.helpers.small_vocabulary import TOKENS

WORDS = Vocabulary(tuple(TOKENS), tuple(TOKENS.values()))
D = 8


def encoder():
    return CountingEncoder(D)


def prior():
    return GaussianPrior.isotropic(D, 1.0)


def random_planner(seed=5, model=None, num_options=3):
    return RandomPlanner(WORDS.sizes, prior=prior(), num_options=num_options, seed=seed, model=model)


def adaptive_planner(seed=5):
    tokens = encoder().encode(WORDS.all_tokens)
    options = ComposedFeatures(WORDS, tokens, encoder(), prompts=20)
    return AdaptivePlanner(WORDS, options=options, prior=VocabularyPrior(tokens), num_options=3, seed=seed)


class GreedyPlanner(Planner):
    """Asks by its estimate, its own draws and its last answers: whatever it forgets or hears twice shows."""

    name = "greedy"
    num_options = 3
    distinct = False  # no person answers

    def __init__(self, seed=0):
        self.seed = seed
        self.asked = 0
        self.options = []
        self.responses = []
        self.rng = np.random.default_rng(seed)
        self.theta = np.zeros(D)

    def ask(self, prefixes):
        self.asked += 1
        scores = self.rng.normal(size=(len(prefixes), WORDS.sizes[prefixes.shape[1]]))
        scores[:, :D] += 3 * self.theta + self.asked * 0.1
        return scores.argmax(axis=1)

    def tell(self, options, responses):
        self.options.extend(options)
        self.responses.extend(responses)
        self.theta = self.estimate.theta

    @property
    def estimate(self):
        options = np.array(self.options).reshape(-1, 3, D)
        return estimate((options, self.responses), model=BestOf(), regularization=1.0)

    @property
    def posterior(self):
        return Posterior.from_estimate(self.estimate)


class RestorableGreedyPlanner(GreedyPlanner):
    """The same with states."""

    def state(self):
        return {
            "asked": self.asked,
            "options": np.array(self.options, dtype=np.float32).reshape(-1, 3, D),
            "responses": [response.as_json() for response in self.responses],
            "rng": self.rng.bit_generator.state,
            "theta": self.theta,
        }

    def restore(self, state):
        from edpbrl_gym.likelihood import Response

        self.asked = state["asked"]
        self.options = list(state["options"])
        self.responses = [Response.from_json(response) for response in state["responses"]]
        self.rng.bit_generator.state = state["rng"]
        self.theta = state["theta"]


PLANNERS = {"replayed": GreedyPlanner, "restored": RestorableGreedyPlanner, "random": random_planner}


THETA = np.random.default_rng(3).normal(size=D)


def session(planner=None, **arguments):
    arguments = {"vocabulary": WORDS, "encoder": encoder(), "num_options": 3, **arguments}
    return Session(random_planner() if planner is None else planner, **arguments)


def resume(folder, planner=None, **arguments):
    arguments = {"vocabulary": WORDS, "encoder": encoder(), **arguments}
    return Session.resume(folder, random_planner() if planner is None else planner, **arguments)


def same(a, b):
    """Whether two sessions ask the same next question and have learnt the same, to the last bit."""
    left, right = a.ask(), b.ask()
    np.testing.assert_array_equal(left.tokens, right.tokens)
    np.testing.assert_array_equal(left.features, right.features)
    assert (left.number, left.episode, left.step, left.texts) == (right.number, right.episode, right.step, right.texts)
    np.testing.assert_array_equal(a.estimate.theta, b.estimate.theta)
    np.testing.assert_array_equal(a.posterior.precision, b.posterior.precision)
    assert a.comparisons.responses == b.comparisons.responses
