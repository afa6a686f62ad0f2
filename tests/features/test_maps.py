"""Feature maps: the kernel that random Fourier features approximate, sums of kernels, joined actions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from edpbrl_gym.features import FeatureMap, RandomFourierFeatures, TextEncoder, WithLinear
from edpbrl_gym.features.maps import MappedEncoder, join_actions, map_rows
from tests.helpers.encoders import CountingEncoder


def gaussian(left, right, bandwidth):
    return np.exp(-np.square(left[:, None] - right[None]).sum(axis=2) / (2 * bandwidth**2))


@pytest.mark.parametrize("size", [8, 512])
def test_the_kernel_is_approximated_with_the_variance_of_the_theory(size):
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(6, 3)), rng.normal(size=(5, 3))
    kernel = gaussian(left, right, 1.7)
    repeats = 400
    found = np.stack(
        [
            (lambda z: z(left) @ z(right).T)(RandomFourierFeatures(3, size, bandwidth=1.7, seed=seed))
            for seed in range(repeats)
        ]
    )
    deviation = np.sqrt((1 - kernel**2) ** 2 / size)  # 2 m = size
    assert (np.abs(found.mean(axis=0) - kernel) <= 4.5 * deviation / np.sqrt(repeats)).all()
    np.testing.assert_allclose(found.std(axis=0), deviation, rtol=0.2)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 20), st.floats(0.1, 10.0))
def test_rows_have_norm_one_and_the_kernel_is_positive_semidefinite(seed, inputs, half, bandwidth):
    rows = np.random.default_rng(seed).normal(size=(7, inputs))
    mapped = RandomFourierFeatures(inputs, 2 * half, bandwidth=bandwidth, seed=seed)(rows)
    np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), 1.0)
    assert np.linalg.eigvalsh(mapped @ mapped.T).min() >= -1e-12
    shift = np.ones(inputs)
    moved = RandomFourierFeatures(inputs, 2 * half, bandwidth=bandwidth, seed=seed)(rows + shift)
    np.testing.assert_allclose(moved @ moved.T, mapped @ mapped.T, atol=1e-9)  # the kernel knows differences only


def test_blocks_and_shapes_do_not_matter(monkeypatch):
    z = RandomFourierFeatures(4, 10, bandwidth=1.0, seed=3)
    rows = np.random.default_rng(1).normal(size=(3, 5, 4))
    whole = z(rows)
    assert whole.shape == (3, 5, 10)
    np.testing.assert_allclose(z(rows[1, 2]), whole[1, 2], atol=1e-12)
    monkeypatch.setattr("edpbrl_gym.features.maps._BLOCK_NUMBERS", 20)
    np.testing.assert_allclose(z(rows), whole, atol=1e-12)


def test_the_name_says_everything():
    first, again = (RandomFourierFeatures(4, 10, bandwidth=0.3, seed=3) for _ in range(2))
    rows = np.random.default_rng(1).normal(size=(3, 4))
    assert first.name == again.name
    np.testing.assert_array_equal(first(rows), again(rows))
    others = [
        RandomFourierFeatures(4, 12, bandwidth=0.3, seed=3),
        RandomFourierFeatures(4, 10, bandwidth=0.30000000000000004, seed=3),
        RandomFourierFeatures(4, 10, bandwidth=0.3, seed=4),
        WithLinear(first),
        WithLinear(first, 0.5),
    ]
    assert len({first.name, *(other.name for other in others)}) == 6
    assert isinstance(first, FeatureMap) and isinstance(others[3], FeatureMap)


def test_the_bandwidth_is_the_median_distance():
    rows = np.random.default_rng(5).normal(size=(50, 3))
    z = RandomFourierFeatures.from_rows(rows, 20, factor=0.5, seed=1)
    assert z.bandwidth == pytest.approx(0.5 * np.median(pdist(rows)))
    many = np.random.default_rng(5).normal(size=(4000, 3))
    assert RandomFourierFeatures.from_rows(many, 20).bandwidth == pytest.approx(np.median(pdist(many[:1500])), rel=0.05)


def test_a_sum_of_kernels_is_exact():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(6, 3))
    z = RandomFourierFeatures(3, 8, bandwidth=1.0)
    both = WithLinear(z, 0.7)
    mapped = both(rows)
    assert mapped.shape == (6, both.dimension) == (6, 11)
    np.testing.assert_allclose(mapped @ mapped.T, rows @ rows.T + 0.49 * z(rows) @ z(rows).T, atol=1e-12)
    nested = WithLinear(both)(rows)
    np.testing.assert_allclose(nested, np.concatenate([rows, mapped], axis=1))


def test_joined_actions_are_sums_or_tastes_of_each_action():
    rng = np.random.default_rng(3)
    rows, actions = rng.normal(size=(5, 3)), np.array([1, 0, 3, 3, 2])
    indicators = np.eye(4)[actions]
    state_taste, action_taste = rng.normal(size=3), rng.normal(size=4)
    sums = join_actions(rows, indicators, "concatenated")
    expected = rows @ state_taste + action_taste[actions]
    np.testing.assert_allclose(sums @ np.concatenate([state_taste, action_taste]), expected)
    tastes = rng.normal(size=(3, 4))
    products = join_actions(rows, indicators, "products")
    np.testing.assert_allclose(
        products @ tastes.ravel(), [row @ tastes[:, a] for row, a in zip(rows, actions, strict=True)]
    )
    assert not join_actions(rows, np.zeros((5, 4)), "products").any()  # no action yet
    with pytest.raises(ValueError, match="join"):
        join_actions(rows, indicators, "sums")


def test_a_mapped_encoder_maps_the_embeddings():
    encoder = CountingEncoder()
    z = WithLinear(RandomFourierFeatures(encoder.dimension, 6, bandwidth=0.5))
    mapped = MappedEncoder(encoder, z)
    assert isinstance(mapped, TextEncoder)
    texts = ["a red boat", "a blue house"]
    rows = mapped.encode(texts)
    assert rows.dtype == np.float32 and rows.shape == (2, mapped.dimension)
    np.testing.assert_allclose(rows, z(encoder.encode(texts)), atol=1e-6)
    assert mapped.fingerprint != encoder.fingerprint and z.name in mapped.name
    other = MappedEncoder(encoder, WithLinear(RandomFourierFeatures(encoder.dimension, 6, bandwidth=0.6)))
    assert other.fingerprint != mapped.fingerprint
    with pytest.raises(ValueError, match="Expected a map of"):
        MappedEncoder(encoder, RandomFourierFeatures(encoder.dimension + 1, 6, bandwidth=1.0))


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="Expected an even size"):
        RandomFourierFeatures(3, 7, bandwidth=1.0)
    with pytest.raises(ValueError, match="bandwidth"):
        RandomFourierFeatures(3, 8, bandwidth=0.0)
    with pytest.raises(ValueError, match="median distance is 0"):
        RandomFourierFeatures.from_rows(np.ones((5, 2)), 8)
    with pytest.raises(ValueError, match="at least 2 rows"):
        RandomFourierFeatures.from_rows(np.ones((1, 2)), 8)
    with pytest.raises(ValueError, match="weight"):
        WithLinear(RandomFourierFeatures(3, 8, bandwidth=1.0), 0.0)
    with pytest.raises(ValueError, match="Expected rows of 3 features"):
        map_rows(RandomFourierFeatures(3, 8, bandwidth=1.0), np.zeros((2, 4)))
    with pytest.raises(TypeError, match="Expected a feature map"):
        map_rows(np.cos, np.zeros((2, 4)))

    class Wrong:
        name, inputs, dimension = "wrong", 3, 5

        def __call__(self, rows):
            return rows

    with pytest.raises(ValueError, match="Expected wrong to give rows of 5 features"):
        map_rows(Wrong(), np.zeros((2, 3)))
