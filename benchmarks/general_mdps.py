"""Time newton beside Frank-Wolfe on general MDPs: paths of a large random graph, policies of random stochastic MDPs.

    OMP_NUM_THREADS=1 python benchmarks/general_mdps.py [--criteria DAV] [--seconds 30] [--case graph] [--case local]

graph  5,000 states with 50 random successors each, 384 clustered unit features, H = 6, lambda = 100
mixing 300 states, 5 actions, every successor possible, 64 features, H = 6, lambda = 1
local  the same with 5 successors for each action, from one initial state: far more policies carry the optimum

Every solver stops at gap / gain 1e-6 or after --seconds, checked at the start of an iteration.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse

from edpbrl_gym.design import Design, DesignProblem, frank_wolfe, make_criterion, newton
from edpbrl_gym.mdp import FiniteHorizonMDP

CASES = ("graph", "mixing", "local")
SOLVERS = ("newton", "plain", "pairwise")


def graph(rng: np.random.Generator) -> tuple[FiniteHorizonMDP, np.ndarray, float]:
    states, degree, dimension = 5000, 50, 384
    spectrum = np.arange(1, dimension + 1) ** -0.5
    clusters = rng.standard_normal((100, dimension)) * spectrum
    features = 2 * rng.standard_normal(dimension) * spectrum + clusters[rng.integers(100, size=states)]
    features += 0.7 * rng.standard_normal((states, dimension)) * spectrum
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    successors = np.concatenate([rng.choice(states, degree, replace=False) for _ in range(states)])
    pairs = states * degree
    mdp = FiniteHorizonMDP(
        pair_state=np.repeat(np.arange(states), degree),
        pair_action=np.tile(np.arange(degree), states),
        transitions=sparse.csr_array((np.ones(pairs), (np.arange(pairs), successors)), shape=(pairs, states)),
        initial=np.eye(1, states)[0],
        horizon=6,
        allow_unreachable=True,
    )
    return mdp, features, 100.0


def stochastic(rng: np.random.Generator, *, local: bool) -> tuple[FiniteHorizonMDP, np.ndarray, float]:
    states, actions = 300, 5
    if local:
        transitions = np.zeros((states, actions, states))
        for pair in np.ndindex(states, actions):
            transitions[pair][rng.choice(states, 5, replace=False)] = rng.dirichlet(np.ones(5))
        initial = np.eye(1, states)[0]
    else:
        transitions = 0.98 * rng.dirichlet(np.full(states, 0.05), size=(states, actions)) + 0.02 / states
        initial = np.full(states, 1.0 / states)
    features = rng.standard_normal((states, 64))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return FiniteHorizonMDP.from_dense(transitions, initial, 6, allow_unreachable=True), features, 1.0


def solve(problem: DesignProblem, solver: str, seconds: float) -> tuple[Design, float]:
    begun = time.perf_counter()

    def late(_: object) -> bool:
        return time.perf_counter() - begun > seconds

    if solver == "newton":
        design = newton(problem, max_iterations=1000, callback=late)
    else:
        variant = "plain" if solver == "plain" else "pairwise"
        design = frank_wolfe(problem, max_iterations=100_000, tolerance=1e-6, callback=late, variant=variant)
    return design, time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES, help="repeat for several (default: all)")
    parser.add_argument("--criteria", default="DAV", help='letters of "DAV" (default all); V has rank 16')
    parser.add_argument("--seconds", type=float, default=30.0, help="limit for each solver (default 30)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.criteria or set(arguments.criteria) - set("DAV"):
        parser.error(f'--criteria: expected letters of "DAV", got {arguments.criteria!r}')

    table = Table(title=f"General MDPs, gap / gain 1e-6, at most {arguments.seconds:g} s")
    for name in ("case", "criterion", "solver", "status", "iterations", "oracle calls", "seconds", "gap / gain"):
        table.add_column(name, justify="left" if name in ("case", "criterion", "solver", "status") else "right")
    for case in arguments.case or CASES:
        rng = np.random.default_rng(arguments.seed)
        mdp, features, regularization = graph(rng) if case == "graph" else stochastic(rng, local=case == "local")
        target = rng.standard_normal((features.shape[1], 16))
        for criterion in arguments.criteria:
            problem = DesignProblem(
                mdp=mdp,
                features=features,
                num_policies=4,
                episodes=60,
                regularization=regularization,
                criterion=make_criterion(criterion, target @ target.T if criterion == "V" else None),
            )
            for solver in SOLVERS:
                design, seconds = solve(problem, solver, arguments.seconds)
                counts = (str(design.iterations), str(design.oracle_calls))
                numbers = (f"{seconds:.2f}", f"{design.relative_gap:.1e}")
                table.add_row(case, criterion, solver, design.status, *counts, *numbers)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
