"""Cells of a table: decimal commas, and lists that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from teeter.data.table_files import read_table
from teeter.errors import FileError


def test_a_parquet_file_of_broken_lists_alone_is_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "pool.parquet"
    pq.write_table(pa.table({"features": [[1.0, 2.0], None, [3.0, 4.0]]}), path)
    with pytest.raises(FileError, match=r"No column of .* can be read: features"):
        read_table(path)


def test_decimal_commas_are_numbers_between_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    path.write_text("x;y\n3,5;a\n4,25;b\n1;\n;\n")
    assert read_table(path).columns["x"].tolist() == ["3.5", "4.25", "1", ""]
    path.write_text("x,y\n3,a\n")
    assert read_table(path).columns["x"].tolist() == ["3"]
