"""The reader of tables: the same cells however a table is written, and one line where it would have to guess."""

import csv
import gzip
import io

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons.delimited import original_cell
from edpbrl_gym.comparisons.tables import column_names, read_table

SEPARATORS = [",", ";", "\t", "|"]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]
CELLS = st.text(alphabet=st.sampled_from("ab,;|\t\"'é\u200d\n =.-"), max_size=8)


def written(folder, text, name="table.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def written_rows(header, rows, separator, line_end="\n", quoting=csv.QUOTE_MINIMAL):
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=separator, lineterminator=line_end, quoting=quoting).writerows([header, *rows])
    return stream.getvalue()


@given(
    rows=st.lists(st.tuples(CELLS, CELLS, st.sampled_from(["1.5", "-2", "None", "NA", ""])), min_size=1, max_size=6),
    separator=st.sampled_from(SEPARATORS),
    encoding=st.sampled_from(ENCODINGS),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    said=st.booleans(),
    packed=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_a_table_is_the_same_however_it_is_written(
    tmp_path_factory, rows, separator, encoding, line_end, quoting, said, packed
):
    rows = [(str(number), *row) for number, row in enumerate(rows)]
    quoting = csv.QUOTE_ALL if line_end == "\r" else quoting  # the writer quotes no other line end
    text = written_rows(["key", "price, EUR", "a;b|c", "last"], rows, separator, line_end, quoting)
    text = f"sep={separator}{line_end}" * said + text
    path = written(tmp_path_factory.mktemp("t"), text, encoding=encoding)
    if packed:
        path = path.rename(path.with_name("table.csv.gz"))
        path.write_bytes(gzip.compress(path.read_bytes()))
    table = read_table(path)
    assert table.header == ["key", "price, EUR", "a;b|c", "last"] and table.separator == separator
    assert [table.texts(name) for name in table.header] == [
        [original_cell(row[place]).strip() for row in rows] for place in range(4)
    ]
    assert len(table.places) == len(rows) and table.indices == frozenset()


@pytest.mark.parametrize(
    ("how", "index"),
    [
        (lambda table, path: table.to_csv(path), {""}),
        (lambda table, path: table.to_csv(path, sep=";", index_label="Unnamed: 0"), {"Unnamed: 0"}),
        (lambda table, path: table.to_csv(path, index_label="rownames"), {"rownames"}),
        (lambda table, path: table.set_index(pandas.Index([7, 3, 5])).to_parquet(path), {"__index_level_0__"}),
        (lambda table, path: table.set_index(["person", "question"]).to_csv(path), set()),
        (lambda table, path: table.set_index(["person", "question"]).to_parquet(path), {"person", "question"}),
        (lambda table, path: table.rename_axis("question").drop(columns="question").to_parquet(path), {"question"}),
        (lambda table, path: path.write_text(with_row_names(table)), {"row names"}),
    ],
)
def test_row_numbers_and_levels_of_an_index_are_known(tmp_path, how, index):
    table = pandas.DataFrame({"person": ["a", "a", "b"], "question": [0, 1, 2], "price": [1.5, 2.25, 3.125]})
    how(table, tmp_path / "table.csv")
    found = read_table(tmp_path / "table.csv")  # parquet is known by its contents
    assert found.indices == index
    assert found.keys("person") == ["a", "a", "b"] and found.whole_numbers("question").tolist() == [0, 1, 2]
    assert found.numbers("price")[:, 0].tolist() == [1.5, 2.25, 3.125]


def with_row_names(table):
    """As R's write.table does: the header has no name for the names of the rows."""
    header, *lines = table.to_csv(index=False).splitlines()
    return "\n".join([header, *(f'"{number}.x",{line}' for number, line in enumerate(lines, start=1))])


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("numbers", [["7,06", "1,32", "4"], ["1,200", "2,5", "-3"], ["1,200", "2,300", "4,500"]])
def test_decimal_commas_are_read_where_nothing_else_can_be_meant(tmp_path, separator, numbers):
    path = written(tmp_path, written_rows(["a", "price"], [("x", cell) for cell in numbers], separator))
    assert read_table(path).numbers("price")[:, 0].tolist() == [float(cell.replace(",", ".")) for cell in numbers]


@pytest.mark.parametrize(
    ("separator", "cells", "said"),
    [
        (",", ["7,06", "1"], "'7,06'; write numbers with a decimal point"),
        (";", ["7,06", "1.5"], "one decimal sign in the column price, line 2 .*'7,06'; there is '1.5' in .*, line 3"),
        (";", ["950", "1,200"], "line 3 .*'1,200'; it may have a decimal sign or a separator of thousands"),
        (";", ["950", "1.200"], "line 3 .*'1.200'; it may"),
        (";", ["1.234,5", "2,5"], "'1.234,5'; .*without separators of thousands"),
        (",", ["1,234.5", "2"], "'1,234.5'; .*without separators of thousands"),
        (",", ["1 234", "2"], "line 2 .*'1 234'; .*without separators of thousands"),
        (",", ["1_000", "2"], "'1_000'; .*without separators"),
        (",", ["1'000", "2"], "without separators of thousands"),
        (",", ["1", "NA"], "a finite number in the column price, line 3 .*'NA'; fill it in"),
        (",", ["1", ""], "line 3 .*an empty cell"),
        (",", ["1", "None"], "'None'"),
        (",", ["1", "nan"], "'nan'"),
        (",", ["1", "inf"], "'inf'"),
        (",", ["1", "1e400"], "finite"),
        (",", ["1", "\u0661"], "finite number"),
        (",", ["1", "5 %"], "'5 %'"),
        (",", ["True", "2"], "'True'"),
    ],
)
def test_numbers_that_may_mean_something_else_name_the_place(tmp_path, separator, cells, said):
    path = written(tmp_path, written_rows(["a", "price"], [("x", cell) for cell in cells], separator))
    with pytest.raises(ValueError, match=f"Expected .*{said}"):
        read_table(path).numbers("price")


@pytest.mark.parametrize("name", ["None", "NA", "nan", "null", "N/A"])
def test_words_for_nothing_are_texts_and_empty_cells_stay_empty(tmp_path, name):
    table = pandas.DataFrame({"option": ["A", name, None], "x": [1, 2, 3]})
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    for ending in ("csv", "parquet"):
        found = read_table(tmp_path / f"t.{ending}")
        assert found.texts("option") == ["A", name, ""]
        with pytest.raises(ValueError, match=r"an option in the column option, (line 4|row 3) .*an empty cell"):
            found.keys("option")


COLUMNS = {
    "lists": [["a"], ["b"]],
    "truths": [True, False],
    "floats": [1.5, 2.5],
    "whole": [1, 2],
    "dates": pandas.to_datetime(["2026-01-01", "2026-01-02"]),
    "bytes": [b"a", b"b"],
    "records": [{"a": 1}, {"a": 2}],
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_another_type_is_never_a_text(tmp_path, column):
    pandas.DataFrame({column: COLUMNS[column], "n": [1, 2]}).to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=f"Expected texts in the column {column} .*got the type .*; convert"):
        table.texts(column)
    readers = {
        table.keys: ("truths", "floats", "whole", "dates"),
        table.numbers: ("truths", "floats", "whole"),
        table.truths: ("truths",),
        table.whole_numbers: ("whole",),
    }
    for read, allowed in readers.items():
        if column in allowed:
            read(column)
        else:
            with pytest.raises(ValueError, match=f"the column {column}"):
                read(column)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no header"),
        (b"\n\n", "no header"),
        (b";;;\n1;2;3;4\n", "no header"),
        (b"a,b\n1,caf\xe9\n", "UTF-8 text .*0xe9 at line 2; save the file as UTF-8"),
        (b"a,b\n1,2,3\n", r"2 field\(s\) in each row .*got 3 in line 2; put texts that hold a comma in double quotes"),
        (b"a;b\n1;2;3\n4;5;6\n7;8\n", r"got 3 in line 2; put texts that hold a semicolon"),
        (b'a,b\n1,"2\n', "could not read it .*line"),
        (b'"a" "b"\n"1" 2\n', "could not read it .*line 1.; save it as CSV .*columns separated by commas"),
        (b"sep=:\na:b\n", "first line sep= with a comma, semicolon, tab or vertical bar .*':'"),
        (b"a,b;c\n1,2;3\n", "one separator .*comma and semicolon, which both fit; write sep=,"),
        (b"sep=;\na,b\n1,2\n", "semicolons between the columns .* first line sep=;.*remove that line"),
        (b"\x1f\x8brest", "name ending in .gz"),
        (b"PK\x03\x04rest", "save the sheet as CSV"),
        (b"PAR1rest", "could not read it"),
        (b"\xff\xfea\x00b", "damaged bytes"),
        ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16 without a byte order mark; save the file as UTF-8"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"Expected .*{said}") as raised:
        read_table(path)
    assert "\n" not in str(raised.value) and "t.csv" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "header", "first"),
    [
        ("a;b;price, EUR, net\n1;2;3\n4;5;6\n", ["a", "b", "price, EUR, net"], "1"),
        ("a\tb, c, d\n1\t2\n", ["a", "b, c, d"], "1"),
        ('prompt, option\n"a gate, fog", "x, y"\n', ["prompt", "option"], "a gate, fog"),
        ('prompt\n"a gate, fog"\n', ["prompt"], "a gate, fog"),
        ("prompt\na gate; fog\n", ["prompt"], "a gate; fog"),
        ("a,b,,\n1,2,,\n", ["a", "b"], "1"),
        ("\n\na,b\n1,2\n", ["a", "b"], "1"),
        ("a,b\n,\n1\n", ["a", "b"], "1"),
        ("\ufeffa,b\n1,2\n", ["a", "b"], "1"),
        ("a\tb\n1\tx\ty\n2\tz\tw\n", ["row names", "a", "b"], "1"),
        ('"sep=,"\na,b;c\n1,2\n', ["a", "b;c"], "1"),
    ],
)
def test_headers_and_rows_as_people_write_them(tmp_path, text, header, first):
    table = read_table(written(tmp_path, text))
    assert table.header == header and table.texts(header[0])[0] == first
    assert column_names(table.source) == header


def test_columns_that_are_asked_for_are_there_once(tmp_path):
    table = read_table(written(tmp_path, "a,b,b\n1,2,3\n"))
    with pytest.raises(ValueError, match="one column c .*got a, b, b"):
        table.texts("c")
    with pytest.raises(ValueError, match="one column b .*got it 2 times"):
        table.numbers("b")
