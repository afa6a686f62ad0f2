"""The benchmark of designs for many users: its problems and its rows."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest

from benchmarks.personal_designs import TOKENS, features_of, measure, priors_of


@pytest.mark.parametrize("kind", ["Gaussian", "clustered"])
def test_features_have_unit_size_and_priors_are_what_the_answers_say(kind):
    rng = np.random.default_rng(0)
    features = features_of(kind, 6, rng)
    assert features.shape == (TOKENS, 6)
    assert (features**2).sum(axis=1).mean() == pytest.approx(1.0)
    priors = priors_of(features, 20, rng)
    assert np.linalg.eigvalsh(priors).min() >= 1.0 - 1e-9
    assert len(np.unique(np.round(np.trace(priors, axis1=1, axis2=2), 6))) > 10


def test_a_row_has_the_rate_of_each_way_and_the_worst_certificate():
    row = measure("clustered", 4, "D", 1e-3, 0, Namespace(users=6, looped=2, repeats=1, wall=True))
    assert min(float(row[name]) for name in ("newton", "numpy", "torch")) > 0
    assert 0 < float(row["gap"]) <= 1e-3
    assert row["unconverged"] == 0
