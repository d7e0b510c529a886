"""Tables as they are read, and the sentence for each one that cannot be."""

from __future__ import annotations

import csv
import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teeter.data.table_files import Table, is_missing, read_table, require_ids
from teeter.errors import FileError, InputError, MissingExtraError, UnknownNameError

CELLS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def csv_of(folder: Path, text: str | bytes, name: str = "pool.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def texts(table: Table) -> dict[str, list[str]]:
    return {name: table.texts(name) for name in table.columns}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_found_in_the_header(tmp_path: Path, delimiter: str) -> None:
    text = (
        delimiter.join(['"a,;;\t\t."', "b", "c"])
        + "\n"
        + delimiter.join(["1", '"x,;\t"', "3"])
        + "\n"
    )
    assert texts(read_table(csv_of(tmp_path, text))) == {
        "a,;;\t\t.": ["1"],
        "b": ["x,;\t"],
        "c": ["3"],
    }


def test_a_byte_order_mark_blank_lines_and_spaces_in_the_header_are_left_out(
    tmp_path: Path,
) -> None:
    table = read_table(csv_of(tmp_path, b"\xef\xbb\xbf\r\n a , b\r\n\r\n1,2\r\n\r\n3,4\r\n"))
    assert texts(table) == {"a": ["1", "3"], "b": ["2", "4"]}


def test_a_column_without_a_name_is_an_index_and_left_out(tmp_path: Path) -> None:
    assert texts(read_table(csv_of(tmp_path, ",a\n0,x\n1,y\n"))) == {"a": ["x", "y"]}


def test_a_quoted_cell_may_hold_anything(tmp_path: Path) -> None:
    assert texts(read_table(csv_of(tmp_path, 'a,b\n"x,""y""\r\nz",2\n')))["a"] == ['x,"y"\r\nz']


@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1))
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("table") / "pool.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([("first", "second"), *rows])
    assert list(zip(*texts(read_table(path)).values(), strict=True)) == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "pool.csv is empty: it has 0 bytes."),
        ("\n \n", "has no header"),
        (",,\n1,2,3\n", "has no header"),
        ("a,b\n", r"has a header \(a, b\) and no rows\."),
        ("a,b\n1,2\n3\n", "Line 3 of .* has 1 fields and the header has 2"),
        ("a,b\n1,2,3\n", "Line 2 of .* has 3 fields and the header has 2"),
        ("a,b,a\n1,2,3\n", "has 2 columns called 'a'"),
        ('a,b\n1,"x\n', r"Line 2 of .* cannot be read \(unexpected end of data\)"),
        ('a,b\n1,"x"y\n', "Line 2 of .* cannot be read"),
        (b"a,b\n1,\x81\n", "is not UTF-8, UTF-16 or Windows-1252 text: save it as UTF-8"),
        ("a,b\nä,2\nü,3\n".encode() + b"\xff,4\n", "UTF-8 text, but for 1 character, .* line 4"),
        ("a,b\n1,2\n".encode("utf-16")[:-1], "is not UTF-8, UTF-16 or Windows-1252 text"),
    ],
)
def test_a_broken_csv_file_is_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(FileError, match=message):
        read_table(csv_of(tmp_path, content))


def test_a_missing_file_a_folder_and_another_suffix_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"There is no file .*none\.csv\."):
        read_table(tmp_path / "none.csv")
    with pytest.raises(FileError, match=r"is a folder: give a file\."):
        read_table(tmp_path)
    with pytest.raises(FileError, match=r"ends in '.doc': a table must end in .csv, "):
        read_table(csv_of(tmp_path, "a\n1\n", "pool.doc"))


def test_an_unknown_column_is_refused_with_a_hint(tmp_path: Path) -> None:
    table = read_table(csv_of(tmp_path, "label,size\nx,1\n"))
    with pytest.raises(
        UnknownNameError, match=r"No column of .* is called 'lable'\. Did you mean 'label'\?"
    ):
        table.require("lable")


def test_rows_are_named_by_the_lines_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('\nid,text\n1,"two\nlines"\n\n2,b\n1,c\n')
    table = read_table(path)
    assert [table.place(row) for row in range(3)] == ["line 3", "line 6", "line 7"]
    with pytest.raises(InputError, match="is used in line 3 and line 7"):
        table.ids("id")


