"""Read files of JSON lines: one object per line, in UTF-8."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from teeter.data.table_files import MAX_CELL_LENGTH, MAX_LINE_LENGTH
from teeter.errors import FileError

__all__ = ["JSONL_SUFFIXES", "read_json_objects"]

JSONL_SUFFIXES = (".jsonl", ".ndjson")

# Possessive quantifiers (++ and *+) keep the memory constant on strings of any length.
_JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)


def read_json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSONL file with their line numbers. Blank lines are skipped."""
    is_blank = True
    try:
        for number, line in _read_lines(path):
            if not line.strip():
                continue

            is_blank = False
            yield number, _parse_object(line, number, path)
    except UnicodeDecodeError:
        raise FileError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None

    if is_blank:
        raise FileError(f"{path} has only blank lines.")


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, and stop at a line that is too long."""
    number = 1
    with path.open(encoding="utf-8-sig") as stream:
        # One character more than allowed shows that there is more. Unlike str.splitlines, readline
        # leaves line separators inside texts alone.
        while line := stream.readline(MAX_LINE_LENGTH + 1):
            if len(line) > MAX_LINE_LENGTH:
                raise _length_error(path, number, _find_long_field(line))
            yield number, line
            number += 1


def _parse_object(line: str, number: int, path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise FileError(f"Line {number} of {path} is not a JSON object.")

    for name, value in fields.items():
        if isinstance(value, str) and len(value) > MAX_CELL_LENGTH:
            raise _length_error(path, number, name)
    return fields


def _find_long_field(line: str) -> str | None:
    """Return the name of the field that is too long in the beginning of a JSON object."""
    previous = ""
    for match in _JSON_STRING.finditer(line):
        if match.end() - match.start() > MAX_CELL_LENGTH:
            return previous.strip('"') or None
        previous = match.group()

    return None


def _length_error(path: Path, line: int, field_name: str | None) -> FileError:
    if field_name is None:
        return FileError(
            f"Line {line} of {path} has more than {MAX_LINE_LENGTH:,} characters: shorten it, or "
            "remove it."
        )

    return FileError(
        f"The field {field_name!r} in line {line} of {path} has more than {MAX_CELL_LENGTH:,} "
        "characters: shorten it, or remove the line."
    )
