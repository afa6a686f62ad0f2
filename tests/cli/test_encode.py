"""``edpbrl encode`` of tables: the texts of their columns, never their lines."""

import re

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.features import load_encoder

SPEC = "tests.helpers.encoders:BatchEncoder"

ANSWERS = pandas.DataFrame(
    {
        "episode": [0, 1], "step": 0, "option_1": ["a gate, fog", "a sea"], "option_2": ["a sea", "می‌خواهم"],
        "choice": [1, 2],
    }
)  # fmt: skip
ROWS = ["a gate, fog", "a sea", "a sea", "می‌خواهم"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", ["a.CSV", "semicolons.csv", "a.tsv", "a.csv.gz", "a.parquet"])
def test_the_options_of_a_table_are_encoded_row_by_row(name, capsys):
    if name == "a.parquet":
        ANSWERS.to_parquet(name)
    else:
        ANSWERS.to_csv(name, index=False, sep={"semicolons.csv": ";", "a.tsv": "\t"}.get(name, ","))
    assert main(["encode", name, "--encoder", SPEC]) == 0
    np.testing.assert_array_equal(np.load("features.npy"), load_encoder(SPEC).encode(ROWS))
    assert f"4 texts, 3 distinct ones, of the columns option_1, option_2 of {name}" in capsys.readouterr().out
    assert main(["encode", name, "--column", "option_2", "--encoder", SPEC]) == 0
    np.testing.assert_array_equal(np.load("features.npy"), load_encoder(SPEC).encode(ROWS[1::2]))


@pytest.mark.parametrize(
    ("name", "content", "arguments", "said"),
    [
        ("people.csv", "person;question;option;chosen\n1;1;A;1\n", [], "prompt, text or option_1, .*name the columns"),
        ("a.csv", "option_1;option_2;choice\na;b;c;1\n", [], "got 4 in line 2; put texts that hold a semicolon"),
        ("a.csv", "prompt,n\na,1\n", ["--column", "x"], r"column\(s\) x in a.csv, which has prompt, n"),
        ("a.txt", "episode,step,option_1,option_2,choice\n0,0,a,b,1\n", [], "the header of a table; .*ending in .csv"),
        ("a.json", '[{"prompt": "a gate"}]', [], "got JSON"),
    ],
)
def test_other_tables_are_refused_in_one_line(name, content, arguments, said, tmp_path, capsys):
    (tmp_path / name).write_text(content)
    assert main(["encode", name, *arguments, "--encoder", SPEC]) == 2
    error = capsys.readouterr().err
    assert re.search(said, error) and len(error.splitlines()) == 1
    assert not (tmp_path / "features.npy").exists()
