"""What rounding rows of equal length makes of an easy problem: docs/performance.md.

    OMP_NUM_THREADS=1 python -m benchmarks.rounded_rows    # seconds

Isotropic rows of unit norm, one vocabulary for six steps, D, lambda = 1: any weights whose first and second moments are
those of the optimum are optimal. Rounded to float16 the lengths differ, and among these weights the longest rows are
best: to first order a linear program, with an equation for every moment and the mass. Below are the CPU times of
`newton` (gap 1e-6 of the gain) on the rows, on the rounded rows, on these without the central path, and that of HiGHS
on the linear program alone, its moments given.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
from scipy.optimize import linprog

from benchmarks.common import make_parser, newton_seconds, six_steps
from benchmarks.solvers.vocabularies import prepare
from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.design import newton
from edpbrl_gym.design.solvers.newton.tokens import choice
from edpbrl_gym.reporting.tables import TextTable

TOKENS, DIMENSION = 3_000, 20


def linear_program(rows: Floats, rounded: Floats, weights: Floats) -> tuple[int, float]:
    """Pivots and CPU time of the dual simplex method for the longest rounded rows with given moments."""
    first, second = np.triu_indices(rows.shape[1])
    moments = np.concatenate([rows[:, first] * rows[:, second], rows, np.ones((len(rows), 1))], axis=1).T
    longer = (rounded**2).sum(axis=1) - (rows**2).sum(axis=1)
    begun = time.process_time()
    solved = linprog(-longer / longer.std(), A_eq=moments, b_eq=moments @ weights, method="highs-ds")
    if not solved.success:
        raise RuntimeError(f"Expected an optimal linear program, got: {solved.message}")
    return int(solved.nit), time.process_time() - begun


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[12, 13, 14], help="of the rows")
    lines = []
    with one_blas_thread(), TemporaryDirectory() as folder:
        for seed in parser.parse_args().seeds:
            plain, rounded = (
                np.array(prepare(source, TOKENS, DIMENSION, 1, seed, Path(folder)).features)
                for source in ("isotropic", "isotropic+float16")
            )
            weights = newton(six_steps(plain, "D")).mean_occupancy[0]
            pivots, seconds = linear_program(plain.astype(float), rounded.astype(float), weights / weights.sum())
            times = [newton_seconds(six_steps(rows, "D"), 3) for rows in (plain, rounded)]
            with patch.object(choice, "central_path_cost", lambda *_: np.inf):
                times.append(newton_seconds(six_steps(rounded, "D"), 3))
            lines.append(
                (str(seed), *(f"{1e3 * one:.0f} ms" for one in times), f"{1e3 * seconds:.0f} ms", f"{pivots:,}")
            )
    header = ("seed", "`newton`, unrounded", "rounded", "by working sets", "HiGHS on the linear program", "its pivots")
    print("\n".join(TextTable("", header, lines, words=1).markdown()))


if __name__ == "__main__":
    main()
