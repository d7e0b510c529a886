"""ARFF: what OpenML writes, what the format allows, and what is neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import arff

from teeter.bench.datasets.formats import read_arff
from teeter.data.table_files import Table
from teeter.errors import FileError

LETTER = """% a comment
@RELATION letter

@ATTRIBUTE x-box integer
@attribute 'y box' NUMERIC
@attribute "a \\"real\\" one" real [0, 1]
@ATTRIBUTE class {A,'B b',"it's"}
@DATA
2,8,0.5,A
% between
-1, 1e2 ,?,'B b'
3,4,5,"it's"
"""


def read(folder: Path, text: str, rows: int | None = None) -> Table:
    path = folder / "file.arff"
    path.write_text(text, encoding="utf-8")
    return read_arff(path, rows=rows)


def test_numbers_and_texts_in_every_kind_of_quotes(tmp_path: Path) -> None:
    table = read(tmp_path, LETTER)
    assert list(table.columns) == ["x-box", "y box", 'a "real" one', "class"]
    assert table.columns["x-box"].tolist() == [2, -1, 3]
    assert table.columns["y box"].tolist() == [8, 100, 4]
    assert str(table.columns['a "real" one'].tolist()) == "[0.5, nan, 5.0]"
    assert table.columns["class"].tolist() == ["A", "B b", "it's"]


def test_sparse_rows_have_zeros_and_first_values_where_they_are_silent(tmp_path: Path) -> None:
    header = "@relation s\n@attribute a real\n@attribute b {x,'y z'}\n@attribute c real\n@data\n"
    table = read(tmp_path, header + "{0 1.5, 1 'y z'}\n{}\n{2 -3}\n")
    assert table.columns["a"].tolist() == [1.5, 0, 0]
    assert table.columns["b"].tolist() == ["y z", "x", "x"]
    assert table.columns["c"].tolist() == [0, 0, -3]


def test_rows_that_end_by_a_comma_and_comments_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "file.arff"
    path.write_bytes(
        b"% caf\xe9\n@relation m\n@attribute a real\n@attribute k {x,y}\n@data\n1,x,\n2,y,\n"
    )
    table = read_arff(path)
    assert table.columns["a"].tolist() == [1, 2]
    assert table.columns["k"].tolist() == ["x", "y"]


def test_the_first_rows_alone(tmp_path: Path) -> None:
    assert len(read(tmp_path, LETTER, rows=2)) == 2
    assert len(read(tmp_path, LETTER + "cut short", rows=3)) == 3, (
        "what comes after them is not looked at"
    )


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.sampled_from(["a", "b c"])), min_size=1, max_size=9)
)
def test_it_reads_what_scipy_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, str]]
) -> None:
    folder = tmp_path_factory.mktemp("arff")
    text = "@relation r\n@attribute n numeric\n@attribute k {a,'b c'}\n@data\n"
    table = read(folder, text + "".join(f"{number!r},'{kind}'\n" for number, kind in rows))
    other, _ = arff.loadarff(folder / "file.arff")
    assert table.columns["n"].tolist() == other["n"].tolist()
    assert table.columns["k"].tolist() == [kind.decode() for kind in other["k"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no @data"),
        ("@relation r\n@attribute a real\n", "no @data"),
        ("hello\n", "is not an ARFF file: it has 'hello' before @data"),
        ("@relation r\n@data\n1\n", "has 0 attributes"),
        ("@relation r\n@attribute a real\n@attribute a real\n@data\n1,1\n", "names must be unique"),
        ("@relation r\n@attribute\n@data\n1\n", "an attribute that cannot be read"),
        ("@relation r\n@attribute a real\n@data\n", "has 1 attributes and no rows"),
        (
            LETTER + "1,2",
            "Row 4 of .* has 2 fields for 4 attributes: the file is incomplete or damaged",
        ),
        (LETTER + "1,2,3,'A", "Row 4 of .* cannot be read: check its quotes"),
        (LETTER + "one,2,3,A\n", "is not a valid ARFF file"),
        (LETTER + "{0 1", "a sparse row without a closing brace"),
        (LETTER + "{9 1}", "is not a valid ARFF file"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        read(tmp_path, text)


def test_bytes_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "file.arff"
    path.write_bytes(b"\xff\xfe\x00garbage")
    with pytest.raises(FileError, match="is not an ARFF file"):
        read_arff(path)
