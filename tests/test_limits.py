"""The limits of scale that docs/security.md states: beyond typical sizes the planner still asks legal questions."""

import numpy as np
import pytest

from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.planners import AdaptivePlanner, TokenFeatures
from edpbrl_gym.vocabulary import Vocabulary


def unit_rows(count, dimension):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count, dimension)) + 2.0 * rng.standard_normal(dimension)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("tokens", "dimension", "options", "steps", "answers"),
    [
        pytest.param(100_000, 8, 4, 2, 2, id="tokens"),
        pytest.param(40, 1024, 2, 1, 1, id="dimension"),
        pytest.param(80, 8, 24, 2, 1, id="options"),
        pytest.param(240, 8, 3, 60, 60, id="steps"),
    ],
)
def test_beyond_typical_sizes_questions_are_legal_and_estimates_converge(tokens, dimension, options, steps, answers):
    rows = unit_rows(tokens, dimension)
    size = tokens // steps
    names = Vocabulary(
        tuple(f"step {step}" for step in range(steps)),
        tuple(tuple(f"token {step} {token}" for token in range(size)) for step in range(steps)),
    )
    planner = AdaptivePlanner(
        names, options=TokenFeatures(names, rows), prior=VocabularyPrior(rows), num_options=options
    )
    taste = 20.0 * rows[3]
    prefixes = np.empty((options, 0), dtype=np.int64)
    for _ in range(answers):
        step = prefixes.shape[1]
        chosen = planner.ask(prefixes)
        assert len(set(chosen.tolist())) == options and chosen.min() >= 0 and chosen.max() < size
        shown = rows[step * size + chosen]
        planner.tell(shown[None], [int((shown @ taste).argmax())])
        prefixes = np.column_stack([prefixes, chosen]) if step + 1 < steps else prefixes[:, :0]
    assert planner.estimate.converged and np.isfinite(planner.estimate.theta).all()
    assert planner.estimate.theta @ taste > 0


def test_thousands_of_answers_are_taken_in():
    rows = unit_rows(60, 4)
    names = Vocabulary(("step",), (tuple(f"token {token}" for token in range(60)),))
    planner = AdaptivePlanner(names, options=TokenFeatures(names, rows), prior=VocabularyPrior(rows), num_options=2)
    shown = rows[np.random.default_rng(1).integers(60, size=(2_000, 2))]
    planner.tell(shown, (shown @ (20.0 * rows[3])).argmax(axis=1).tolist())
    assert len(set(planner.ask(np.empty((2, 0), dtype=np.int64)).tolist())) == 2
    found = planner.estimate.theta
    assert planner.estimate.converged and found @ rows[3] > 0.99 * np.linalg.norm(found)
