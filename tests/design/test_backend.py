"""The array backends: numpy and torch give the same designs, and torch's settings stay as they were."""

from __future__ import annotations

import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from edpbrl_gym.design import DesignProblem, make_criterion, newton, verify
from edpbrl_gym.design.metric import PriorMetric
from edpbrl_gym.design.solvers.newton.tokens.backend import (
    ArrayBackend,
    NumpyBackend,
    TorchBackend,
    _full_precision,
    make_backend,
)
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm
from edpbrl_gym.design.solvers.newton.tokens.layout import PromptLayout
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import prompt_problem, random_mdp_problem

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device on this machine"),
    ),
]


def embeddings(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    """Unit rows with a strong common mean, like those of a text encoder."""
    rng = np.random.default_rng(seed)
    rows = 2.0 * rng.standard_normal(dimension) + rng.standard_normal((count, dimension)) * np.linspace(
        2, 0.1, dimension
    )
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def embedded_problem(criterion: str, features: np.ndarray, sizes=(2500, 60, 300), **options) -> DesignProblem:
    target = None
    if criterion == "V":
        differences = (features[:4] - features[4:8]).astype(np.float64)
        target = differences.T @ differences
    settings = {"num_policies": 4, "episodes": 60, "regularization": 1.0} | options
    return DesignProblem(
        mdp=PromptMDP(sizes), features=features, criterion=make_criterion(criterion, target), **settings
    )


def assert_same(one, other) -> None:
    assert one.status == other.status == "converged"
    assert abs(one.value - other.value) <= 1e-6 * one.gain
    assert one.relative_gap <= 1e-6 and other.relative_gap <= 1e-6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("criterion", ["A", "V", "D"])
def test_torch_solves_like_numpy(criterion, device, tmp_path):
    """Several blocks, more than a chunk of tokens, float32 features from memory and from a read-only file."""
    features = embeddings(2860, 32)
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    expected = newton(embedded_problem(criterion, features))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (features, mapped):
            problem = embedded_problem(criterion, given)
            design = newton(problem, backend=f"torch:{device}")
            assert_same(expected, design)
    checked = verify(problem, design)
    assert checked.confirmed and checked.gap <= design.gap + 1e-9


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("criterion", ["A", "V", "D"])
def test_torch_solves_float64_features_and_a_full_prior_like_numpy(criterion, device):
    rng = np.random.default_rng(5)
    root = rng.standard_normal((5, 5))
    for options in ({}, {"prior_precision": root @ root.T + np.eye(5)}):
        problem = prompt_problem(criterion, seed=3, **options)
        assert_same(newton(problem), newton(problem, backend=TorchBackend(device)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["lower", "upper", "full", "low rank"])
@pytest.mark.parametrize("kept", [True, False])
def test_scores_are_the_quadratic_forms(kind, dtype, device, kept, monkeypatch):
    features = embeddings(2300, 24, seed=1)
    problem = embedded_problem("D", features, sizes=(2100, 200), regularization=2.0)
    layout = PromptLayout(problem)
    rng = np.random.default_rng(2)
    matrix = rng.standard_normal((24, 24))
    if kind == "low rank":
        form = ScoreForm(1.0, matrix[:5], -np.linspace(0.001, 0.01, 5))
        metric = np.eye(24) / 2.0 + matrix[:5].T @ np.diag(form.coefficients) @ matrix[:5]
    else:
        factor = {"lower": np.tril(matrix), "upper": np.triu(matrix), "full": matrix[:7]}[kind]
        form, metric = ScoreForm.of_factor(factor), factor.T @ factor
        assert form.triangle == (None if kind == "full" else kind)
    backend = TorchBackend(device)
    if not kept:  # rows are centred and moved to the device chunk by chunk
        monkeypatch.setattr(backend, "resident", lambda size, dtype: False)
    blocks = TokenBlocks(features, layout.rows, layout.scale, PriorMetric(problem), backend)
    means = 0.1 * rng.standard_normal((2, 24))
    centred = np.stack([blocks.centred(np.array([token]))[0] for token in (0, 2100)]) - features[[0, 2100]]
    exact = []
    for number, own in enumerate(layout.rows):
        rows = features[own].astype(np.float64) + centred[number] - means[number]
        exact.append(layout.scale[number] * np.einsum("nd,de,ne->n", rows, metric, rows))
    expected = np.concatenate(exact)
    tolerance = (3e-6 if dtype == np.float32 else 1e-12) * np.abs(expected).max()
    assert np.abs(blocks.scores(form, means, dtype) - expected).max() <= tolerance
    some = np.array([0, 7, 2099, 2100, 2299])
    assert np.abs(blocks.scores(form, means, dtype, some) - expected[some]).max() <= tolerance


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_go_to_the_device_and_back(device):
    rows = np.random.default_rng(0).standard_normal((40, 6))
    rows.setflags(write=False)
    for dtype in (np.float32, np.float64):
        backend = TorchBackend(device)
        native = backend.array(rows, np.dtype(dtype))
        returned = backend.numpy(native)
        assert returned.dtype == dtype
        np.testing.assert_array_equal(returned, rows.astype(dtype))
        assert backend.empty((3, 2), np.dtype(dtype)).dtype == native.dtype


@pytest.fixture
def torch_precision():
    """Torch's settings, as they were after the test."""
    yield torch.backends
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")


def settings() -> list[object]:
    found: list[object] = [torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision]
    for read in (lambda: torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision):
        try:
            found.append(read())
        except RuntimeError as error:  # torch refuses to read the older settings when the newer ones differ
            found.append(type(error))
    return found


@pytest.mark.parametrize("api", ["highest", "high", "medium", "allow_tf32", "generic", "cuda", "default"])
def test_products_have_all_digits_and_the_settings_stay(api, torch_precision):
    backends = torch_precision
    if api in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(api)
    elif api == "allow_tf32":
        backends.cuda.matmul.allow_tf32 = True
    elif api == "generic":
        backends.fp32_precision = "tf32"
    elif api == "cuda":
        backends.cuda.matmul.fp32_precision = "tf32"
    before = settings()
    with TorchBackend().full_precision():
        inside = settings()
        assert inside[0] in ("ieee", "none") and inside[1] in ("ieee", "none")
    assert settings() == before
    with pytest.raises(KeyError), TorchBackend().full_precision():
        raise KeyError
    assert settings() == before
    seen = []

    class Watched(TorchBackend):
        def factor_squares(self, rows, factor, triangle):
            seen.append(settings()[:2])
            return super().factor_squares(rows, factor, triangle)

    problem = embedded_problem("D", embeddings(2860, 32), regularization=1e-4)
    assert newton(problem, backend=Watched()).status == "converged"
    assert seen and all(value in ("ieee", "none") for pair in seen for value in pair)
    assert settings() == before


def test_the_older_settings_of_torch_serve_where_there_are_no_new_ones():
    log = []
    old = SimpleNamespace(
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace()), mkldnn=SimpleNamespace()),
        get_float32_matmul_precision=lambda: "high",
        set_float32_matmul_precision=log.append,
    )
    with _full_precision(old):
        assert log == ["highest"]
    assert log == ["highest", "high"]


