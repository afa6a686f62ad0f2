"""Policies, an encoder and settings small enough that a run of REINFORCE takes a second."""

from functools import partial

from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.policies import make_policies
from edpbrl_gym.language.settings import ReinforceSettings
from tests.helpers.encoders import CountingEncoder

SMALL = "--num-options 2 --words 2 --meta-samples 2 --episodes 2".split()  # options of `edpbrl reproduce reinforce`


HashEncoder = partial(CountingEncoder, 6)


def tiny_policies(folder, policies=2, **options):
    return make_policies(load_language_model(folder, device="cpu"), policies, **{"rank": 2, "noise": 0.02, **options})


def tiny_settings(**changes):
    chosen = dict(
        iterations=4, meta_samples=4, episodes=2, words=3, max_tokens=6, evaluation_samples=2, learning_rate=0.05
    )
    return ReinforceSettings(**{**chosen, **changes})
