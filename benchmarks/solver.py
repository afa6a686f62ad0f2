"""Time the design solvers side by side: the command line of `benchmarks.solvers`, by its file name.

OMP_NUM_THREADS=1 python benchmarks/solver.py run       # = python -m benchmarks.solvers run
OMP_NUM_THREADS=1 python benchmarks/solver.py report
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the package lies beside this file, not installed

from benchmarks.solvers.__main__ import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