def test_names_of_backends():
    assert isinstance(make_backend(), NumpyBackend) and isinstance(make_backend("numpy"), NumpyBackend)
    assert make_backend("torch").name == "torch:cpu"
    own = NumpyBackend()
    assert make_backend(own) is own
    for wrong in ("jax", "torch:", "numpy:cuda", "", 3):
        with pytest.raises(ValueError, match='backend "numpy", "torch"'):
            make_backend(wrong)
    for wrong in ("torch:mps", "torch:meta", "torch:gpu", "torch:cuda:x"):
        with pytest.raises(ValueError, match='"cpu", "cuda" or "cuda:1"'):
            make_backend(wrong)


def test_a_missing_torch_and_a_missing_device_are_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="finds none; check the driver with nvidia-smi"):
        newton(prompt_problem("D"), backend="torch:cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="one of the 1 CUDA devices .* 'cuda:1'"):
        make_backend("torch:cuda:1")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "edpbrl-gym\[text\]"'):
        make_backend("torch")


def test_a_cuda_device_keeps_what_fits(monkeypatch):
    backend = TorchBackend()
    monkeypatch.setattr(backend, "device", SimpleNamespace(type="cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * 2**30, 80 * 2**30))
    single, double = np.dtype(np.float32), np.dtype(np.float64)
    assert backend.resident(5 * 2**30, single) and not backend.resident(5 * 2**30 + 1, single)
    assert backend.resident(2**20, double) and not backend.resident(2**30, double)


def test_other_mdps_stay_with_numpy():
    problem = random_mdp_problem("D")
    assert newton(problem, backend="numpy", max_iterations=1).iterations == 1
    with pytest.raises(ValueError, match='backend "numpy" for a problem with a FiniteHorizonMDP'):
        newton(problem, backend="torch")


def test_an_array_backend_of_ones_own():
    calls = []

    class Counting(NumpyBackend):
        def array(self, values, dtype):
            calls.append(values.shape)
            return super().array(values, dtype)

    problem = prompt_problem("A", seed=1)
    assert_same(newton(problem), newton(problem, backend=Counting()))
    assert calls
    assert issubclass(Counting, ArrayBackend)


def test_numpy_needs_no_torch():
    code = (
        "import sys, numpy as np; from edpbrl_gym.design import DesignProblem, make_criterion, newton; "
        "from edpbrl_gym.mdp import PromptMDP; rows = np.random.default_rng(0).standard_normal((9, 3)); "
        "problem = DesignProblem(mdp=PromptMDP((4, 5)), features=rows, num_policies=2, episodes=5, "
        "criterion=make_criterion('D'), regularization=1.0); print(newton(problem).status, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["converged", "False"]
