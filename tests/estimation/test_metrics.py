"""Metrics against independent computations, seeds, and files of tastes that are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cosine
from scipy.stats import kendalltau

from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.metrics import choice_accuracy, cosine_error, preference_error, sample_pairs
from edpbrl_gym.experiments.runs import RunFolderError
from edpbrl_gym.personalize.taste import load_taste, save_taste


@given(st.integers(0, 10_000), st.integers(2, 12))
@settings(max_examples=50)
def test_cosine_error_is_scipys_cosine_distance(seed, dimension):
    rng = np.random.default_rng(seed)
    guess, truth = rng.normal(size=(2, dimension))
    assert cosine_error(guess, truth) == pytest.approx(cosine(guess, truth), abs=1e-12)
    assert cosine_error(7.0 * guess, truth) == pytest.approx(cosine_error(guess, truth), abs=1e-12)
    assert cosine_error(-truth, truth) == pytest.approx(2.0)


@given(st.integers(0, 10_000))
@settings(max_examples=25)
def test_preference_error_over_all_pairs_is_kendalls_distance(seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(12, 4))
    guess, truth = rng.normal(size=(2, 4))
    pairs = np.stack(np.triu_indices(12, k=1), axis=1)
    tau = kendalltau(features @ guess, features @ truth).statistic
    assert preference_error(guess, truth, features, pairs) == pytest.approx((1 - tau) / 2, abs=1e-12)


def test_ties_of_the_truth_are_left_out_and_ties_of_the_estimate_count_half():
    features = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    pairs = [[0, 1], [0, 2], [1, 2]]
    truth = np.array([1.0, 1.0])  # indifferent between 0 and 1; prefers 2 to both
    assert preference_error(truth, truth, features, pairs) == 0.0
    assert preference_error(-truth, truth, features, pairs) == 1.0
    assert preference_error(np.zeros(2), truth, features, pairs) == 0.5
    assert preference_error(np.array([1.0, 0.0]), truth, features, pairs) == 0.25  # ties 0 and 2, right on 1 and 2
    with pytest.raises(ValueError, match="indifferent"):
        preference_error(truth, truth, features, [[0, 1]])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(2, 60), st.integers(1, 200), st.integers(0, 99))
@settings(max_examples=50)
def test_sampled_prompts_and_pairs_are_distinct_legal_and_as_many_as_there_can_be(sizes, prompts, pairs, seed):
    total = int(np.prod(sizes))
    if total < 2:
        with pytest.raises(ValueError, match="at least two prompts"):
            sample_pairs(sizes, prompts=prompts, pairs=pairs, rng=np.random.default_rng(seed))
        return
    found = sample_pairs(sizes, prompts=prompts, pairs=pairs, rng=np.random.default_rng(seed))
    count = min(prompts, total)
    assert found.tokens.shape == (count, len(sizes))
    assert len(np.unique(found.tokens, axis=0)) == count
    assert (found.tokens >= 0).all() and (found.tokens < np.array(sizes)).all()
    assert found.pairs.shape == (min(pairs, count * (count - 1) // 2), 2)
    assert len(np.unique(found.pairs, axis=0)) == len(found.pairs)
    assert (found.pairs[:, 0] < found.pairs[:, 1]).all() and found.pairs.max() < count
    again = sample_pairs(sizes, prompts=prompts, pairs=pairs, rng=np.random.default_rng(seed))
    assert (again.tokens == found.tokens).all() and (again.pairs == found.pairs).all()


@pytest.mark.parametrize("sizes", [[3, 4], [1000, 900, 70], [2] * 40, [2**31, 3]])
def test_prompts_and_pairs_are_int64_and_pairs_are_uniform(sizes):
    found = sample_pairs(sizes, prompts=8, pairs=10, rng=np.random.default_rng(1))
    assert found.tokens.dtype == np.int64 == found.pairs.dtype
    assert found.tokens.shape == (8, len(sizes)) and found.pairs.shape == (10, 2)
    assert len(np.unique(found.pairs, axis=0)) == 10 and (found.pairs[:, 0] < found.pairs[:, 1]).all()
    counts = np.zeros((8, 8))
    for seed in range(60):
        one = sample_pairs(sizes, prompts=8, pairs=20, rng=np.random.default_rng(seed))
        assert len(np.unique(one.pairs, axis=0)) == 20
        counts[one.pairs[:, 0], one.pairs[:, 1]] += 1
    # 20 of 28 pairs each time: binomial with 60 draws of probability 5 / 7
    assert np.abs(counts[np.triu_indices(8, 1)] - 60 * 5 / 7).max() < 5 * np.sqrt(60 * 5 / 7 * 2 / 7)


def test_choice_accuracy_counts_ties_by_chance():
    features = np.zeros((3, 2, 2), dtype=np.float32)
    features[:, 0, 0] = 1.0
    answered = Comparisons.of_choices(features=features, choice=[0, 0, 1], episode=[0, 1, 2], step=[0, 0, 0])
    assert choice_accuracy(answered, np.array([1.0, 0.0])) == pytest.approx(2 / 3)
    assert choice_accuracy(answered, np.zeros(2)) == pytest.approx(1 / 2)


def test_streams_depend_on_every_key_and_on_nothing_else():
    seeds = {derive_seed(0, "a", 1), derive_seed(0, "a", 2), derive_seed(0, "b", 1), derive_seed(1, "a", 1)}
    assert len(seeds) == 4
    assert derive_seed(0, "a", 1) == derive_seed(0, "a", 1) == 2354578033466627814
    assert generator(3, "x").random() == generator(3, "x").random()


def test_tastes_that_cannot_be_written_or_found(tmp_path):
    path = save_taste(tmp_path / "theta.safetensors", np.ones(3), {})
    for call, error, message in (
        (lambda: save_taste(tmp_path / "bad", np.array([np.nan]), {}), ValueError, "finite"),
        (lambda: load_taste(tmp_path / "missing"), FileNotFoundError, "none; make one with `edpbrl estimate`"),
        (lambda: save_taste(path / "below-a-file", np.ones(3), {}), RunFolderError, "choose a folder"),
    ):
        with pytest.raises(error, match=message):
            call()
