"""Designs of many users at once beside one after the other: docs/personal-designs.md.

    python -m benchmarks.personal_designs [--users 1000] [--looped 40] [--seeds 101 102] [--dimensions 16 64]

Each user has answered 0 to 40 questions about four random tokens: the prior precision is I plus their information at
equal probabilities. All choose from the same 400 tokens, T = 10, H = 6, K = 4. "newton" makes a `DesignProblem` and
solves it for one user after the other, the first ones only; "numpy" and "torch" are `batch_designs` for all users.
Users per second of CPU time (of wall time with --wall); the solvers take turns, and the fastest of the repeats counts.
The three kinds of features: Gaussian, clustered with a decaying spectrum, and random tokens of the built-in vocabulary
under MiniLM, on their first principal directions. Set OMP_NUM_THREADS to the number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from benchmarks.common import make_parser, show, training_tokens
from edpbrl_gym._arrays import Floats
from edpbrl_gym.design import BatchDesigns, DesignProblem, batch_designs, make_criterion, newton
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.reporting.tables import TextTable

TOKENS, OPTIONS, EPISODES, HORIZON, MOST_ANSWERS = 400, 4, 10, 6, 40
KINDS = ("Gaussian", "clustered", "MiniLM")


def features_of(kind: str, dimension: int, rng: np.random.Generator) -> Floats:
    """Features (400, d) of unit mean square norm."""
    if kind == "MiniLM":
        embeddings = training_tokens()[2]
        rows = embeddings[rng.choice(len(embeddings), TOKENS, replace=False)].astype(np.float64)
        rows -= rows.mean(axis=0)
        rows = rows @ np.linalg.svd(rows, full_matrices=False)[2][:dimension].T
    else:
        rows = rng.standard_normal((TOKENS, dimension))
    if kind == "clustered":
        spread = np.arange(1, dimension + 1) ** -0.5
        rows = (rng.standard_normal((20, dimension))[rng.integers(20, size=TOKENS)] + 0.7 * rows) * spread
    return np.asarray(rows / np.sqrt((rows**2).sum(axis=1).mean()))


def priors_of(features: Floats, users: int, rng: np.random.Generator) -> Floats:
    """Prior precisions (U, d, d): I and the information of the answers so far."""
    dimension = features.shape[1]
    result = np.tile(np.eye(dimension), (users, 1, 1))
    for prior in result:
        options = features[rng.integers(TOKENS, size=(rng.integers(MOST_ANSWERS + 1), OPTIONS))]
        centred = (options - options.mean(axis=1, keepdims=True)).reshape(-1, dimension)
        prior += centred.T @ centred / OPTIONS
    return result


def measure(
    kind: str, dimension: int, criterion: str, tolerance: float, seed: int, arguments: Any
) -> dict[str, float | str]:
    """Users per second of the three ways, and the worst certificate of the two batches."""
    rng = np.random.default_rng(seed)
    features = features_of(kind, dimension, rng)
    priors = priors_of(features, arguments.users, rng)
    common: dict[str, Any] = {
        "mdp": PromptMDP.repeated(TOKENS, HORIZON),
        "features": features,
        "num_policies": OPTIONS,
        "episodes": EPISODES,
        "criterion": make_criterion(criterion),
    }
    batches: dict[str, BatchDesigns] = {}

    def looped() -> None:
        for prior in priors[: arguments.looped]:
            newton(DesignProblem(**common, prior_precision=prior), tolerance=tolerance)

    def batched(backend: str) -> Callable[[], None]:
        def solve() -> None:
            batches[backend] = batch_designs(**common, prior_precisions=priors, tolerance=tolerance, backend=backend)

        return solve

    clock = time.perf_counter if arguments.wall else time.process_time
    ways = {"newton": looped, "numpy": batched("numpy"), "torch": batched("torch")}
    seconds = dict.fromkeys(ways, np.inf)
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            begin = clock()
            way()
            seconds[name] = min(seconds[name], clock() - begin)
    rates = {name: (arguments.looped if name == "newton" else arguments.users) / seconds[name] for name in ways}
    return {
        **rates,
        "gap": max(float(batch.relative_gap.max()) for batch in batches.values()),
        "unconverged": sum(word != "converged" for batch in batches.values() for word in batch.status),
        "alone": sum(int(batch.alone.sum()) for batch in batches.values()),
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--users", type=int, default=1000, help="users of a batch (default 1000)")
    parser.add_argument("--looped", type=int, default=40, help="users solved for one after the other (default 40)")
    parser.add_argument("--repeats", type=int, default=2, help="timed rounds (default 2)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102], help="of the features and the priors")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[16, 64], help="numbers of features d")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, help="kinds of features")
    parser.add_argument("--wall", action="store_true", help="wall time in place of CPU time")
    arguments = parser.parse_args()
    for name in ("users", "looped", "repeats"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name}: expected at least 1, got {getattr(arguments, name)}")
    texts = []
    cases = product(arguments.kinds, arguments.dimensions, ("D", "A"), (1e-3, 1e-6))
    for kind, dimension, criterion, tolerance in cases:
        rows = [measure(kind, dimension, criterion, tolerance, seed, arguments) for seed in arguments.seeds]
        texts.append(
            [kind, str(dimension), criterion, f"{tolerance:g}"]
            + [" / ".join(f"{row[name]:,.0f}" for row in rows) for name in ("newton", "numpy", "torch")]
            + [
                " / ".join(f"{float(row[name]) / float(row['newton']):.1f}" for row in rows)
                for name in ("numpy", "torch")
            ]
            + [f"{max(float(row['gap']) for row in rows):.2g}"]
            + [str(sum(int(row[name]) for row in rows)) for name in ("unconverged", "alone")]
        )
    header = ["features", "d", "criterion", "gap", "newton", "numpy", "torch", "numpy : newton", "torch : newton"]
    header += ["worst gap", "unconverged", "alone"]
    title = f"Users per second, fastest of {arguments.repeats}; seeds {arguments.seeds}"
    show(TextTable(title, header, texts, words=3), width=170)


if __name__ == "__main__":
    main()
