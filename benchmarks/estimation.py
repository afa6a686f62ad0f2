"""Time and agreement of the estimate beside scikit-learn, statsmodels and scipy.optimize: docs/benchmarks.md.

    python -m benchmarks.estimation [--repeats 5]

Every solver gets the same answers (a noisy user at inverse temperature 5, random unit-norm features) and the same
ridge lambda = 1, except statsmodels, which has none: there the package runs at lambda = 1e-8 for the comparison. It has
its default tolerance, the others one that brings them near it (statsmodels stops at gradients of 1e-2 all the same). It
also returns the posterior's precision at the estimate, which scipy and scikit-learn do not. Times are medians after one
warm-up; set OMP_NUM_THREADS=1 for steady figures.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.common import make_parser, show
from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import estimate
from edpbrl_gym.likelihood.choice import choice_probabilities
from edpbrl_gym.reporting.tables import TextTable

SIZES = ((200, 4, 10), (660, 4, 384))
# ConditionalLogit sums over subsets by recursion and builds no Hessian of this size in reasonable time
STATSMODELS_LARGEST = 50


def problem(n: int, num_options: int, d: int, seed: int) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    options = rng.normal(size=(n, num_options, d))
    options /= np.linalg.norm(options, axis=-1, keepdims=True)
    theta = rng.normal(size=d)
    theta *= 5 / np.linalg.norm(theta)
    choices = (choice_probabilities(options, theta).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return options, choices


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


def clock(fit: Callable[[], Floats], repeats: int) -> tuple[float, Floats]:
    fit()
    seconds, found = [], np.zeros(0)
    for _ in range(repeats):
        start = time.perf_counter()
        found = fit()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), found


def compare(n: int, num_options: int, d: int, repeats: int, seed: int) -> list[dict[str, Any]]:
    options, choices = problem(n, num_options, d, seed)
    size = {"n": n, "K": num_options, "d": d}
    seconds, theta = clock(lambda: estimate((options, choices), regularization=1.0).theta, repeats)
    rows: list[dict[str, Any]] = [size | {"solver": "edpbrl_gym", "lambda": 1.0, "seconds": seconds}]

    def add(solver: str, ridge: float, fit: Callable[[], Floats], reference: Floats, repeats: int) -> None:
        seconds, found = clock(fit, repeats)
        difference = float(np.abs(found - reference).max())
        rows.append(size | {"solver": solver, "lambda": ridge, "seconds": seconds, "difference": difference})

    add("scipy L-BFGS-B", 1.0, lambda: by_scipy(options, choices, 1.0), theta, repeats)
    if num_options == 2:
        for solver in ("lbfgs", "newton-cholesky"):
            name = f"scikit-learn {solver}"
            add(name, 1.0, lambda solver=solver: by_sklearn(options, choices, 1.0, solver), theta, repeats)  # type: ignore[misc]
    if d <= STATSMODELS_LARGEST:
        plain = estimate((options, choices), regularization=1e-8).theta
        add("statsmodels", 0.0, lambda: by_statsmodels(options, choices), plain, min(repeats, 3))
    else:
        note = f"skipped (no ridge, slow above d = {STATSMODELS_LARGEST})"
        rows.append(size | {"solver": "statsmodels", "note": note})
    return rows


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="timed fits of every solver (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the answers (default 0)")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error(f"--repeats: expected at least 1, got {arguments.repeats}")

    rows = []
    for n, num_options, d in [*SIZES, *((n, 2, d) for n, _, d in SIZES)]:
        rows += compare(n, num_options, d, arguments.repeats, arguments.seed)
    texts = []
    for row in rows:
        last = row.get("note") or (f"{row['difference']:.1e}" if "difference" in row else "")
        milliseconds = f"{1e3 * row['seconds']:.2f}" if "seconds" in row else ""
        size = f"{row['n']} x {row['K']} x {row['d']}"
        texts.append([size, row["solver"], str(row.get("lambda", "")), milliseconds, last])
    header = ("n x K x d", "solver", "lambda", "ms", "max difference to edpbrl_gym")
    show(TextTable(f"Estimates, median of {arguments.repeats} fits", header, texts))


if __name__ == "__main__":
    main()
