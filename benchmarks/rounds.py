"""Does `newton` choose well between working sets that grow round by round and all tokens at once? docs/performance.md.

    OMP_NUM_THREADS=1 python -m benchmarks.rounds                 # about three minutes
    python -m benchmarks.rounds --tokens 2000 --dimension 256 --seed 11

One vocabulary of synthetic features (benchmarks/solvers/vocabularies.py) for six steps, K = 4, T = 60. CPU time of
`newton` to a gap of 1e-6 of the gain, the faster of two runs, with its own choice (`newton/tokens/choice.py`) and with
either way forced on it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

from benchmarks.common import make_parser, newton_seconds, six_steps
from benchmarks.solvers.vocabularies import prepare
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.reporting.tables import TextTable

COSTS = import_module("edpbrl_gym.design.solvers.newton.tokens.costs")
KINDS = ("clip", "decaying", "clustered", "heavy-tailed", "isotropic")
REPEATS = 2
FORCED = {"round by round": float("inf"), "at once": 0.0}  # what all tokens at once are said to cost


def main() -> None:
    """Print the table, and how much longer the choice takes than the better way."""
    parser = make_parser(__doc__)
    parser.add_argument("--tokens", type=int, default=5000, help="of the vocabulary")
    parser.add_argument("--dimension", type=int, default=384, help="of the features")
    parser.add_argument("--seed", type=int, default=10, help="of the features")
    given = parser.parse_args()
    rows, ratios = [], []
    with one_blas_thread(), TemporaryDirectory() as folder:
        for kind in KINDS:
            features = np.array(prepare(kind, given.tokens, given.dimension, 1, given.seed, Path(folder)).features)
            for regularization in (100.0, 1.0):
                for criterion in ("D", "A"):
                    problem = six_steps(features, criterion, regularization)
                    chosen, forced = newton_seconds(problem, REPEATS), []
                    for cost in FORCED.values():
                        with patch.object(COSTS.Rounds, "at_once", lambda self, cost=cost: cost):
                            forced.append(newton_seconds(problem, REPEATS))
                    ratios.append(chosen / min(forced))
                    name = f"{kind}, {criterion}, lambda = {regularization:g}"
                    rows.append((name, *(f"{1e3 * one:.0f} ms" for one in (chosen, *forced))))
    print("\n".join(TextTable("", ("problem", "chosen", *FORCED), rows, words=1).markdown()))
    mean, largest = np.exp(np.mean(np.log(ratios))), max(ratios)
    print(f"\nOf the better way's time the choice takes {mean:.2f} (geometric mean), {largest:.2f} at most.")


if __name__ == "__main__":
    main()
