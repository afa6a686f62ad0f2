"""What one question costs at the limits of scale: tokens, dimensions, options, steps, answers.

    OMP_NUM_THREADS=1 python -m benchmarks.limits    # the table of docs/security.md

Synthetic unit rows with a common mean and decaying variances, state feedback, the adaptive planner with its default
prior (`VocabularyPrior`), a user who takes the best option. "start" is prior and planner; "question" the median of
`ask` and `tell` of the last ten questions, "think" of what can be done while the person looks; "memory" the peak of the
process. Each row runs in a process of its own. CPU seconds of one thread.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

from benchmarks.common import make_parser
from benchmarks.solvers.measures import peak_memory

TYPICAL = {"tokens": 5_000, "dimension": 384, "options": 4, "steps": 6, "answers": 24}
CASES = (
    {},
    {"tokens": 20_000},
    {"tokens": 100_000},
    {"dimension": 768},
    {"dimension": 1536},
    {"dimension": 4096, "answers": 2},
    {"options": 9},
    {"options": 20},
    {"steps": 1},
    {"steps": 40},
    {"answers": 360},
    {"answers": 2_000},
)


def measure(tokens: int, dimension: int, options: int, steps: int, answers: int) -> str:
    """One row of the table."""
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.planners import AdaptivePlanner, TokenFeatures
    from edpbrl_gym.vocabulary import Vocabulary

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((tokens, dimension), dtype=np.float32)
    rows *= np.arange(1, dimension + 1, dtype=np.float32) ** -0.4
    rows += rng.standard_normal(dimension, dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    parts = np.array_split(np.arange(tokens), steps)
    names = Vocabulary(
        tuple(f"step {step}" for step in range(steps)), tuple(tuple(f"token {row}" for row in part) for part in parts)
    )
    taste = 20.0 * rows[1].astype(np.float64)

    begun = time.process_time()
    planner = AdaptivePlanner(
        names, options=TokenFeatures(names, rows), prior=VocabularyPrior(rows), num_options=options
    )
    start = time.process_time() - begun
    asking: list[float] = []
    thinking: list[float] = []
    prefixes = np.empty((options, 0), dtype=np.int64)
    for _ in range(answers + 1):
        begun = time.process_time()
        chosen = planner.ask(prefixes)
        asking.append(time.process_time() - begun)
        begun = time.process_time()
        planner.think()
        thinking.append(time.process_time() - begun)
        shown = rows[parts[prefixes.shape[1]][chosen]].astype(np.float64)
        planner.tell(shown[None], [int((shown @ taste).argmax())])
        prefixes = np.column_stack([prefixes, chosen]) if prefixes.shape[1] + 1 < steps else prefixes[:, :0]
    return (
        f"| {tokens:,} | {dimension:,} | {options} | {steps} | {answers:,} | {start:.1f} s | "
        f"{np.median(asking[-10:]) * 1e3:,.0f} ms | {max(asking) * 1e3:,.0f} ms | {max(thinking):.2f} s | "
        f"{peak_memory() / 2**20:,.0f} MB |"
    )


def main() -> None:
    """Print the table, a process for each row."""
    parser = make_parser(__doc__)
    parser.add_argument("--case", type=int, help="measure this row only")
    given = parser.parse_args()
    if given.case is not None:
        print(measure(**{**TYPICAL, **CASES[given.case]}))
        return
    print("| tokens V | d | K | steps H | answers | start | question | slowest | slowest think | memory |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in range(len(CASES)):
        command = [sys.executable, "-m", "benchmarks.limits", "--case", str(case)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


if __name__ == "__main__":
    main()
