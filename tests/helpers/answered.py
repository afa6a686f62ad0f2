"""Comparisons with responses of every format, and whether two are the same."""

import numpy as np

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.likelihood import KINDS, Response

CHOICES = tuple(kind for kind in KINDS if kind != "rating")  # the others name options
START = np.datetime64("2026-01-01T00:00:00.123456")


def a_response(rng, kinds, num_options):
    kind = kinds[rng.integers(len(kinds))]
    if kind == "rating":
        return Response.rating(rng.integers(5, size=num_options).tolist())
    length = {"best": 1, "best_worst": 2, "ranking": num_options}.get(kind, 0)
    if kind == "partial":
        length = 1 + int(rng.integers(num_options))
    return Response(kind, tuple(int(option) for option in rng.permutation(num_options)[:length]))


def comparisons(n=6, num_options=3, d=4, seed=0, kinds=CHOICES, **changes):
    rng = np.random.default_rng(seed)
    values = dict(
        features=rng.normal(size=(n, num_options, d)).astype(np.float32),
        responses=tuple(a_response(rng, kinds, num_options) for _ in range(n)),
        episode=np.arange(n) // 2,
        step=np.arange(n) % 2,
        texts=[[f"a café, {i}{k}" for k in range(num_options)] for i in range(n)],
        who="a user",
        answered_at=START + np.arange(n),
        metadata={"encoder": "minilm", "model": {"name": "ties", "nu": 0.5}},
    )
    return Comparisons(**(values | changes))


def assert_equal(first, second):
    for name in ("features", "episode", "step"):
        one, other = getattr(first, name), getattr(second, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    for name in ("responses", "texts", "who", "metadata"):
        assert getattr(first, name) == getattr(second, name)
    assert (first.answered_at is None) == (second.answered_at is None)
    if first.answered_at is not None:
        np.testing.assert_array_equal(first.answered_at, second.answered_at)
