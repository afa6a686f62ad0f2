"""What a solution by `newton` on large supports consists of, counted: docs/performance.md.

    OMP_NUM_THREADS=1 python -m benchmarks.operations    # about three minutes

Multiplications in the large products of a run, in units of one product Phi G (n d^2), by kind and precision; symmetric
and triangular products need half of n d^2, and float64 takes twice as long. "Products" are those with a Hessian that is
not stored. What is left out are factors of d x d matrices, products with a stored Hessian, projections, passes over the
rows that multiply little, and the certificate. Synthetic features (benchmarks/solvers/vocabularies.py),
lambda = 1, gap 1e-6 of the gain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common import make_parser
from benchmarks.solvers.cases import Case, Instance
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.design import newton
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.curvature import ImplicitCurvature, MatrixCurvature
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace
from edpbrl_gym.design.solvers.newton.tokens.forms import ScoreForm
from edpbrl_gym.reporting.tables import TextTable

CASES = (
    ("decaying", 5_000, 384, "D"),
    ("decaying", 5_000, 384, "A"),
    ("decaying", 5_000, 384, "V"),
    ("clustered", 5_000, 384, "D"),
    ("isotropic", 5_000, 768, "D"),
    ("isotropic", 5_000, 768, "A"),
    ("isotropic", 60_000, 256, "D"),
)
KINDS = ("prices", "values", "gradients", "Hessians", "products")


@contextmanager
def counted() -> Iterator[Counter[tuple[str, int]]]:
    """Multiplications by kind and bytes of a number, of all that `newton` does meanwhile."""
    work: Counter[tuple[str, int]] = Counter()
    with ExitStack() as stack:

        def count(owner: type, name: str, note: Callable[..., None]) -> None:
            function = getattr(owner, name)

            def noted(self: Any, *arguments: Any, **keywords: Any) -> Any:
                note(self, *arguments, **keywords)
                return function(self, *arguments, **keywords)

            stack.enter_context(patch.object(owner, name, noted))

        def scores(count: int, form: ScoreForm) -> int:
            return count * form.directions.size // (1 if form.triangle is None else 2)

        def value(space: FeatureSpace, weights: Any) -> None:
            if space._cache is None or not np.array_equal(space._cache[0], weights):
                dimension = len(space._prior)
                work["values", space.dtype.itemsize] += np.count_nonzero(weights) * dimension**2 // 2

        def gradient(space: FeatureSpace, _: Any, form: ScoreForm) -> None:
            work["gradients", space.dtype.itemsize] += scores(len(space.tokens), form)

        def solved(space: FeatureSpace, *_: Any) -> None:
            work["Hessians", space.dtype.itemsize] += space._grams * space.rows.size * space.rows.shape[1] // 2

        def hessian(_: Any, solved: Any, scored: Any, *rest: Any) -> None:
            grams = 1 if scored is None else 2
            work["Hessians", solved.itemsize] += grams * len(solved) ** 2 * solved.shape[1] // 2

        def product(curvature: ImplicitCurvature, _: Any) -> None:
            solved, scored = curvature._solved, curvature._scored
            wide = solved.shape[1] if scored is None else scored.shape[1]
            work["products", solved.itemsize] += 2 * solved.size * wide

        def prices(blocks: TokenBlocks, form: Any, means: Any, dtype: Any = np.float32, tokens: Any = None) -> None:
            count = len(blocks) if tokens is None else len(tokens)
            work["prices", np.dtype(dtype).itemsize] += scores(count, form)

        count(FeatureSpace, "_at", value)
        count(FeatureSpace, "_squares", gradient)
        count(FeatureSpace, "solved", solved)
        count(MatrixCurvature, "__init__", hessian)
        count(ImplicitCurvature, "product", product)
        count(TokenBlocks, "scores", prices)
        yield work


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--seed", type=int, default=12, help="of the features")
    seed = parser.parse_args().seed
    rows = []
    with one_blas_thread(), TemporaryDirectory() as folder:
        for kind, tokens, dimension, criterion in CASES:
            problem = Instance(Case(kind, tokens, dimension, 1, criterion, 1.0, seed), Path(folder)).design_problem()
            with counted() as work:
                design = newton(problem, tolerance=1e-6)
            unit = tokens * dimension**2
            cells = [f"{work[one, 4] / unit:.1f} + {work[one, 8] / unit:.1f}" for one in KINDS]
            total = sum(multiplications * size / 4 for (_, size), multiplications in work.items()) / unit
            support = int(np.count_nonzero(design.mean_occupancy[0]))
            name = f"{kind} {tokens:,} x {dimension}, {criterion}"
            rows.append((name, f"{support:,}", *cells, f"{total:.0f}"))
    header = ("problem", "support", *KINDS, "in float32 Phi G")
    print("\n".join(TextTable("", header, rows, words=1).markdown()))


if __name__ == "__main__":
    main()
