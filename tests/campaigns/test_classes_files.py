"""Files of class names: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from teeter.campaigns.classes import read_class_file
from teeter.errors import FileError


def test_a_byte_order_mark_and_windows_line_ends_are_not_part_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "classes.csv"
    path.write_bytes('\ufeffClass,Description\r\nspäm,"bad, really"\r\nham\r\n'.encode())
    assert read_class_file(path) == ["späm", "ham"]


def test_commas_may_be_part_of_a_name_in_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_text("yes, surely\nno\n")
    assert read_class_file(path) == ["yes, surely", "no"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "There is no file .*none.txt to read the class names from"),
        ("empty.txt", b"\n \n", "has no class names: write one name per line"),
        ("empty.csv", b"", "has no class names"),
        ("wide.csv", b"id,title\n1,spam\n", "has the columns id, title: rename the column of"),
        ("latin.txt", b"sp\xe4m\nham\n", "is not a valid file of class names"),
    ],
)
def test_what_is_no_file_of_classes_is_refused(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError, match=message):
        read_class_file(path)
