"""Exact designs: efficiency against the certified bounds, and the gain over K identical policies.

    OMP_NUM_THREADS=1 python -m benchmarks.exact_designs                                 # about two minutes
    OMP_NUM_THREADS=1 python -m benchmarks.exact_designs --page docs/exact-designs.md    # and put the tables there

vocabulary  the training part of the built-in vocabulary, 3,869 tokens in six steps, MiniLM features (d = 384)
tabular     a stochastic MDP of 60 states, 4 actions with 3 successors each, 16 unit features, H = 6

T = 60 episodes, criteria D, A and V, lambda = 1 and 100, K = 2 and 4. V is the paper's target on the vocabulary (token
differences within a category, the bases left out), all differences of states on the tabular MDP.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.common import make_parser, training_tokens
from edpbrl_gym.design import DesignProblem, ExactDesign, exact_design, make_criterion, token_difference_matrix
from edpbrl_gym.design.result import certified
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP

CASES = ("vocabulary", "tabular")
EPISODES = 60
HEADER = (
    *("criterion", "lambda", "K", "identical: efficiency", "exact: efficiency", "efficiency bound, independent draws"),
    *("certified share of that bound", "gain over identical", "questions saved", "questions saved, upper bound"),
    *("best start", "seconds"),
)


def vocabulary() -> tuple[FiniteHorizonMDP, np.ndarray, np.ndarray]:
    """MDP, features and target V of the built-in vocabulary's training part."""
    tokens, _, features = training_tokens()
    mdp = PromptMDP(tokens.sizes)
    steps = [mdp.step_pairs(step) for step in range(1, mdp.horizon)]
    return mdp, features, token_difference_matrix(features, [np.arange(step.start, step.stop) for step in steps])


def tabular(seed: int = 1000) -> tuple[FiniteHorizonMDP, np.ndarray, np.ndarray]:
    """MDP, features and target V of a random stochastic MDP."""
    rng = np.random.default_rng(seed)
    states, actions, dimension = 60, 4, 16
    transitions = np.zeros((states, actions, states))
    for pair in np.ndindex(states, actions):
        transitions[pair][rng.choice(states, 3, replace=False)] = rng.dirichlet(np.ones(3))
    features = rng.standard_normal((states, dimension))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    initial = np.full(states, 1.0 / states)
    mdp = FiniteHorizonMDP.from_dense(transitions, initial, 6, allow_unreachable=True)
    return mdp, features, token_difference_matrix(features, [np.arange(states)])


def row(found: ExactDesign, seconds: float) -> list[str]:
    """One line of the table."""
    problem = found.design.problem
    criterion, dimension = problem.criterion, problem.dimension
    best = max(found.starts, key=lambda start: start.value).name
    return [
        criterion.name,
        f"{problem.regularization:g}",
        str(problem.num_policies),
        certified(criterion.efficiency(found.identical_value, found.upper_bound, dimension)),
        certified(found.efficiency),
        f"{criterion.efficiency(found.independent_bound, found.upper_bound, dimension):.2%}",
        certified(found.independent_efficiency),
        f"{found.gain_over_identical:.4f}",
        f"{found.questions_saved:.1%}",
        f"{found.most_questions_saved:.1%}",
        best,
        f"{seconds:.1f}",
    ]


def table(case: str, criteria: str, seed: int) -> list[str]:
    """Solve all problems of a case; the lines of a Markdown table."""
    mdp, features, target = vocabulary() if case == "vocabulary" else tabular()
    lines = [f"| {' | '.join(HEADER)} |", "|---|" + "---:|" * (len(HEADER) - 3) + "---|---:|"]
    print(f"\n{case}\n" + "\n".join(lines), flush=True)
    for criterion in criteria:
        for regularization in (1.0, 100.0):
            for count in (2, 4):
                problem = DesignProblem(
                    mdp=mdp,
                    features=features,
                    num_policies=count,
                    episodes=EPISODES,
                    criterion=make_criterion(criterion, target if criterion == "V" else None),
                    regularization=regularization,
                )
                begun = time.perf_counter()
                found = exact_design(problem, seed=seed)
                lines.append(f"| {' | '.join(row(found, time.perf_counter() - begun))} |")
                print(lines[-1], flush=True)
    return lines


def put(page: Path, case: str, lines: list[str]) -> None:
    """Replace the table between the marks of a case."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {case} -->\n", f"<!-- end {case} -->"
    if begin not in text or end not in text:
        raise SystemExit(f"Expected {page} to have the marks {begin.strip()} and {end}.")
    head, rest = text.split(begin)
    page.write_text(head + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1], encoding="utf-8")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--case", action="append", choices=CASES, help="repeat for several (default: all)")
    parser.add_argument("--criteria", default="DAV", help='letters of "DAV" (default all)')
    parser.add_argument("--page", type=Path, help="Markdown page whose tables to replace")
    parser.add_argument("--seed", type=int, default=1000)
    arguments = parser.parse_args()
    if not arguments.criteria or set(arguments.criteria) - set("DAV"):
        parser.error(f'--criteria: expected letters of "DAV", got {arguments.criteria!r}')
    for case in arguments.case or CASES:
        lines = table(case, arguments.criteria, arguments.seed)
        if arguments.page is not None:
            put(arguments.page, case, lines)


if __name__ == "__main__":
    main()
