"""The value of questions whose answers are several choices, against the information of their formats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.likelihood import BestWorst, PartialRanking, Ranking
from edpbrl_gym.planners.sequences import SequentialChoices


@pytest.mark.parametrize("format", [BestWorst(), Ranking(), PartialRanking(2)])
@given(seed=st.integers(0, 10_000), options=st.integers(3, 6), draws=st.integers(1, 4))
@settings(max_examples=20)
def test_questions_have_the_information_of_their_format(format, seed, options, draws):
    rng, d = np.random.default_rng(seed), 6
    root = rng.normal(size=(d, d))
    precision = root @ root.T + 0.3 * np.eye(d)
    tokens, offsets, thetas = rng.normal(size=(9, d)), rng.normal(size=(options, d)), rng.normal(size=(draws, d))
    contrasts, chosen, lane = rng.normal(size=(d, 3)), rng.permutation(9)[:options], int(rng.integers(options))
    expected = []
    for token in range(len(tokens)):
        chosen[lane] = token
        shown = tokens[chosen] + offsets
        after = precision + np.mean([format.information(shown[None], theta) for theta in thetas], axis=0)
        taken_off = np.linalg.inv(precision) - np.linalg.inv(after)
        gain = np.linalg.slogdet(after)[1] - np.linalg.slogdet(precision)[1]
        expected.append((gain, np.trace(taken_off), np.trace(contrasts.T @ taken_off @ contrasts)))
    factor = Posterior(np.zeros(d), precision).inverse_factor
    kinds = (("information", None), ("variance", None), ("variance", contrasts))
    for (kind, given_contrasts), values in zip(kinds, np.transpose(expected), strict=True):
        score = SequentialChoices(thetas, format.picks(options), factor, score=kind, contrasts=given_contrasts)
        score.prepare(tokens, offsets + 1.0)  # then the same candidates with other offsets
        score.prepare(tokens, offsets)
        np.testing.assert_allclose(score.replacements(chosen, lane), values, rtol=1e-9, atol=1e-10)
