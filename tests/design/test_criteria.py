"""Criteria against closed forms, finite differences and explicit difference rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.design import (
    CRITERIA,
    ACriterion,
    DCriterion,
    SingularInformationError,
    VCriterion,
    make_criterion,
    token_difference_matrix,
)


def positive_definite(rng: np.random.Generator, dimension: int) -> np.ndarray:
    root = rng.standard_normal((dimension, dimension + 2))
    return root @ root.T + 0.1 * np.eye(dimension)


def criteria(rng: np.random.Generator, dimension: int):
    root = rng.standard_normal((dimension, 3))  # rank 3: V may be singular
    return [DCriterion(), ACriterion(), VCriterion(root @ root.T)]


def test_values_are_the_definitions():
    rng = np.random.default_rng(0)
    matrix, target = positive_definite(rng, 5), positive_definite(rng, 5)
    inverse = np.linalg.inv(matrix)
    assert DCriterion().value(matrix) == pytest.approx(np.log(np.linalg.det(matrix)), rel=1e-12)
    assert ACriterion().value(matrix) == pytest.approx(-np.trace(inverse), rel=1e-12)
    assert VCriterion(target).value(matrix) == pytest.approx(-np.trace(target @ inverse), rel=1e-12)
    assert ACriterion().reciprocal(matrix) == pytest.approx(1 / np.trace(inverse), rel=1e-12)  # the paper's form
    assert VCriterion(target).reciprocal(matrix) == pytest.approx(1 / np.trace(target @ inverse), rel=1e-12)
    assert VCriterion(np.eye(5)).value(matrix) == pytest.approx(ACriterion().value(matrix), rel=1e-12)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=20)
def test_gradients_agree_with_finite_differences(seed):
    rng = np.random.default_rng(seed)
    matrix = positive_definite(rng, 5)
    direction = rng.standard_normal((5, 5))
    direction += direction.T
    direction /= np.linalg.norm(direction)
    step = 1e-4 * np.linalg.eigvalsh(matrix)[0]
    for criterion in criteria(rng, 5):
        value, gradient = criterion.evaluate(matrix)
        assert value == pytest.approx(criterion.value(matrix), rel=1e-12)
        np.testing.assert_allclose(gradient, criterion.gradient(matrix), rtol=1e-12, atol=1e-300)
        np.testing.assert_allclose(gradient, gradient.T, rtol=0, atol=1e-12 * np.abs(gradient).max())
        assert np.linalg.eigvalsh(gradient)[0] >= -1e-10 * np.abs(gradient).max()  # matrix-monotone
        # the fourth-order central difference
        values = [criterion.value(matrix + k * step * direction) for k in (-2, -1, 1, 2)]
        slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
        assert np.vdot(gradient, direction) == pytest.approx(slope, rel=1e-6, abs=1e-7 * np.linalg.norm(gradient))


@given(seed=st.integers(0, 10**6), weight=st.floats(0.01, 0.99))
@settings(max_examples=30)
def test_criteria_are_concave_and_monotone(seed, weight):
    rng = np.random.default_rng(seed)
    one, other = positive_definite(rng, 4), positive_definite(rng, 4)
    for criterion in criteria(rng, 4):
        mixed = criterion.value(weight * one + (1 - weight) * other)
        chord = weight * criterion.value(one) + (1 - weight) * criterion.value(other)
        assert mixed >= chord - 1e-9 * max(1.0, abs(chord))
        assert criterion.value(one + other) >= criterion.value(one) - 1e-12 * abs(criterion.value(one))


def test_difference_matrix_equals_its_explicit_rows():
    rng = np.random.default_rng(1)
    features = rng.standard_normal((15, 4)) + 3.0
    groups = [np.arange(0, 6), np.array([7, 9, 12, 14]), np.array([6])]  # the single token adds nothing
    rows = [features[i] - features[j] for group in groups for i, j in itertools.combinations(group, 2)]
    explicit = np.array(rows)
    np.testing.assert_allclose(token_difference_matrix(features, groups), explicit.T @ explicit, rtol=1e-12, atol=1e-12)


def test_efficiencies():
    rng = np.random.default_rng(2)
    matrix = positive_definite(rng, 4)
    for criterion in criteria(rng, 4):  # half the questions of the optimum: efficiency one half (no prior)
        best = criterion.value(2 * matrix)
        assert criterion.efficiency(criterion.value(matrix), best, 4) == pytest.approx(0.5, rel=1e-10)
        assert criterion.efficiency(best, best, 4) == 1.0
    assert ACriterion().efficiency(-2.0, 1.0, 4) == 0.0  # a useless bound certifies nothing


def test_a_singular_matrix_is_named():
    for matrix in (np.zeros((3, 3)), np.diag([1.0, 1.0, 0.0]), np.diag([1.0, 1.0, 1e-17]), -np.eye(3)):
        for criterion in criteria(np.random.default_rng(0), 3):
            for function in (criterion.value, criterion.gradient, criterion.evaluate):
                with pytest.raises(SingularInformationError, match="singular one of dimension 3.*regularization > 0"):
                    function(matrix)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_criterion("E"), "among A, V or V:FILE.npy, D.*, got 'E'"),
        (lambda: make_criterion(None), "among A, .*, got None"),
        (
            lambda: make_criterion("V"),
            "needs a matrix: give it as v_matrix, or as a file",
        ),
        (lambda: make_criterion("D", np.eye(2)), "takes no v_matrix"),
        (lambda: make_criterion("D:2"), "the criterion D as D, got 'D:2'"),
        (lambda: make_criterion("V:a.npy", np.eye(2)), "V:a.npy has its array from a file: .* once"),
        (lambda: VCriterion(np.ones((2, 3))), "square matrix"),
        (lambda: VCriterion(np.array([[1.0, 2.0], [0.0, 1.0]])), "symmetric v_matrix"),
        (lambda: VCriterion(np.diag([1.0, -1.0])), "positive semidefinite v_matrix"),
        (lambda: VCriterion(np.zeros((2, 2))), "not zero"),
        (lambda: VCriterion(np.full((2, 2), np.nan)), "finite v_matrix"),
        (lambda: VCriterion(np.eye(2)).value(np.eye(3)), "dimension of the criterion's target, 2, got 3"),
        (lambda: ACriterion().efficiency(0.0, -1.0, 2), "negative value"),
        (lambda: ACriterion().efficiency(0.5, -1.0, 2), "negative value"),
        (lambda: token_difference_matrix(np.eye(3), [[0], [1]]), "at least one group with two tokens"),
        (lambda: token_difference_matrix(np.eye(3), [[0, 3]]), r"groups\[0\] in 0..2, got 3"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_matrix_of_v_decides_its_fingerprint_and_cannot_be_changed():
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    one = VCriterion(matrix)
    assert one.fingerprint() == VCriterion(matrix.copy()).fingerprint() != VCriterion(2 * matrix).fingerprint()
    np.testing.assert_array_equal(one.matrix, matrix)
    with pytest.raises(ValueError, match="read-only"):
        one.matrix[0, 0] = 1.0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_what_rounding_loses_is_singular_at_any_scale(scale):
    d = 4
    lost = d * np.finfo(np.float64).eps
    for share, singular in ((0.25 * lost, True), (4 * lost, False)):
        information = scale * np.diag([1.0, 1.0, 1.0, share])
        if singular:
            with pytest.raises(SingularInformationError) as error:
                DCriterion().value(information)
            assert error.value.lost == pytest.approx(lost * scale)
        else:
            assert DCriterion().value(information) == pytest.approx(np.log(share) + d * np.log(scale))


def test_an_array_comes_from_a_file(tmp_path):
    target = tmp_path / "target.npy"
    np.save(target, np.diag([1.0, 2.0]).astype(np.float32))
    found = make_criterion(f"v:{target}")
    assert found.fingerprint() == VCriterion(np.diag([1.0, 2.0])).fingerprint()
    with pytest.raises(FileNotFoundError, match="missing.npy"):
        make_criterion(f"V:{tmp_path / 'missing.npy'}")
    (tmp_path / "text.npy").write_text("1 2")
    np.save(tmp_path / "vector.npy", np.ones(2))
    for name in ("text.npy", "vector.npy"):
        with pytest.raises(ValueError, match=rf"Expected a matrix, saved by numpy.save, for V:FILE.npy in .*{name}"):
            make_criterion(f"V:{tmp_path / name}")


def test_a_class_of_ones_own_by_its_import_string():
    path = "tests.helpers.design_cases:Root"
    assert make_criterion(path).value(np.diag([1.0, 4.0])) == -0.5
    with pytest.raises(ValueError, match=f"the criterion {path} as {path}, got"):
        make_criterion(f"{path}:2")
    with pytest.raises(ImportError, match="no 'Square'"):
        make_criterion("tests.helpers.design_cases:Square")
    with pytest.raises(
        TypeError, match="Expected a subclass of Criterion at tests.helpers.design_cases:make_criterion"
    ):
        make_criterion("tests.helpers.design_cases:make_criterion")


def test_every_form_is_that_of_its_criterion():
    """What faster code computes from the form is what the criterion's own value is, up to a constant."""
    rng = np.random.default_rng(3)
    root = rng.standard_normal((4, 4))
    arguments = {"phi": "phi:2", "V": ("V", root @ root.T), "c": ("c", root[0])}
    for name in CRITERIA:
        given = arguments.get(name, name)
        criterion = make_criterion(given) if isinstance(given, str) else make_criterion(*given)
        form, information = criterion.form, root @ root.T + np.eye(4)
        if form is None:
            continue
        target = form.target(4)
        if target is None:
            assert criterion.value(information) == pytest.approx(np.linalg.slogdet(information)[1])
        else:
            trace = np.trace(target.T @ np.linalg.solve(information, target))
            assert criterion.value(information) == pytest.approx(-trace)
