"""The design problem: validation, priors, baselines, warnings (finding F5)."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.design import (
    DesignProblem,
    SingularInformationError,
    frank_wolfe,
    make_criterion,
    prior_balance,
    support_size,
    token_difference_matrix,
)
from edpbrl_gym.design.result import PRIOR_DOMINATED_SHARE
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import problem_of, prompt_problem, random_mdp_problem, random_rows


def options(**changes):
    mdp = PromptMDP([4, 4])
    features = np.random.default_rng(0).standard_normal((8, 3))
    base = {"mdp": mdp, "features": features, "num_policies": 2, "episodes": 5, "criterion": make_criterion("D")}
    return {**base, "regularization": 1.0, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_policies": 1}, r"num_policies \(K\) >= 2, got 1"),
        ({"episodes": 0}, r"episodes \(T\) >= 1, got 0"),
        ({"regularization": -1.0}, r"regularization \(lambda\) >= 0, got -1"),
        ({"regularization": np.nan}, r"finite regularization"),
        ({"features": np.ones((7, 3))}, r"MDP's 8 feature rows, got shape \(7, 3\)"),
        ({"features": np.ones(8)}, "features of shape"),
        ({"features": np.full((8, 3), np.nan)}, "finite features"),
        ({"regularization": None}, "got neither"),
        ({"prior_precision": np.eye(3)}, "got both"),
        ({"regularization": None, "prior_precision": np.eye(4)}, r"prior_precision of shape \(3, 3\)"),
        ({"regularization": None, "prior_precision": -np.eye(3)}, "positive semidefinite prior_precision"),
        ({"regularization": None, "prior_precision": np.triu(np.ones((3, 3)))}, "symmetric prior_precision"),
        ({"criterion": make_criterion("V", np.eye(4))}, "dimension of the criterion's target, 4, got 3"),
        ({"mdp": "prompt"}, "FiniteHorizonMDP, got str"),
        ({"criterion": "D"}, r'make_criterion\("D"\)'),
        ({"num_policies": 2.5}, "num_policies"),
    ],
)
def test_bad_values_are_named(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DesignProblem(**options(**changes))


def test_rows_are_checked_and_features_are_locked():
    problem = DesignProblem(**options())
    with pytest.raises(ValueError, match=r"mean_rows of shape \(H, N\) = \(2, 8\), got \(2, 7\)"):
        problem.objective(np.ones((2, 7)))
    with pytest.raises(ValueError, match="read-only"):
        problem.features[0] = 0.0


def test_no_prior_is_accepted_only_with_regular_data():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = DesignProblem(**options(regularization=0.0))
        assert problem.baseline == -np.inf
        design = frank_wolfe(problem, max_iterations=500, tolerance=1e-3, variant="pairwise")
    assert design.status == "converged" and design.gain == np.inf
    assert design.relative_gap == pytest.approx(design.gap / 3)
    flat = np.random.default_rng(0).standard_normal((8, 3))
    flat[:, 2] = 1.0  # the same for all tokens: no comparison informs about it
    with pytest.raises(SingularInformationError, match="span 2 of 3 dimensions; use a regularization > 0"):
        DesignProblem(**options(regularization=0.0, features=flat))


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_prior_precision_generalises_regularization(criterion):
    one = prompt_problem(criterion, regularization=3.0)
    other = prompt_problem(criterion, prior_precision=3.0 * np.eye(5))
    rows = random_rows(one.mdp, np.random.default_rng(0))
    assert one.objective(rows) == pytest.approx(other.objective(rows), rel=1e-13)
    assert one.baseline == pytest.approx(other.baseline, rel=1e-13)
    np.testing.assert_allclose(one.gradient(rows), other.gradient(rows), rtol=1e-12)
    assert one.fingerprint == other.fingerprint
    expected = {"D": 5 * np.log(3), "A": -5 / 3, "V": -np.trace(getattr(one.criterion, "matrix", np.eye(5))) / 3}
    assert one.baseline == pytest.approx(expected[criterion], rel=1e-12)


def test_the_fingerprint_notices_every_change():
    base = prompt_problem("V")
    others = [
        prompt_problem("D"),
        prompt_problem("V", seed=1),
        prompt_problem("V", episodes=61),
        prompt_problem("V", num_policies=3),
        prompt_problem("V", regularization=1.5),
        prompt_problem("V", sizes=(12, 10, 9)),
        random_mdp_problem("V"),
    ]
    assert prompt_problem("V").fingerprint == base.fingerprint
    assert len({problem.fingerprint for problem in [base, *others]}) == len(others) + 1


def skewed_prompt(criterion: str, regularization: float) -> DesignProblem:
    mdp = PromptMDP([40] * 6)
    features = np.random.default_rng(0).standard_normal((240, 48)) * np.arange(1, 49) ** -0.75 + 0.3
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    groups = [np.arange(40 * step, 40 * step + 40) for step in range(1, 6)]
    target = token_difference_matrix(features, groups) if criterion == "V" else None
    return DesignProblem(
        mdp=mdp,
        features=features,
        num_policies=4,
        episodes=60,
        regularization=regularization,
        criterion=make_criterion(criterion, target),
    )


def test_a_dominating_prior_is_reported():
    """F5: lambda = 100 with unit-norm features and T = 60 against a small lambda."""
    size = {"sizes": (40,) * 6, "dimension": 48}
    dominated = frank_wolfe(prompt_problem("D", regularization=100.0, **size))
    (message,) = [text for text in dominated.warnings if text.startswith("prior-dominated")]
    assert "360 questions" in message
    assert "prior precision is 100 a dimension" in message
    assert message in dominated.summary()
    assert frank_wolfe(prompt_problem("D", **size)).warnings == ()


def test_few_tokens_in_many_dimensions_are_no_dominating_prior():
    """Six steps of two tokens can tell six directions apart, whatever the dimension: these are what counts."""
    small = prompt_problem("D", sizes=(2,) * 6, dimension=60, regularization=1.0)
    design = frank_wolfe(replace(small, episodes=10))
    balance = prior_balance(design.problem, design.mean_rows)
    assert balance.share < PRIOR_DOMINATED_SHARE < balance.learned / 6
    assert design.warnings == ()
    (message,) = frank_wolfe(replace(small, episodes=10, regularization=1000.0)).warnings
    assert "of the 6 directions that these options can tell apart" in message and "adaptive planner" in message


def test_a_collapsed_support_is_reported():
    """F5: the V-design under a dominating prior shows few tokens again and again.

    The features have what embeddings have: a common mean and a decaying spectrum.
    """
    problem = skewed_prompt("V", 100.0)
    design = frank_wolfe(problem, variant="pairwise", max_iterations=300)
    kinds = [text.split(":")[0] for text in design.warnings]
    assert kinds == ["prior-dominated", "collapsed support"]
    assert "in 240 draws a step" in design.warnings[1]
    spread = frank_wolfe(skewed_prompt("D", 1.0), variant="pairwise", max_iterations=300)
    assert spread.warnings == ()
    few, many = (sum(support_size(problem, one.mean_rows).effective) for one in (design, spread))
    assert few < 0.3 * many


def test_prior_balance_and_support_size_are_the_definitions():
    problem = prompt_problem("D", regularization=2.0)
    rows = random_rows(problem.mdp, np.random.default_rng(0))
    rows[1] = 0.0
    rows[1, [12, 15, 17, 20]] = 0.25  # four equally likely tokens at step 1
    balance, size = prior_balance(problem, rows), support_size(problem, rows)
    data = problem.data_information(rows)
    eigenvalues = np.linalg.eigvalsh(data)
    assert balance.learned == pytest.approx((eigenvalues / (eigenvalues + 2.0)).sum(), rel=1e-10)
    assert balance.share == pytest.approx(balance.learned / 5)
    assert balance.data_per_dimension == pytest.approx(eigenvalues.mean()) and balance.prior_per_dimension == 2.0
    assert size.available == (12, 9, 10) and size.shown[1] == 4
    assert size.effective[1] == pytest.approx(4.0)
    without = problem_of(problem.mdp, "D", dimension=5, unit=True, regularization=0.0)
    assert prior_balance(without, rows).learned == pytest.approx(5.0)
