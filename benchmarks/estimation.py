"""Time and accuracy of the estimate beside scikit-learn, statsmodels and scipy.optimize: docs/benchmarks.md.

    python -m benchmarks.estimation [--repeats 15]

Every solver gets the same answers of a noisy user and the same ridge lambda = 1, except statsmodels, which has none:
there the package runs at lambda = 1e-8 for the comparison. Features are isotropic (random, of unit norm), or clustered
with a decaying spectrum as text embeddings have it. The package has its default tolerance, the others one that brings
them near it; the norms of the gradients say how near (statsmodels stops at 1e-2 all the same). "precision read" is the
estimate and the posterior's precision, which is computed when it is read; scipy and scikit-learn give none.

CPU time; the solvers take turns, and the fastest of the repeats counts. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.common import clustered_items, make_parser, show
from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import Estimate, estimate
from edpbrl_gym.likelihood.choice import choice_probabilities, score
from edpbrl_gym.reporting.tables import TextTable

CASES = (
    ("isotropic", 20, 4, 384),
    ("isotropic", 200, 4, 10),
    ("isotropic", 660, 4, 384),
    ("clustered", 660, 4, 384),
    ("isotropic", 200, 2, 10),
    ("isotropic", 660, 2, 384),
)
# ConditionalLogit sums over subsets by recursion and builds no Hessian of this size in reasonable time
STATSMODELS_LARGEST = 50
OURS = "edpbrl_gym"


def problem(kind: str, n: int, num_options: int, d: int, seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """Options (n, K, d) and the choices of a user at inverse temperature 5."""
    rng = np.random.default_rng(seed)
    if kind == "isotropic":
        options = rng.normal(size=(n, num_options, d))
        options /= np.linalg.norm(options, axis=-1, keepdims=True)
    else:
        options = clustered_items(5000, d)[rng.integers(5000, size=(n, num_options))]
    theta = rng.normal(size=d)
    theta *= 5 / np.linalg.norm(theta)
    choices = (choice_probabilities(options, theta).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return options, np.minimum(choices, num_options - 1)


def by_scipy(options: Floats, choices: NDArray[np.int64], ridge: float) -> Floats:
    rows = options.reshape(-1, options.shape[2])
    chosen = options[np.arange(len(choices)), choices].sum(axis=0)

    def objective(theta: Floats) -> tuple[float, Floats]:
        values = (rows @ theta).reshape(options.shape[:2])
        shift = values.max(axis=1, keepdims=True)
        weights = np.exp(values - shift)
        total = weights.sum(axis=1, keepdims=True)
        loss = float((np.log(total) + shift).sum() - chosen @ theta + 0.5 * ridge * theta @ theta)
        return loss, (weights / total).ravel() @ rows - chosen + ridge * theta

    settings = {"ftol": 1e-15, "gtol": 1e-8, "maxiter": 5000, "maxfun": 10_000}
    return np.asarray(minimize(objective, np.zeros(len(chosen)), jac=True, method="L-BFGS-B", options=settings).x)


def by_sklearn(options: Floats, choices: NDArray[np.int64], ridge: float, solver: str) -> Floats:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / ridge, fit_intercept=False, solver=solver, tol=1e-10, max_iter=5000)
    return np.asarray(model.fit(options[:, 1] - options[:, 0], choices).coef_[0])


def by_statsmodels(options: Floats, choices: NDArray[np.int64]) -> Floats:
    from statsmodels.discrete.conditional_models import ConditionalLogit

    n, num_options, d = options.shape
    chosen = np.zeros((n, num_options))
    chosen[np.arange(n), choices] = 1
    groups = np.repeat(np.arange(n), num_options)
    model = ConditionalLogit(chosen.ravel(), options.reshape(-1, d), groups=groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(model.fit(method="bfgs", disp=False, gtol=1e-9, maxiter=1000).params)


def clock(fits: dict[str, Callable[[], Floats]], repeats: int) -> dict[str, tuple[float, Floats]]:
    """Seconds and the estimate of each fit: the fastest of some that take turns, after a warm-up."""
    found = {name: (np.inf, fit()) for name, fit in fits.items()}
    for _ in range(repeats):
        for name, fit in fits.items():
            start = time.process_time()
            theta = fit()
            found[name] = min(found[name][0], time.process_time() - start), theta
    return found


def compare(kind: str, n: int, num_options: int, d: int, repeats: int, seed: int) -> list[dict[str, Any]]:
    options, choices = problem(kind, n, num_options, d, seed)
    data = (options, choices)
    fits: dict[str, Callable[[], Floats]] = {
        OURS: lambda: estimate(data, regularization=1.0).theta,
        f"{OURS}, precision read": lambda: with_precision(estimate(data, regularization=1.0)),
        "scipy L-BFGS-B": lambda: by_scipy(options, choices, 1.0),
    }
    if num_options == 2:
        fits["scikit-learn lbfgs"] = lambda: by_sklearn(options, choices, 1.0, "lbfgs")
        fits["scikit-learn newton-cholesky"] = lambda: by_sklearn(options, choices, 1.0, "newton-cholesky")
    found = {name: (*result, 1.0) for name, result in clock(fits, repeats).items()}
    if d <= STATSMODELS_LARGEST:
        only = clock({"statsmodels": lambda: by_statsmodels(options, choices)}, min(repeats, 3))
        found["statsmodels"] = *only["statsmodels"], 0.0
    reference = {1.0: found[OURS][1], 0.0: estimate(data, regularization=1e-8).theta}
    return [
        {
            "case": f"{kind}, {n} x {num_options} x {d}",
            "solver": name,
            "lambda": ridge,
            "seconds": seconds,
            "ratio": seconds / found["scipy L-BFGS-B"][0],
            "gradient": float(np.linalg.norm(score(options, choices, theta) - ridge * theta)),
            "difference": float(np.abs(theta - reference[ridge]).max()),
        }
        for name, (seconds, theta, ridge) in found.items()
    ]


def with_precision(found: Estimate) -> Floats:
    _ = found.precision
    return found.theta


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="timed fits of every solver (default 15)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the answers (default 0)")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"--repeats: expected at least 1, got {arguments.repeats}")
    rows = [row for case in CASES for row in compare(*case, arguments.repeats, arguments.seed)]
    texts = [
        [
            row["case"], row["solver"], str(row["lambda"]), f"{1e3 * row['seconds']:.2f}", f"{row['ratio']:.2f}",
            f"{row['gradient']:.0e}", f"{row['difference']:.0e}",
        ]
        for row in rows
    ]  # fmt: skip
    header = ("n x K x d", "solver", "lambda", "ms", "of scipy's", "|gradient|", f"max difference to {OURS}")
    show(TextTable(f"Estimates, fastest of {arguments.repeats} fits", header, texts))


if __name__ == "__main__":
    main()
