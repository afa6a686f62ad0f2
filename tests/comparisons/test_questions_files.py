"""Files of questions and other CSV files: refused where they say something else, read back as they were written."""

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons.delimited import escape_cell, original_cell, write_csv
from edpbrl_gym.comparisons.question_files import read_answers
from edpbrl_gym.comparisons.tables import read_table
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
    place = rf"question {row + 1} \({f'line {row + 2}' if ending == 'csv' else f'row {row + 1}'}\)"
    with pytest.raises(ValueError, match=f"empty cell in column option_2 of {place}; write the option"):
        read_answers(file, CountingEncoder())


@FORMATS
@pytest.mark.parametrize(("column", "wrong"), [("step", "first"), ("episode", ""), ("step", "-1"), ("episode", "1.5")])
def test_counters_are_whole_numbers(tmp_path, ending, column, wrong):
    file = written(tmp_path, ending, {**TABLE, column: [*TABLE[column][:2], wrong]})
    said = f"whole number in the column {column}, (line 4|row 3) .*got ('{wrong}'|an empty)"
    with pytest.raises(ValueError, match=said):
        read_answers(file, CountingEncoder())


def test_lines_are_those_of_the_file_and_blank_rows_are_left_out(tmp_path):
    file = tmp_path / "questions.csv"
    file.write_text('option_1,option_2,choice\n"two\nlines",b,2.0\n\n,,\nc,,1\n')
    with pytest.raises(ValueError, match=r"column option_2 of question 2 \(line 6\)"):
        read_answers(file, CountingEncoder())
    file.write_text('option_1,option_2,choice\n"two\nlines",b,2.0\n\n,,\nc,d,\n')
    found, left_out = read_answers(file, CountingEncoder())
    assert found.texts == [["two\nlines", "b"]] and found.choice.tolist() == [1] and left_out == 1


@FORMATS
@pytest.mark.parametrize("unseen", ["\u202e", "\x1b[31m", "sea\0", "\u200b", "\u3164\u2800"])
def test_an_option_that_nobody_can_see_names_row_and_column(tmp_path, ending, unseen):
    text = f"x{unseen}y" if unseen < "\u2000" or unseen == "\u202e" else unseen
    file = written(tmp_path, ending, {**TABLE, "option_2": ["sea", "fog", text]})
    with pytest.raises(ValueError, match=r"readable text in column option_2 of question 3.*got .*can't be seen"):
        read_answers(file, CountingEncoder())
    file = written(tmp_path, ending, {**TABLE, "option_2": ["sea", "fog", "e\u0301t\u00e9\nx"]})
    assert read_answers(file, CountingEncoder())[0].texts[1][1] == "\u00e9t\u00e9\nx"  # composed


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
    found = read_table(file)
    assert found.header == ["=first", "second", "score"]
    assert found.columns[:2] == [[row[place] for row in rows] for place in (0, 1)]
    assert found.numbers("score")[:, 0].tolist() == [score for _, _, score in rows]
    if rows[0][2] < 0:
        assert not found.columns[2][0].startswith("'") and "'-" not in file.read_text().splitlines()[0]


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
        ("1 1", "", "numbers from 1 to 3, best first, .* got choice '1 1' in question 3"),
        ("1 4", "", r"choices 1\.\.3 .* got '1 4'"),
        ("1,2", "", r"choices 1\.\.3"),
        ("1 2", "3", "first the best option and then the worst .* got choice '1 2' and worst '3'"),
        ("2", "2", "two numbers from 1 to 3.* got choice '2' and worst '2' in question 3"),
        ("2", "x", r"choices 1\.\.3 .* got 'x'"),
        ("", "2", r"a choice beside the worst option in question 3 \(line 4\)"),
        *((wrong, "", r"choices 1\.\.3 .* in question 3 \(line 4\)") for wrong in ("1_0", "٢", "1e0", "+1", "0", "4")),
    ],
)
def test_richer_answers_that_make_no_sense(tmp_path, choice, worst, said):
    table = {**TABLE, "choice": ["1", "", choice], "worst": ["", "", worst]}
    with pytest.raises(ValueError, match=said):
        read_answers(written(tmp_path, "csv", table), CountingEncoder())
