"""Made people who choose by a multinomial logit, their tastes drawn from one population; a stand-in for public data."""

from __future__ import annotations

import numpy as np
import pandas

MEAN = np.array([1.5, -1.0, 0.0])
SPREAD = np.array([0.6, 0.8, 1.2])
UNITS = np.array([1.0, 5.0, 0.2])


def long_table(
    count: int = 30, questions: int = 9, options: int = 3, *, seed: int = 0, sizes: tuple[int, ...] | None = None
) -> pandas.DataFrame:
    """Their long table with three attributes; question i has ``sizes[i % len(sizes)]`` options (None: all)."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        taste = MEAN + SPREAD * rng.standard_normal(3)
        table = rng.standard_normal((questions, options, 3)) * UNITS
        utilities = (table / UNITS) @ taste + rng.gumbel(size=(questions, options))
        for question in range(questions):
            size = (sizes or (options,))[question % len(sizes or (options,))]
            chosen = int(utilities[question, :size].argmax())
            for option, row in enumerate(table[question, :size].tolist()):
                key = {"person": f"p{number}", "question": f"p{number}-{question}", "option": option + 1}
                values = dict(zip(("warm", "loud", "wide"), row, strict=True))
                rows.append({**key, "chosen": option == chosen, **values})
    return pandas.DataFrame(rows)