def test_ids_must_differ_and_none_may_be_blank() -> None:
    assert require_ids(["a", "b", " a"], "here") == ["a", "b", " a"]
    with pytest.raises(
        InputError, match="The id 'b' in here is used in row 1 and row 3: ids must be unique"
    ):
        require_ids(["a", "b", "c", "b", "a"], "here")
    with pytest.raises(InputError, match="The id in here is blank in row 1"):
        require_ids(["a", " ", "b", " "], "here")


@pytest.mark.parametrize("text", ["", "  ", "NA", "na", " NaN ", "null", "NONE", "n/a"])
def test_what_stands_for_a_missing_value(text: str) -> None:
    assert is_missing(text)


@pytest.mark.parametrize("text", ["0", "no", "nano", "-", "n.a."])
def test_what_does_not(text: str) -> None:
    assert not is_missing(text)


def parquet_of(folder: Path, columns: dict[str, Any]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = folder / "pool.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_columns_keep_their_kind(tmp_path: Path) -> None:
    import pyarrow

    columns = {
        "large": [2**60 + 1, 2**60 + 3],
        "holes": [1, None],
        "share": [0.5, None],
        "name": ["x", None],
        "kind": pyarrow.array(["u", "v"]).dictionary_encode(),
        "flag": [True, None],
        "day": [datetime.date(2024, 5, 1), None],
        "vector": pyarrow.array([[1.0, 2.0], [3.0, 4.0]], type=pyarrow.list_(pyarrow.float32(), 2)),
        "ragged": [[1.0], [1.0, 2.0]],
        "tags": [["a"], ["b"]],
        "parts": [{"a": 1}, {"a": 2}],
        "__index_level_0__": [0, 1],
    }
    table = read_table(parquet_of(tmp_path, columns))
    assert table.nested == ("ragged", "tags", "parts")
    assert table.columns["vector"].tolist() == [[1, 2], [3, 4]]
    assert {name: table.texts(name) for name in table.columns if name != "vector"} == {
        "large": [str(2**60 + 1), str(2**60 + 3)],
        "holes": ["1", ""],
        "share": ["0.5", ""],
        "name": ["x", ""],
        "kind": ["u", "v"],
        "flag": ["true", ""],
        "day": ["2024-05-01", ""],
    }


def test_parquet_lists_in_several_pieces_are_one_matrix(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    pieces = [pyarrow.table({"features": [[float(k), 1.0]] * 3}) for k in range(4)]
    with parquet.ParquetWriter(tmp_path / "pool.parquet", pieces[0].schema) as writer:
        for piece in pieces:
            writer.write_table(piece)
    table = read_table(tmp_path / "pool.parquet")
    assert np.array_equal(table.columns["features"][:, 0], np.repeat([0, 1, 2, 3], 3))


def test_a_broken_parquet_file_is_refused(tmp_path: Path) -> None:
    path = parquet_of(tmp_path, {"a": list(range(1000))})
    content = path.read_bytes()
    for broken in (b"PAR1", content[:-20], content[:50] + content[-50:], b"a,b\n1,2\n"):
        path.write_bytes(broken)
        with pytest.raises(FileError, match="is not a valid Parquet file"):
            read_table(path)


def test_an_empty_parquet_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"has 1 columns and no rows\."):
        read_table(parquet_of(tmp_path, {"a": []}))


def test_without_pyarrow_parquet_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError,
        match=r"^Reading Parquet needs pyarrow: pip install 'teeter\[parquet\]'\.$",
    ):
        read_table(csv_of(tmp_path, b"PAR1", "pool.parquet"))


@pytest.mark.parametrize("separator", [";", ",", "\t"])
def test_the_line_in_which_excel_names_the_separator_is_no_header(
    separator: str, tmp_path: Path
) -> None:
    path = tmp_path / "items.csv"
    path.write_text(f"sep={separator}\ntext{separator}kind\none{separator}a\n")
    table = read_table(path)
    assert list(table.columns) == ["text", "kind"]
    assert table.texts("text") == ["one"]
    assert table.place(0) == "line 3"


def test_of_columns_without_a_name_only_one_may_have_values(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("text,,\none,x,\n")
    assert read_table(path).texts("text") == ["one"]
    path.write_text("text,,\none,x,1\n")
    with pytest.raises(FileError, match=r"2 columns of .* no name: name each"):
        read_table(path)
