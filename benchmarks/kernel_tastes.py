"""Does a taste that is not linear gain from a kernel? The table of docs/priors.md, from finished runs.

    RUN="edpbrl bench comparison --arm random"
    $RUN --regime two-styles-items-d384 one-style-items-d384 --seeds 10 --questions 60 180 360 --out runs/styles-d384
    $RUN --regime two-styles-items-d10 one-style-items-d10 --seeds 40 --questions 10 30 60 200 500 --out runs/styles-d10
    python -m benchmarks.kernel_tastes runs/styles-d384 runs/styles-d10

Random questions; a user of "two styles" likes both, but not their mixture (`edpbrl_gym.oracles.TwoStyles`), one of "one
style" has a linear taste. Prints the preference error of the linear estimators and of the kernels on the same answers,
and the paired difference of each kernel to the linear estimate with the same prior, with 95% bootstrap intervals over
runs: below 0 the kernel is better.
"""

from __future__ import annotations

from pathlib import Path

import pandas

from benchmarks.common import make_parser, show
from edpbrl_gym.experiments.bench.settings import REGIMES
from edpbrl_gym.reporting.statistics import PairedDifference, bracket
from edpbrl_gym.reporting.tables import TextTable

PAIRS = (("kernel", "ridge-fit"), ("kernel-global", "global"))


def table(results: pandas.DataFrame, metric: str) -> TextTable:
    """Means of a metric, and the differences of the kernels to their linear counterparts."""
    rows = []
    for (regime, questions), cases in results.groupby(["regime", "questions"], sort=False):
        values = cases.pivot_table(index=["seed", "user"], columns="estimator", values=metric)
        if values.empty:
            continue
        row = [REGIMES[str(regime)].title, str(questions), str(len(values))]
        for kernel, linear in PAIRS:
            if not {kernel, linear} <= set(values.columns):
                row += ["", "", ""]
                continue
            difference = PairedDifference((values[kernel] - values[linear]).to_numpy())
            means = [f"{values[name].mean():.3f}" for name in (linear, kernel)]
            row += [*means, f"{difference.mean:+.3f} {bracket(*difference.interval, '+.3f')}"]
        rows.append(row)
    header = ["user", "questions", "runs"]
    for kernel, linear in PAIRS:
        header += [linear, kernel, "difference"]
    return TextTable(metric.replace("_", " "), header, rows, words=1)


def main() -> None:
    """Print the tables of the given runs."""
    parser = make_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders of edpbrl bench")
    parser.add_argument("--metric", nargs="+", default=["preference_error"], help="metrics of the table")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    arguments = parser.parse_args()
    results = pandas.concat([pandas.read_parquet(run / "results.parquet") for run in arguments.runs])
    order = {name: number for number, name in enumerate(REGIMES)}
    results = results.sort_values(["regime", "questions"], key=lambda column: column.map(order).fillna(column))
    for metric in arguments.metric:
        found = table(results, metric)
        if arguments.markdown:
            print("\n".join(found.markdown()), end="\n\n")
        else:
            show(found)


if __name__ == "__main__":
    main()
