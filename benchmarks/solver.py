"""Time the design solvers on the built-in training vocabulary, one BLAS thread.

    OMP_NUM_THREADS=1 python benchmarks/solver.py

For the criteria D, A and V (the paper's token differences) and lambda = 100 and 1: working-set Newton to a gap of 1e-6
of the gain, and the gap of the paper's Frank-Wolfe after 100 iterations. The yardstick is one float32 product of the
features with a d x d matrix, the least that scoring every token once can cost.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from edpbrl_gym.design import DesignProblem, frank_wolfe, make_criterion, newton, token_difference_matrix, verify
from edpbrl_gym.features import load_encoder
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary import load_vocabulary


def yardstick(features: np.ndarray, repeats: int) -> float:
    """Median seconds of one float32 product of the features with a d x d matrix."""
    rows = features.astype(np.float32)
    matrix = np.eye(rows.shape[1], dtype=np.float32) + 0.1
    seconds = []
    for _ in range(10 * repeats):
        begun = time.perf_counter()
        rows @ matrix
        seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds))


def main() -> None:
    """Print one line for each criterion and lambda."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="solves of which the fastest counts (default: 3)")
    parser.add_argument("--iterations", type=int, default=100, help="Frank-Wolfe iterations (default: 100)")
    arguments = parser.parse_args()
    vocabulary, _ = load_vocabulary().split(seed=0)
    features = load_encoder("minilm").encode(list(vocabulary.all_tokens)).astype(np.float64)
    mdp = PromptMDP(vocabulary.sizes)
    groups = [np.arange(mdp.offsets[step], mdp.offsets[step + 1]) for step in range(1, mdp.horizon)]
    target = token_difference_matrix(features, groups)
    unit = yardstick(features, arguments.repeats)
    print(f"{len(features)} tokens x {features.shape[1]}, K = 4, T = 60; one float32 Phi G: {1e3 * unit:.1f} ms")
    for regularization in (100.0, 1.0):
        for name in ("D", "A", "V"):
            problem = DesignProblem(
                mdp=mdp,
                features=features,
                num_policies=4,
                episodes=60,
                criterion=make_criterion(name, target if name == "V" else None),
                regularization=regularization,
            )
            design = min((newton(problem) for _ in range(arguments.repeats)), key=lambda solved: solved.seconds)
            plain = frank_wolfe(problem, max_iterations=arguments.iterations, tolerance=0.0)
            confirmed = "confirmed" if verify(problem, design).confirmed else "NOT CONFIRMED by verify"
            print(
                f"{name}, lambda = {regularization:g}: newton {design.seconds:.2f} s = "
                f"{design.seconds / unit:.0f} x Phi G, "
                f"{design.iterations} iterations, gap {design.relative_gap:.1e} of the gain, {confirmed}; "
                f"frank_wolfe {plain.seconds:.2f} s, gap {plain.relative_gap:.1e} after {plain.iterations} iterations",
                flush=True,
            )


if __name__ == "__main__":
    main()
